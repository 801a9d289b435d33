"""Progress for a person: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from infra.command.tail import Snapshot
from infra.scenarios import Scenario
from infra.targets.units import format_count

__all__ = ["Display", "open_console"]

_PLAIN_EVERY_S = 5.0
_PLAIN_WIDTH = 120


def open_console() -> Console:
    """Return the console of a command; where it is no terminal, one that is wide enough for the table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


class Display:
    """Writes progress to a console (a context manager: leaving it gives the terminal's cursor back, whatever happened).

    rich obeys NO_COLOR, and knows a terminal when it sees one.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._title = ""
        self._total_s = 0.0
        self._warmup_s = 0.0
        self._said_at_s = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Say something once."""
        self.console.print(escape(text), soft_wrap=True)

    def busy(self, text: str) -> None:
        """Show on a terminal what is waited for before a run; elsewhere what is found is said when it is."""
        self._open()
        if self._live is not None:
            self._live.update(Text(text), refresh=True)

    def begin(self, scenario: Scenario, where: str) -> None:
        """Start the progress of one run."""
        self._title = f"{scenario.name}  {where}"
        self._total_s, self._warmup_s = scenario.warmup_s + scenario.duration_s, scenario.warmup_s
        self._said_at_s = time.monotonic()
        self._open()
        if self._live is not None:
            self.update(Snapshot())

    def update(self, snapshot: Snapshot, doing: str = "") -> None:
        """Show how far it is; `doing` replaces the phase, as while it ends."""
        line = self._line(snapshot, doing)
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif time.monotonic() - self._said_at_s >= _PLAIN_EVERY_S:
            self._said_at_s = time.monotonic()
            self.note(line)

    def end(self, text: str = "") -> None:
        """End the progress of the run; `text` says what became of it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if text:
            self.note(f"{self._title}  {text}")

    def _open(self) -> None:
        if self._live is None and self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def _line(self, snapshot: Snapshot, doing: str) -> str:
        if not doing and snapshot.second <= 0:
            doing = "connecting"
        phase = doing or ("warming up" if snapshot.second <= self._warmup_s else "measuring")
        parts = [
            self._title,
            f"{phase} {min(snapshot.second, round(self._total_s))}/{self._total_s:.0f} s",
            f"{format_count(snapshot.rate_per_s)}/s",
            f"{format_count(snapshot.failed)} failed",
        ]
        if snapshot.http_5xx:
            parts.append(f"{format_count(snapshot.http_5xx)} x 5xx")
        if snapshot.change:
            parts.append(snapshot.change)
        return "  ".join(parts)
