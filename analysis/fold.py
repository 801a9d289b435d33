"""One pass over a run directory: what every figure, table and plot is made from.

Memory grows with the seconds of the run, not with its requests.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from analysis.latency import QUANTILES, Histogram, Ranked
from analysis.manifest import Manifest
from analysis.rundir import (
    CENSORED,
    FAILURES,
    HDR_SIZE,
    METRICS,
    REPLIES,
    GeneratorRow,
    Interval,
    OutcomeRow,
    ResourceRow,
    RunReader,
    SlotsRow,
)

Counts = NDArray[np.int64]
Times = NDArray[np.float64]

_OVER_TIME: dict[str, Fraction] = {name: QUANTILES[name] for name in ("p50", "p90", "p99")}
_SLOT_METRICS = ("response", "failed", "censored")
_ROLES = frozenset({"gateway", "backend", "worker", "master"})
_REPEATED = "repeat:"
_MAX_CODES = 1_000
_OTHER_CODES = "(other codes)"


@dataclass(frozen=True, eq=False)
class Series:
    """One value per second from `first_second` on. Times in us, NaN where there were too few samples."""

    first_second: int
    due: Counts
    unsent: Counts
    by_class: Mapping[str, Counts]
    response_us: Mapping[str, Times]
    """p50, p90, p99 and max over all slots that ended in the second."""

    @property
    def seconds(self) -> Counts:
        """The seconds themselves."""
        return np.arange(self.first_second, self.first_second + self.due.size)

    @property
    def replies(self) -> Counts:
        """Complete replies of any status."""
        return sum((self.by_class[name] for name in REPLIES if name in self.by_class), np.zeros_like(self.due))


@dataclass(frozen=True)
class Usage:
    """CPU time of one role over the whole measured seconds, and the most memory its processes held at once."""

    seconds: int
    cpu_user_s: float
    cpu_system_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, eq=False)
class Folded:
    """A run, added up. `measured` = seconds from the end of the warm-up on, the drain included."""

    window: tuple[int, int]
    """First measured second, and the one after the last whole one before the drain."""
    measured: Mapping[str, Histogram]
    ended: Mapping[str, int]
    """Samples of each metric over all seconds."""
    due: int
    """Slots of all seconds, as are `outcomes_all`."""
    outcomes_all: Mapping[str, int]
    outcomes: Mapping[tuple[str, str], int]
    """(outcome, code) of the measured seconds, repeated attempts left out."""
    repeated: Mapping[str, int]
    """Attempts of the measured seconds that were repeated, by outcome."""
    replies_in_window: int
    due_in_window: int
    late_own_in_window: int
    bytes_in_window: int
    series: Series
    usage: Mapping[str, Usage]
    clipped: int
    names: tuple[str, ...]


def fold(reader: RunReader, manifest: Manifest) -> Folded:
    """Read everything once. Raises RunDirError for what is malformed."""
    slots, slot_totals = _fold_slots(reader.rows(SlotsRow))
    outcome_rows = _fold_outcomes(reader.rows(OutcomeRow), manifest.measured_from_s)
    last = max([*slots, *outcome_rows.by_second, manifest.measured_from_s])
    # Without an end on record the last second may be a part of one, so it does not count.
    end_s = last if manifest.measured_to_s is None else math.floor(manifest.measured_to_s)
    window = (manifest.measured_from_s, max(manifest.measured_from_s, min(end_s, last + 1)))
    times = _Times(manifest.measured_from_s)
    for interval in reader.histograms():
        times.add(interval)
    times.close_second()
    usage = _fold_usage(reader.rows(ResourceRow), window)
    in_window = range(*window)
    return Folded(
        window=window,
        measured={metric: Histogram(counts) for metric, counts in times.measured.items()},
        ended=times.ended,
        due=slot_totals.due,
        outcomes_all=outcome_rows.all_seconds,
        outcomes=outcome_rows.measured,
        repeated=outcome_rows.repeated,
        replies_in_window=sum(outcome_rows.replies(second) for second in in_window),
        due_in_window=sum(slots[second][0] for second in in_window if second in slots),
        late_own_in_window=sum(slots[second][2] for second in in_window if second in slots),
        bytes_in_window=sum(outcome_rows.bytes_in[second] for second in in_window),
        series=_series(slots, outcome_rows.by_second, times.over_time),
        usage=usage,
        clipped=sum(row.clipped or 0 for row in reader.rows(GeneratorRow)),
        names=tuple(sorted(slot_totals.names)),
    )


@dataclass
class _SlotTotals:
    due: int
    names: set[str]


def _fold_slots(rows: Iterable[SlotsRow]) -> tuple[dict[int, list[int]], _SlotTotals]:
    """Per second: due, unsent, late_own."""
    by_second: dict[int, list[int]] = {}
    totals = _SlotTotals(0, set())
    for row in rows:
        at = by_second.setdefault(row.second, [0, 0, 0])
        at[0] += row.due
        at[1] += row.unsent
        at[2] += row.late_own
        totals.due += row.due
        if len(totals.names) < _MAX_CODES:
            totals.names.add(row.name)
    return by_second, totals


class _Outcomes:
    """Adds up outcomes.csv."""

    def __init__(self, measured_from_s: int) -> None:
        self._measured_from_s = measured_from_s
        self.by_second: dict[int, Counter[str]] = defaultdict(Counter)
        self.bytes_in: Counter[int] = Counter()
        self.all_seconds: Counter[str] = Counter()
        self.measured: Counter[tuple[str, str]] = Counter()
        self.repeated: Counter[str] = Counter()

    def add(self, row: OutcomeRow) -> None:
        measured = row.second >= self._measured_from_s
        self.bytes_in[row.second] += row.bytes_in
        if row.code.startswith(_REPEATED):
            if measured:
                self.repeated[row.outcome] += row.count
            return
        self.by_second[row.second][row.outcome] += row.count
        self.all_seconds[row.outcome] += row.count
        if measured:
            key = (row.outcome, row.code)
            known = key in self.measured or len(self.measured) < _MAX_CODES
            self.measured[key if known else (row.outcome, _OTHER_CODES)] += row.count

    def replies(self, second: int) -> int:
        if second not in self.by_second:
            return 0
        return sum(self.by_second[second][name] for name in REPLIES)


def _fold_outcomes(rows: Iterable[OutcomeRow], measured_from_s: int) -> _Outcomes:
    outcomes = _Outcomes(measured_from_s)
    for row in rows:
        outcomes.add(row)
    return outcomes


class _Times:
    """Adds up histograms: per metric over the measured seconds, and per second over all slots."""

    def __init__(self, measured_from_s: int) -> None:
        self._measured_from_s = measured_from_s
        self.measured = {metric: np.zeros(HDR_SIZE, dtype=np.int64) for metric in METRICS}
        self.ended = dict.fromkeys(METRICS, 0)
        self.over_time: dict[int, tuple[float, ...]] = {}
        self._second: int | None = None
        self._replies = np.zeros(HDR_SIZE, dtype=np.int64)
        self._lost = np.zeros(HDR_SIZE, dtype=np.int64)

    def add(self, interval: Interval) -> None:
        if interval.second != self._second:
            self.close_second()
            self._second = interval.second
        self.ended[interval.metric] += int(interval.counts.sum())
        if interval.second >= self._measured_from_s:
            self.measured[interval.metric][interval.indices] += interval.counts
        if interval.metric in _SLOT_METRICS:
            into = self._replies if interval.metric == "response" else self._lost
            into[interval.indices] += interval.counts

    def close_second(self) -> None:
        if self._second is None:
            return
        ranked = Ranked(Histogram(self._replies), Histogram(self._lost))
        if ranked.n:
            figures = [*(ranked.quantile(q) for q in _OVER_TIME.values()), ranked.at(ranked.n)]
            self.over_time[self._second] = tuple(
                math.nan if figure.value_us is None else float(figure.value_us) for figure in figures
            )
            self._replies = np.zeros(HDR_SIZE, dtype=np.int64)
            self._lost = np.zeros(HDR_SIZE, dtype=np.int64)
        self._second = None


def _fold_usage(rows: Iterable[ResourceRow], window: tuple[int, int]) -> dict[str, Usage]:
    cpu: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    rss: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        if row.role in _ROLES and window[0] <= row.second < window[1]:
            cpu[row.role][0] += row.cpu_user_s
            cpu[row.role][1] += row.cpu_system_s
            rss[row.role][row.second] += row.rss_bytes
    return {
        role: Usage(len(rss[role]), user_s, system_s, max(rss[role].values()))
        for role, (user_s, system_s) in cpu.items()
    }


def _series(
    slots: Mapping[int, list[int]],
    by_second: Mapping[int, Mapping[str, int]],
    over_time: Mapping[int, tuple[float, ...]],
) -> Series:
    known = [*slots, *by_second, *over_time]
    first, last = (min(known), max(known)) if known else (0, -1)
    size = last - first + 1
    due, unsent = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for second, (slots_due, slots_unsent, _) in slots.items():
        due[second - first] = slots_due
        unsent[second - first] = slots_unsent
    by_class: dict[str, Counts] = {}
    for second, counts in by_second.items():
        for outcome, count in counts.items():
            by_class.setdefault(outcome, np.zeros(size, dtype=np.int64))[second - first] = count
    response_us = {name: np.full(size, math.nan) for name in (*_OVER_TIME, "max")}
    for second, figures in over_time.items():
        for values, figure in zip(response_us.values(), figures, strict=True):
            values[second - first] = figure
    ordered: dict[str, Counts] = {name: by_class[name] for name in (*REPLIES, *FAILURES, *CENSORED) if name in by_class}
    return Series(first, due, unsent, ordered, response_us)
