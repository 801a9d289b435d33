"""The user class of profiles on the pump: one user is one connection."""

from typing import ClassVar

from gevent.event import Event
from locust import FastHttpUser

from locustfiles.engine._connection import Connection
from locustfiles.engine._install import worker_side


class ConnectionUser(FastHttpUser):
    """Holds one connection of the pump for as long as it lives.

    Scripted tasks may be added; they have `self.client` as ever.
    """

    abstract = True
    profile: ClassVar[str]
    _connection: Connection | None = None

    def on_start(self) -> None:
        """Ask for a connection."""
        side = worker_side(self.environment)
        self._connection = None if side is None else side.add_connection()

    def on_stop(self) -> None:
        """Give the connection back."""
        side = worker_side(self.environment)
        if side is not None and self._connection is not None:
            side.remove_connection(self._connection)

    def stop(self, force: bool = False) -> bool:  # noqa: FBT001, FBT002  # Locust's signature
        """Stop at once: the engine has drained before, and a task that only waits would use up the whole
        --stop-timeout.
        """
        del force
        return bool(super().stop(force=True))

    @staticmethod
    def wait_for_ever() -> None:
        """What the task of a profile without a script does; the pump makes the load."""
        Event().wait()
