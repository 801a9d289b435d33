"""The percentile distribution of several runs in one plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape

import numpy as np

from analysis.latency import ENOUGH_BEYOND, Ranked
from analysis.report._axes import Figure, axis, layout, log_ms
from analysis.report._theme import Look
from analysis.words import ms

_POINTS_PER_DECADE = 60
_FAINT = 0.35
_MARKED = ("0.5", "0.9", "0.99", "0.999", "0.9999", "0.99999", "0.999999")


@dataclass(frozen=True)
class Curve:
    """One run in the plot. One that does not count is drawn faint, and says so."""

    name: str
    look: Look
    ranked: Ranked
    counts: bool


def distribution(curves: Sequence[Curve], range_ms: tuple[float, float], decades: int) -> Figure:
    """Response time by percentile, on an axis of 1 / (1 - p): each step to the right is ten times rarer."""
    traces: list[Figure] = []
    for curve in curves:
        name = escape(curve.name if curve.counts else f"{curve.name} (does not count)")
        drawn = _curve(name, curve.look, curve.ranked, range_ms[1])
        traces += [{**trace, "opacity": 1.0 if curve.counts else _FAINT} for trace in drawn]
    labels = ["0", "50", *(f"{100 * (1 - 10**-k):.{max(0, k - 2)}f}" for k in range(1, decades + 1))]
    ticks = [1.0, 2.0, *(10.0**k for k in range(1, decades + 1))]
    return {
        "data": traces,
        "layout": {
            **layout(height=400, margin={"l": 58, "r": 14, "t": 10, "b": 46}),
            "hovermode": "closest",
            "xaxis": {
                **axis("slots answered at least this fast, %"),
                "tickangle": 0,
                "type": "log",
                "range": [0, decades + 0.15],
                "tickvals": ticks,
                "ticktext": labels,
            },
            "yaxis": {**axis("response time, ms"), **log_ms(range_ms)},
        },
    }


def decades_of(ranked: Sequence[Ranked]) -> int:
    """How many nines the longest curve reaches; at least two."""
    most = max((one.n for one in ranked), default=1)
    return max(2, math.ceil(math.log10(max(most / ENOUGH_BEYOND, 10))))


def _curve(name: str, look: Look, ranked: Ranked, top_ms: float) -> list[Figure]:
    if ranked.n <= ENOUGH_BEYOND:
        return []
    end = math.log10(ranked.n / ENOUGH_BEYOND)
    powers = np.linspace(0, end, max(2, math.ceil(end * _POINTS_PER_DECADE)))
    ranks = [max(1, min(ranked.n, round(ranked.n * (1 - 10**-power)))) for power in powers.tolist()]
    points = [(10**power, ranked.at(rank)) for power, rank in zip(powers.tolist(), ranks, strict=True)]
    answered = [(x, (figure.value_us or 0) / 1000) for x, figure in points if not figure.is_bound]
    line = {"color": look.token, "width": 2, "dash": look.dash}
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "meta": look.token,
            "x": [round(x, 6) for x, _ in answered],
            "y": [max(y, 0.001) for _, y in answered],
            "line": line,
            "hoverinfo": "skip",
        },
        _marks(name, look, ranked),
    ]
    if ranked.lost and ranked.lost.n > ENOUGH_BEYOND:
        # Where the slots without a reply begin, the curve leaves the plot: there is no time to show.
        x = ranked.n / ranked.lost.n
        y = answered[-1][1] if answered else top_ms / 2
        share = f"{100 * ranked.lost.n / ranked.n:.2g} % of slots got no reply"
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "meta": look.token,
                "x": [x, x],
                "y": [y, top_ms],
                "line": {**line, "width": 1.5, "dash": "dot"},
                "marker": {"symbol": "x", "size": 8, "color": look.token},
                "text": [share, share],
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            }
        )
    return traces


def _marks(name: str, look: Look, ranked: Ranked) -> Figure:
    figures = [(text, ranked.quantile(Fraction(text))) for text in _MARKED]
    shown = [(text, figure) for text, figure in figures if figure.value_us is not None and not figure.is_bound]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "meta": look.token,
        "x": [float(1 / (1 - Fraction(text))) for text, _ in shown],
        "y": [max((figure.value_us or 0) / 1000, 0.001) for _, figure in shown],
        "text": [f"p{float(Fraction(text) * 100):g}: {ms((figure.value_us or 0) / 1000)} ms" for text, figure in shown],
        "marker": {"symbol": look.marker, "size": 8, "color": look.token, "line": {"width": 1.5, "color": look.token}},
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }
