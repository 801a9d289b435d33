"""Follows a run directory while it grows, for the progress line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Snapshot", "Tail"]

_REPLIES = ("ok", "http_3xx", "http_4xx", "http_5xx")


@dataclass(frozen=True)
class Snapshot:
    """How far a run is. `rate_per_s` is of the last whole second; `second` counts from the start of the warm-up."""

    second: int = 0
    rate_per_s: int = 0
    failed: int = 0
    http_5xx: int = 0
    change: str = ""


class Tail:
    """Reads what was added to a run directory since the last look; costs what was added, not what is there."""

    def __init__(self, run_dir: Path) -> None:
        self._slots = _Growing(run_dir / "slots.csv")
        self._outcomes = _Growing(run_dir / "outcomes.csv")
        self._events = _Growing(run_dir / "events.jsonl")
        self._sent: dict[int, int] = {}
        self._failed = 0
        self._http_5xx = 0
        self._change = ""

    def look(self) -> Snapshot:
        """Return the state of the run by what its files hold now."""
        for row in self._slots.rows():
            second = int(row["second"])
            self._sent[second] = self._sent.get(second, 0) + int(row["sent"])
        for row in self._outcomes.rows():
            if row["code"].startswith("repeat:"):
                continue
            count = int(row["count"])
            self._failed += 0 if row["outcome"] in _REPLIES else count
            self._http_5xx += count if row["outcome"] == "http_5xx" else 0
        for line in self._events.lines():
            self._change = _change_of(line) or self._change
        latest = max(self._sent, default=-1)
        # The newest second may still be filling, where several workers report it.
        whole = latest - 1 if latest - 1 in self._sent else latest
        return Snapshot(latest + 1, self._sent.get(whole, 0), self._failed, self._http_5xx, self._change)


class _Growing:
    """The complete new lines of a file that another process writes; the file may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._header: list[str] | None = None

    def lines(self) -> Iterator[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return
        self._offset += len(added)
        *complete, self._rest = (self._rest + added).split(b"\n")
        for line in complete:
            yield line.decode(errors="replace")

    def rows(self) -> Iterator[Mapping[str, str]]:
        for values in csv.reader(line for line in self.lines() if line and not line.startswith("#")):
            if self._header is None:
                self._header = values
            elif len(values) == len(self._header):
                yield dict(zip(self._header, values, strict=True))


def _change_of(line: str) -> str:
    """Return a change of the target in a few words, or nothing for other events."""
    try:
        event = json.loads(line)
    except ValueError:
        return ""
    params = event.get("params") or {}
    match event.get("kind"):
        case "scale":
            words = f"scale to {params.get('replicas')}"
        case "cors":
            words = f"cors {'on' if params.get('on') else 'off'}"
        case "rewrite":
            words = f"rewrite {'on' if params.get('rewrite') else 'off'}"
        case _:
            return ""
    return f"{words} failed" if event.get("error") else words
