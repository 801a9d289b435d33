"""Writes the run directory from a real thread, so that no file ever waits inside the measured loop."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import gevent
from gevent.monkey import get_original

from analysis.rundir import RunDirError, RunWriter

logger = logging.getLogger(__name__)

Write = tuple[Callable[..., None], tuple[Any, ...]]

# While the thread computes, the loop gets the interpreter back this soon; Python's own 5 ms would show as late slots.
_SWITCH_S: Final = 0.0002
_POLL_S: Final = 0.002


class Filing:
    """Queues writes in order. `submit` neither blocks nor lets another greenlet run: whoever is killed loses no write.

    `cpus` are the cores for the thread; empty: those of the process. The first failure is kept in `error` (the run is
    invalid from then on) and ends all writing but the last manifest.
    """

    def __init__(self, writer: RunWriter, cpus: frozenset[int] = frozenset()) -> None:
        self.writer = writer
        self._cpus = cpus
        self.error: str | None = None
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._submitted = self._done = 0
        # gevent's own thread pool will not do: its spawn waits while the thread is busy, and a greenlet that is killed
        # there loses what it came with.
        self._queue: Any = get_original("queue", "SimpleQueue")()
        get_original("_thread", "start_new_thread")(self._work, ())

    def submit(self, writes: list[Write]) -> None:
        """Write these in this order, and bring them to the file system."""
        if writes:
            self._put(writes)

    def wait(self) -> None:
        """Return when everything submitted so far is written."""
        until = self._submitted
        while self._done < until:
            gevent.sleep(_POLL_S)

    def close(self, manifest: dict[str, Any]) -> None:
        """Write what is queued, close the files, and write the manifest, also where all other writing has failed.

        The verdict on a run matters most when something went wrong with it.
        """
        self._put(manifest)
        self.wait()
        sys.setswitchinterval(self._switch_s)

    def _put(self, work: list[Write] | dict[str, Any]) -> None:
        self._submitted += 1
        self._queue.put(work)

    def _work(self) -> None:
        """The thread: a list of writes at a time, until the last manifest comes."""
        if self._cpus:
            # Of this thread alone: on the core of the pump, the kernel would let it run for milliseconds at a time.
            with contextlib.suppress(OSError):  # a container may not give us those cores: then this one has to do
                os.sched_setaffinity(0, self._cpus)
        closing = False
        while not closing:
            work = self._queue.get()
            closing = isinstance(work, dict)
            if isinstance(work, dict):
                self._attempt([(self.writer.manifest, (work,))])
                self._attempt([(self.writer.close, ())])
            elif self.error is None:
                self._attempt([*work, (self.writer.flush, ())])
            self._done += 1

    def _attempt(self, writes: list[Write]) -> None:
        try:
            for write, arguments in writes:
                write(*arguments)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must invalidate the run, not end a thread unseen
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.error is not None:
            return
        if isinstance(error, RunDirError):
            self.error = str(error)
        elif isinstance(error, OSError):
            self.error = f"{error.filename or self.writer.path}: {error.strerror}"
        else:
            self.error = f"{type(error).__name__}: {error}"
        logger.error("The run directory can be written no further: %s", self.error)
