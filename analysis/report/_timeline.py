"""One run over time: percentiles, rate, errors, and every change drawn through all three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from analysis.changes import Change
from analysis.fold import Series
from analysis.report._axes import Figure, axis, layout, log_ms, numbers
from analysis.report._theme import Look, outcome_token
from analysis.report._thin import stretch_of, sums, thin
from analysis.words import OUTCOMES, ms

_MAX_LABELS = 24
_CROWD = 40


def over_time(
    series: Series,
    changes: Sequence[Change],
    window: tuple[int, int],
    look: Look,
    range_ms: tuple[float, float],
    errors_top: float,
) -> Figure:
    """Percentiles, rate and errors of one run over time, with every change drawn through all three."""
    x = series.seconds.astype(np.float64) + 0.5
    stretch = stretch_of(x.size)
    end_s = series.first_second + x.size
    shown = [change for change in changes if not change.noop and change.requested_s <= end_s]
    data = [*_percentile_lines(series, x, look), *_rate_lines(series, x), *_error_bars(series, stretch)]
    if not _classes(series):
        data.append({"type": "bar", "yaxis": "y3", "x": [], "y": []})  # without a trace the axis would not be drawn
    if shown:
        data.append(_change_marks(shown))
    per = "/s" if stretch == 1 else f" / {stretch} s"
    asked = int(series.due.max(initial=1))
    no_errors = [] if _classes(series) else [_note("no errors", 0.5, 0.10)]
    return {
        "data": data,
        "layout": {
            **layout(height=350, margin={"l": 58, "r": 10, "t": 26, "b": 42}),
            "hovermode": "x",
            "barmode": "stack",
            "bargap": 0.1,
            "xaxis": {
                **axis("seconds since the start"),
                "range": [series.first_second, end_s],
                "anchor": "free",
                "position": 0,
            },
            "yaxis": {**axis("ms"), **log_ms(range_ms), "domain": [0.46, 0.97]},
            "yaxis2": {**axis("replies/s"), "range": [0, asked * 1.18], "domain": [0.26, 0.40], "nticks": 3},
            "yaxis3": {**axis(f"errors{per}"), "range": [0, errors_top], "domain": [0.0, 0.20], "nticks": 3},
            "yaxis4": {"domain": [0.97, 1.0], "range": [0, 1], "visible": False, "fixedrange": True},
            "shapes": [
                *_outside(series, window, end_s),
                *(_change_line(change, crowded=len(shown) > _CROWD) for change in shown),
            ],
            "annotations": [*_change_labels(shown), *no_errors],
        },
    }


def _percentile_lines(series: Series, x: NDArray[np.float64], look: Look) -> list[Figure]:
    styles: Mapping[str, Figure] = {
        "p50": {"mode": "lines", "line": {"color": look.token, "width": 2, "shape": "hvh"}},
        "p99": {"mode": "lines", "line": {"color": look.token, "width": 1.5, "dash": "dash", "shape": "hvh"}},
        "max": {"mode": "markers", "marker": {"color": look.token, "size": 4, "symbol": "circle-open"}},
    }
    lines: list[Figure] = []
    for name, style in styles.items():
        seconds, times = thin(x, series.response_us[name] / 1000)
        line: Figure = {"type": "scatter", "name": name, "x": numbers(seconds), "y": numbers(times), **style}
        lines.append(line | {"hovertemplate": "%{y:.3~g} ms<extra>" + name + "</extra>", "connectgaps": False})
    return lines


def _rate_lines(series: Series, x: NDArray[np.float64]) -> list[Figure]:
    shown: Mapping[str, tuple[NDArray[np.int64], Figure]] = {
        "asked": (series.due, {"color": "@muted", "width": 1, "dash": "dot", "shape": "hvh"}),
        "replies": (series.replies, {"color": "@ink", "width": 1.5, "shape": "hvh"}),
    }
    lines: list[Figure] = []
    for name, (counts, line) in shown.items():
        seconds, values = thin(x, counts.astype(np.float64))
        trace: Figure = {"type": "scatter", "mode": "lines", "name": name, "yaxis": "y2", "line": line}
        trace |= {"x": numbers(seconds), "y": numbers(values)}
        lines.append(trace | {"hovertemplate": "%{y:,.0f}/s<extra>" + name + "</extra>"})
    return lines


def _classes(series: Series) -> list[str]:
    return [outcome for outcome, counts in series.by_class.items() if outcome != "ok" and counts.any()]


def _error_bars(series: Series, stretch: int) -> list[Figure]:
    bars: list[Figure] = []
    for outcome in _classes(series):
        counts = sums(series.by_class[outcome], stretch)
        at = np.flatnonzero(counts)
        middle = series.first_second + (at + 0.5) * stretch
        bars.append(
            {"type": "bar", "name": OUTCOMES[outcome], "yaxis": "y3", "x": numbers(middle), "y": counts[at].tolist()}
            | {"width": stretch * 0.86, "marker": {"color": outcome_token(outcome), "line": {"width": 0}}}
            | {"hovertemplate": "%{y:,}<extra>" + OUTCOMES[outcome] + "</extra>"}
        )
    return bars


def errors_top(series: Sequence[Series]) -> float:
    """Upper end of the axis of errors that all runs share."""
    highest = 1
    for one in series:
        stretch = stretch_of(one.due.size)
        stacked = sum((sums(one.by_class[name], stretch) for name in _classes(one)), np.zeros(1, dtype=np.int64))
        highest = max(highest, int(stacked.max(initial=0)))
    return highest * 1.12


def _change_marks(changes: Sequence[Change]) -> Figure:
    def told(change: Change) -> str:
        seen = "never seen in the replies" if change.observed_ms is None else f"seen after {ms(change.observed_ms)} ms"
        failed = f"; refused: {change.error}" if change.error else ""
        return escape(f"{change.label} at {change.requested_s:.2f} s, {seen}{failed}"[:160])

    return {
        "type": "scatter",
        "mode": "markers",
        "name": "change",
        "yaxis": "y4",
        "x": [round(change.requested_s, 3) for change in changes],
        "y": [0.4] * len(changes),
        "text": [told(change) for change in changes],
        "marker": {"symbol": "triangle-down", "size": 8, "color": "@ink"},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _change_line(change: Change, *, crowded: bool) -> Figure:
    line = {"color": "@grid" if crowded else "@change", "width": 1}
    at_s = round(change.requested_s, 3)
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at_s, "x1": at_s, "y0": 0, "y1": 0.98, "line": line} | {
        "layer": "below" if crowded else "above"
    }


def _change_labels(changes: Sequence[Change]) -> list[Figure]:
    """Labels above the lines; where they are too many to read, only the marks tell."""
    if len(changes) > _MAX_LABELS:
        return []
    return [
        {"text": escape(change.label.removeprefix("scale to ")[:14]), "x": round(change.requested_s, 3), "xref": "x"}
        | {"y": 1.0, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"size": 11, "color": "@muted"}}
        for change in changes
    ]


def _outside(series: Series, window: tuple[int, int], end_s: int) -> list[Figure]:
    """Shade warm-up and drain, which are not measured."""
    spans = [(series.first_second, window[0]), (window[1], end_s)]
    return [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 0.97}
        | {"fillcolor": "@shade", "line": {"width": 0}, "layer": "below"}
        for start, end in spans
        if end > start
    ]


def _note(text: str, x: float, y: float) -> Figure:
    return {"text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False} | {
        "font": {"size": 12, "color": "@muted"}
    }
