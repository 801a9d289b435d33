"""What all plots share: fonts, grid, and the one axis of time that makes them comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.fold import Series
from analysis.latency import Ranked

Figure = dict[str, object]
"""A plotly figure or a part of one: plain data. Colours are tokens, see analysis.report._theme."""

FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": "@muted"}


def range_of_quantiles_ms(ranked: Sequence[Ranked]) -> tuple[float, float]:
    """Range that holds every curve but its fastest hundredth, in ms: one axis for all such plots of a page."""
    known = [one for one in ranked if one.n]
    lows = [one.at(max(1, one.n // 100)).value_us or 0 for one in known]
    highs = [one.at(one.n).value_us or 0 for one in known]
    return _rounded_ms(lows, highs)


def range_over_time_ms(series: Sequence[Series]) -> tuple[float, float]:
    """Range that holds every percentile of every second, in ms, for all runs of a page alike."""
    times = [values for one in series for values in one.response_us.values()]
    known = [values[values > 0] for values in times]
    return _rounded_ms(
        [float(values.min()) for values in known if values.size],
        [float(values.max()) for values in known if values.size],
    )


def _rounded_ms(lows_us: Sequence[float], highs_us: Sequence[float]) -> tuple[float, float]:
    """Widen to quarters of a power of ten."""
    low_us, high_us = max(1.0, min(lows_us, default=1_000) * 0.8), max(2.0, max(highs_us, default=10_000) * 1.1)
    return 10 ** (math.floor(4 * math.log10(low_us)) / 4) / 1000, 10 ** (math.ceil(4 * math.log10(high_us)) / 4) / 1000


def layout(height: int, margin: Mapping[str, int]) -> Figure:
    """Return the frame of a plot: no ground of its own, no legend (the page has one for all)."""
    return {
        "height": height,
        "margin": dict(margin),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": FONT,
        "showlegend": False,
        "hoverlabel": {"bgcolor": "@ground", "bordercolor": "@grid", "font": {**FONT, "color": "@ink"}},
    }


def axis(title: str) -> Figure:
    """Return an axis with a title and a quiet grid."""
    return {
        "title": {"text": title, "font": {**FONT, "size": 12}, "standoff": 6},
        "gridcolor": "@grid",
        "linecolor": "@grid",
        "zeroline": False,
        "tickfont": FONT,
        "automargin": False,
        "fixedrange": False,
    }


def log_ms(range_ms: tuple[float, float]) -> Figure:
    """Return what makes an axis one of milliseconds, logarithmic, labelled at powers of ten."""
    powers = range(-3, 8)
    return {
        "type": "log",
        "range": [math.log10(range_ms[0]), math.log10(range_ms[1])],
        "tickvals": [10.0**power for power in powers],
        "ticktext": [f"{10.0**power:,.{max(0, -power)}f}" for power in powers],
    }


def numbers(values: NDArray[np.floating]) -> list[float | None]:
    """Return values for JSON, which knows no NaN: a gap is null."""
    return [None if math.isnan(value) else round(value, 6) for value in values.tolist()]
