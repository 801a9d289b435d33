"""The messages between the master's side and the workers' side, and what happens when a handler fails.

Times in messages are on the receiver's monotonic clock: the master knows each worker's offset and translates.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger(__name__)

# master to workers
SETUP: Final = "swarm_setup"
PING: Final = "swarm_ping"
COUNT: Final = "swarm_count"
EPOCH: Final = "swarm_epoch"
END: Final = "swarm_end"
WATCH: Final = "swarm_watch"
UNWATCH: Final = "swarm_unwatch"
DRAIN: Final = "swarm_drain"
# workers to master
PONG: Final = "swarm_pong"
COUNTED: Final = "swarm_counted"
BATCH: Final = "swarm_batch"
DRAINED: Final = "swarm_drained"


def guarded(handler: Callable[..., None], *, with_sender: bool = False) -> Callable[..., None]:
    """A listener for Runner.register_message.

    Locust only logs what a listener raises, in other words; this names the message.
    """

    def listen(environment: object, msg: Any, **_more: object) -> None:
        del environment
        try:
            if with_sender:
                handler(msg.node_id, msg.data)
            else:
                handler(msg.data)
        except Exception:
            logger.exception("The message %s could not be handled", msg.type)
            raise

    return listen
