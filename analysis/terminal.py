"""The table at the end of a command: one line a run, at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.changes import ChangeCost
from analysis.summary import RunSummary
from analysis.words import ABSENT, count, gateway_name, ms, printable, quantile_ms, rate

_STYLES = {"valid": "green", "invalid": "bold red", "incomplete": "bold yellow"}
_MAX_CHARS = 16
_MAX_REMARK_CHARS = 400


def render(summaries: Sequence[RunSummary]) -> RenderableType:
    """Return a rich renderable: the table, and below it why runs are not valid and what they warn of."""
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    table.add_column("gateway", no_wrap=True)
    table.add_column("backends", no_wrap=True)
    for heading in ("asked/s", "reached/s", "p50", "p99", "p99.9", "max ms", "errors", "seen"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("run", no_wrap=True)
    for summary in summaries:
        table.add_row(*_cells(summary))
    remarks = [remark for summary in summaries for remark in _remarks(summary)]
    legend = Text(
        f"times in ms from the intended start; > slots without a reply rank there; {ABSENT} fewer than 10 beyond it\n"
        "errors: no complete reply, or 4xx or 5xx; seen: the slowest change, from its request to the replies",
        style="dim",
    )
    return Group(table, legend, *remarks)


def _cells(summary: RunSummary) -> list[Text]:
    response = summary.response
    cells = [
        Text(_short(summary.gateway)),
        Text(summary.variant),
        Text(rate(summary.rate_asked_per_s)),
        Text(rate(summary.rate_reached_per_s)),
        *(Text(quantile_ms(response.quantiles[name])) for name in ("p50", "p99", "p99.9")),
        Text(quantile_ms(response.max)),
        Text(count(summary.errors), style="red" if summary.errors else ""),
        Text(_slowest_seen(summary.changes)),
        Text(summary.verdict, style=_STYLES[summary.verdict]),
    ]
    if summary.mostly_not_2xx:
        cells[-1] = Text("mostly not 2xx", style="bold red")
    return cells


def _slowest_seen(changes: Sequence[ChangeCost]) -> str:
    seen_ms = [cost.change.observed_ms for cost in changes if cost.change.observed_ms is not None]
    return ms(max(seen_ms, default=None)) if changes else ""


def _remarks(summary: RunSummary) -> list[Text]:
    who = f"{_short(summary.gateway)} {summary.variant}"
    groups = (
        (summary.verdict, summary.reasons, _STYLES[summary.verdict]),
        ("warning", summary.warnings, "yellow"),
        ("note", summary.notes, "dim"),
    )
    return [
        Text(f"{kind}: {who}: {printable(remarks[0], _MAX_REMARK_CHARS)}{_more(len(remarks) - 1)}", style=style)
        for kind, remarks, style in groups
        if remarks
    ]


def _more(number: int) -> str:
    """One remark of a kind is enough here; the report has all."""
    return f" (and {number} more in the report)" if number else ""


def _short(gateway: str) -> str:
    return printable(gateway_name(gateway), _MAX_CHARS)
