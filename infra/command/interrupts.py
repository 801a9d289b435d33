"""Ctrl-C, SIGTERM and a closed terminal: the first asks the engine to end in order, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds SIGINT, SIGTERM and SIGHUP while a campaign runs (a context manager; main thread only).

    While an engine runs, a signal is passed to it and the campaign goes on to the engine's own end: it drains, puts the
    target back and finishes its run directory. While none runs, a signal raises KeyboardInterrupt where we are.
    """

    def __init__(self) -> None:
        self._pass_on: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        self.count = 0

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for the end: nothing new is started."""
        return self.count > 0

    @property
    def at_once(self) -> bool:
        """Whether somebody asked twice: nothing is waited for."""
        return self.count > 1

    @contextmanager
    def passed_to(self, pass_on: Callable[[], None]) -> Iterator[None]:
        """Pass signals on while the block runs, instead of raising."""
        self._pass_on = pass_on
        try:
            yield
        finally:
            self._pass_on = None

    def _received(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self.count += 1
        if self._pass_on is None:
            raise KeyboardInterrupt
        self._pass_on()
