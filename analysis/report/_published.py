"""Published figures of a study beside ours: never mixed, always marked, the same columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from analysis.latency import Ranked
from analysis.summary import RunSummary
from analysis.words import ABSENT, count, gateway_name, printable, quantile_ms, rate

_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,6})?)")
_OURS = {
    "connect_errors": lambda one: count(one.wrk.connect),
    "timeouts": lambda one: f"≈ {count(one.wrk.timeout_estimate)}",
    "read_errors": lambda one: count(one.wrk.read),
    "rps": lambda one: rate(one.rate_reached_per_s),
}
_HEADINGS = {
    "connect_errors": "connect errors",
    "timeouts": "timeouts",
    "read_errors": "read errors",
    "rps": "requests/s",
}
_MAX_COLUMNS = 12
_MAX_ROWS = 40
_MAX_CELL_CHARS = 60


@dataclass(frozen=True)
class PublishedTable:
    """One study: its source, a note on how it was measured, and rows of `(name, is ours, cells)`."""

    source: str
    note: str
    scenario: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, bool, tuple[str, ...]], ...]


def published_tables(runs: Sequence[tuple[RunSummary, Ranked]]) -> list[PublishedTable]:
    """Return one table per study and scenario among the runs; none for a study that published no figure there."""
    groups: dict[tuple[str, str], list[tuple[RunSummary, Ranked]]] = {}
    for summary, ranked in runs:
        if summary.published is not None:
            key = (_text(summary.published.get("source")), summary.name)
            groups.setdefault(key, []).append((summary, ranked))
    tables = [_table(source, scenario, group) for (source, scenario), group in groups.items()]
    return [table for table in tables if table is not None]


def _table(source: str, scenario: str, group: Sequence[tuple[RunSummary, Ranked]]) -> PublishedTable | None:
    published = group[0][0].published or {}
    listed = published.get("rows")
    theirs = [row for row in listed if isinstance(row, Mapping)][:_MAX_ROWS] if isinstance(listed, list) else []
    keys = [str(key) for key in dict.fromkeys(key for row in theirs for key in row) if key != "gateway"][:_MAX_COLUMNS]
    if not keys:
        return None
    keys.sort(key=lambda key: (0, float(match[1])) if (match := _QUANTILE.fullmatch(key)) else (1, 0.0))
    rows = [
        *((gateway_name(one.gateway), True, tuple(_our(key, one, ranked) for key in keys)) for one, ranked in group),
        *((_text(row.get("gateway")), False, tuple(_their(row.get(key)) for key in keys)) for row in theirs),
    ]
    headings = tuple(_HEADINGS.get(key, _text(key.replace("_", " "))) for key in keys)
    return PublishedTable(source, _text(published.get("note"), 300), scenario, headings, tuple(rows))


def _our(key: str, summary: RunSummary, ranked: Ranked) -> str:
    if match := _QUANTILE.fullmatch(key):
        figure = quantile_ms(ranked.quantile(Fraction(match[1]) / 100))
        return figure if figure == ABSENT else f"{figure} ms"
    return _OURS[key](summary) if key in _OURS else ABSENT


def _their(value: object) -> str:
    if value is None:
        return ABSENT
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _text(value: object, max_chars: int = _MAX_CELL_CHARS) -> str:
    return printable("" if value is None else str(value), max_chars)
