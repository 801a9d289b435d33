"""Writes the run directory from a real thread, so that no file ever waits inside the measured loop."""

import logging
import sys
from collections.abc import Callable
from typing import Any, Final

from gevent.threadpool import ThreadPool

from analysis.rundir import RunDirError, RunWriter

logger = logging.getLogger(__name__)

Write = tuple[Callable[..., None], tuple[Any, ...]]

# While the thread computes, the loop gets the interpreter back this soon; Python's own 5 ms would show as late slots.
_SWITCH_S: Final = 0.0002


class Filing:
    """Queues writes in order.

    The first failure is kept in `error` (the run is invalid from then on) and ends all writing.
    """

    def __init__(self, writer: RunWriter) -> None:
        self.writer = writer
        self.error: str | None = None
        self._pool = ThreadPool(1)
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)

    def submit(self, writes: list[Write]) -> None:
        """Write these in this order, and bring them to the file system."""
        if writes and self.error is None:
            self._pool.spawn(self._write, writes)

    def wait(self) -> None:
        """Return when everything queued so far is written."""
        self._pool.join()

    def close(self, manifest: dict[str, Any]) -> None:
        """Write what is queued, close the files, and write the manifest, also where all other writing has failed.

        The verdict on a run matters most when something went wrong with it.
        """
        self._pool.spawn(self._close, manifest)
        self._pool.join()
        self._pool.kill()
        sys.setswitchinterval(self._switch_s)

    def _close(self, manifest: dict[str, Any]) -> None:
        for last, arguments in ((self.writer.manifest, (manifest,)), (self.writer.close, ())):
            try:
                last(*arguments)
            except Exception as error:  # noqa: BLE001  # as in _write
                self._failed(error)

    def _write(self, writes: list[Write]) -> None:
        if self.error is not None:
            return
        try:
            for write, arguments in writes:
                write(*arguments)
            self.writer.flush()
        except Exception as error:  # noqa: BLE001  # whatever it is, it must invalidate the run instead of ending a thread unseen
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
