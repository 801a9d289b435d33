"""Quantiles of times, defined once for every figure of this project.

**Quantile.** The q-quantile of n values is their nearest rank: the value at rank ceil(q * n) when sorted, reported as
the highest value of its histogram index, so at most 0.1 % too high and never too low.

**Ranking.** Slots without a complete reply (failed, unfinished, unsent) rank above every reply, and among themselves by
their age: how long they had gone without a reply when they failed or the run ended. Where a rank falls among them the
figure is a bound, printed `> X`: X is the age at that rank, or the largest reply if that is more. Both were surpassed.

**Enough samples.** A quantile with fewer than 10 values ranked beyond it is left out, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from analysis.rundir import HDR_SIZE, hdr_lowest, hdr_value

ENOUGH_BEYOND = 10

QUANTILES: dict[str, Fraction] = {
    "p50": Fraction(50, 100),
    "p75": Fraction(75, 100),
    "p90": Fraction(90, 100),
    "p95": Fraction(95, 100),
    "p99": Fraction(99, 100),
    "p99.9": Fraction(999, 1000),
    "p99.99": Fraction(9999, 10000),
}


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many values fall on each index (see analysis.rundir.hdr_index); `counts` is dense and never changed."""

    counts: NDArray[np.int64]
    n: int = field(init=False)
    _cumulated: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cumulated = np.cumsum(self.counts)
        object.__setattr__(self, "_cumulated", cumulated)
        object.__setattr__(self, "n", int(cumulated[-1]) if cumulated.size else 0)

    @classmethod
    def empty(cls) -> Histogram:
        """Return a histogram of nothing."""
        return cls(np.zeros(HDR_SIZE, dtype=np.int64))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.counts + other.counts)

    def index_at(self, rank: int) -> int:
        """Index of the value at a rank from 1 to n, counted from the smallest."""
        if not 1 <= rank <= self.n:
            raise IndexError(f"rank {rank} of {self.n} values")
        return int(np.searchsorted(self._cumulated, rank))

    def above(self, value_us: int) -> int:
        """How many values lie above a value; those that share its index count as not above."""
        index = int(np.searchsorted(hdr_value(np.arange(self.counts.size)), value_us))
        return self.n - int(self._cumulated[min(index, self.counts.size - 1)])


@dataclass(frozen=True)
class Quantile:
    """One figure: `value_us`, or what it is at least (`is_bound`), or None and `absent` says why."""

    value_us: int | None
    is_bound: bool = False
    absent: str | None = None


@dataclass(frozen=True)
class Latency:
    """Quantiles of one kind of time. `n` slots, of which `lost` got no complete reply and rank above the others."""

    n: int
    lost: int
    quantiles: dict[str, Quantile]
    max: Quantile


@dataclass(frozen=True, eq=False)
class Ranked:
    """Replies and, above them, slots without one by their age."""

    replies: Histogram
    lost: Histogram

    @property
    def n(self) -> int:
        """All slots."""
        return self.replies.n + self.lost.n

    def at(self, rank: int) -> Quantile:
        """Return the figure at a rank from 1 to n."""
        if rank <= self.replies.n:
            return Quantile(int(hdr_value(self.replies.index_at(rank))))
        age_us = int(hdr_lowest(self.lost.index_at(rank - self.replies.n)))
        largest_us = int(hdr_value(self.replies.index_at(self.replies.n))) if self.replies.n else 0
        return Quantile(max(age_us, largest_us), is_bound=True)

    def quantile(self, q: Fraction) -> Quantile:
        """Return the q-quantile, absent where fewer than ENOUGH_BEYOND slots rank beyond it."""
        if not self.n:
            return Quantile(None, absent="no samples")
        rank = max(1, -(-self.n * q.numerator // q.denominator))
        beyond = self.n - rank
        if beyond < ENOUGH_BEYOND:
            return Quantile(None, absent=f"only {beyond} of {self.n} samples lie beyond it, {ENOUGH_BEYOND} are needed")
        return self.at(rank)

    def latency(self) -> Latency:
        """Return all figures of QUANTILES and the maximum."""
        return Latency(
            n=self.n,
            lost=self.lost.n,
            quantiles={name: self.quantile(q) for name, q in QUANTILES.items()},
            max=self.at(self.n) if self.n else Quantile(None, absent="no samples"),
        )
