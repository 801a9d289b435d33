"""Fewer points, same extremes: a plot of an hour must not hide its one bad second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 1_500

Floats = NDArray[np.float64]


def thin(x: Floats, y: Floats, max_points: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """Keep of each stretch its lowest and its highest point (NaN only if it has nothing else), in order of x."""
    if x.size <= max_points:
        return x, y
    stretch = -(-x.size // (max_points // 2))
    keep: list[int] = []
    for start in range(0, x.size, stretch):
        part = y[start : start + stretch]
        if np.isnan(part).all():
            keep.append(start)
        else:
            keep.extend(sorted({start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}))
    return x[keep], y[keep]


def stretch_of(size: int, max_points: int = MAX_POINTS) -> int:
    """Return how many seconds one bar must hold so that at most `max_points` bars are drawn."""
    return max(1, -(-size // max_points))


def sums(values: NDArray[np.int64], stretch: int) -> NDArray[np.int64]:
    """Return sums over each `stretch` values; the last one may hold fewer."""
    if not values.size:
        return values
    result: NDArray[np.int64] = np.add.reduceat(values, np.arange(0, values.size, stretch))
    return result
