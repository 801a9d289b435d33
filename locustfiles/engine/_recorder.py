"""What one process records: a row of numbers per slot, folded in batches into exact counts per second.

The pump appends rows and does nothing else; `fold` runs while no slot is due. A sample belongs to the second in which
its slot ended, a sent slot to the second of its intended start.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable
from time import monotonic as clock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.rundir import HDR_HIGHEST_US, HDR_SIZE, hdr_index
from locustfiles.engine._kinds import Kinds
from locustfiles.engine._outcome import NEVER_SENT
from locustfiles.engine._watch import Watcher

COLUMNS: Final = 6  # intended start, connection free since, sent, ended (seconds, monotonic), kind, bytes received
LATE_S: Final = 0.001

Counts = NDArray[np.int64]


class _Second:
    """Counts of one second."""

    __slots__ = ("bytes_in", "clipped", "connections", "counts", "metrics")

    def __init__(self) -> None:
        self.metrics: dict[str, Counts] = {}
        self.counts: dict[int, int] = defaultdict(int)
        self.bytes_in: dict[int, int] = defaultdict(int)
        self.connections = [0, 0, 0, 0, 0]
        self.clipped = 0

    def absorb(self, other: "_Second") -> None:
        """Add the openings of another second; nothing else has happened before the load begins."""
        for metric, counts in other.metrics.items():
            self.metrics[metric] = self.metrics[metric] + counts if metric in self.metrics else counts
        self.connections = [mine + theirs for mine, theirs in zip(self.connections, other.connections, strict=True)]

    def add(self, metric: str, values_us: NDArray[np.float64]) -> None:
        if values_us.size:
            self.clipped += int((values_us > HDR_HIGHEST_US).sum())
            counts = np.bincount(hdr_index(values_us.astype(np.int64)), minlength=HDR_SIZE)
            if metric in self.metrics:
                self.metrics[metric] += counts
            else:
                self.metrics[metric] = counts


class Recorder:
    """`rows` is the pump's to extend by COLUMNS numbers a slot.

    `on_fold` gets each folded batch (Locust's statistics live from it).
    """

    OPENED, RESUMED, PEER_CLOSED_IDLE, PEER_CLOSED_BUSY, CLOSED_BY_US = range(5)

    def __init__(
        self, kinds: Kinds, request_size: int, on_fold: Callable[[NDArray[np.float64]], None] | None = None
    ) -> None:
        self.kinds = kinds
        self.rows = array("d")
        self.watcher = Watcher(kinds)
        self.t0_s = 0.0
        self._request_size = request_size
        self._on_fold = on_fold
        self._openings = array("d")
        self._seconds: dict[int, _Second] = defaultdict(_Second)
        self._slots: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # sent, late_own, late_peer, unsent

    def begin(self, t0_s: float) -> None:
        """The load begins at `t0_s`: seconds count from there. Connections opened before are of second -1."""
        early = [self._seconds.pop(second) for second in list(self._seconds)]
        self.t0_s = t0_s
        for counted in early:
            self._seconds[-1].absorb(counted)

    def opening(self, end_s: float, connect_s: float, tls_s: float) -> None:
        """A connection was opened: connect and TLS times in seconds, `tls_s` NaN without TLS."""
        self._openings.extend((end_s, connect_s, tls_s))

    def connection(self, at_s: float, column: int) -> None:
        """Count a connection's event in one of the columns of connections.csv."""
        self._seconds[int((at_s - self.t0_s) // 1)].connections[column] += 1

    def censored(self, outcome_kind: int, at_s: float, intended_s: NDArray[np.float64], *, sent: bool) -> None:
        """Slots that have no end at `at_s`: their age is recorded, and they count as unfinished (sent) or unsent."""
        second = self._seconds[int((at_s - self.t0_s) // 1)]
        second.add("censored", self._to_us(at_s - intended_s))
        second.counts[outcome_kind] += len(intended_s)
        starts, counts = np.unique(np.floor(intended_s - self.t0_s).astype(np.int64), return_counts=True)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self._slots[start][0 if sent else 3] += count

    def fold(self) -> None:
        """Turn the rows so far into counts."""
        if self._openings:
            self._fold_openings()
        if not self.rows:
            return
        table = np.array(self.rows).reshape(-1, COLUMNS)
        del self.rows[:]
        intended_s, free_s, sent_s, end_s, kind, size = table.T
        kinds = kind.astype(np.int64)
        seconds = np.floor(end_s - self.t0_s).astype(np.int64)
        response_us, service_us = self._to_us(end_s - intended_s), self._to_us(end_s - sent_s)
        repeats = self.kinds.are_repeats()[kinds]
        replies = self.kinds.are_replies()[kinds] & ~repeats
        failures = ~replies & ~repeats
        for second in np.unique(seconds).tolist():
            here = seconds == second
            counts = self._seconds[second]
            done = here & replies
            counts.add("response", response_us[done])
            counts.add("service", service_us[done])
            counts.add("failed", response_us[here & failures])
            amounts = np.bincount(kinds[here])
            sizes = np.bincount(kinds[here], weights=size[here])
            for number in np.flatnonzero(amounts).tolist():
                counts.counts[number] += int(amounts[number])
                counts.bytes_in[number] += int(sizes[number])
        self._fold_slots(intended_s, free_s, sent_s, ~repeats)
        self.watcher.see(kinds, end_s)
        if self._on_fold is not None:
            self._on_fold(table)

    def _fold_slots(
        self,
        intended_s: NDArray[np.float64],
        free_s: NDArray[np.float64],
        sent_s: NDArray[np.float64],
        final: NDArray[np.bool_],
    ) -> None:
        sent = ~np.isnan(sent_s) & final
        if not sent.any():
            return
        late = sent & (sent_s - intended_s > LATE_S)
        # The connection was free, or had long been, and yet we were late: our own fault. Otherwise it was still busy
        # with the peer.
        own = late & (sent_s - np.maximum(intended_s, free_s) > LATE_S)
        starts = np.floor(intended_s - self.t0_s).astype(np.int64)
        for start in np.unique(starts[sent]).tolist():
            here = starts == start
            slots = self._slots[start]
            own_here = int((own & here).sum())
            slots[0] += int((sent & here).sum())
            slots[1] += own_here
            slots[2] += int((late & here).sum()) - own_here

    def _fold_openings(self) -> None:
        table = np.array(self._openings).reshape(-1, 3)
        del self._openings[:]
        seconds = np.floor(table[:, 0] - self.t0_s).astype(np.int64)
        for second in np.unique(seconds).tolist():
            here = table[seconds == second]
            self._seconds[second].add("connect", self._to_us(here[:, 1]))
            self._seconds[second].add("tls", self._to_us(here[~np.isnan(here[:, 2]), 2]))
            self._seconds[second].connections[self.OPENED] += len(here)

    @staticmethod
    def _to_us(values_s: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.rint(values_s * 1e6)

    def take(self, before_second: int | None, due: dict[int, int]) -> dict[str, Any]:
        """Hand over what is complete before `before_second` (None: everything), as plain values for the wire.

        `due`: slots that fell due, by second of their intended start.
        """
        self.fold()
        ready = [second for second in sorted(self._seconds) if before_second is None or second < before_second]
        slots = {second: [count, 0, 0, 0, 0] for second, count in due.items()}
        for second in list(self._slots):
            # A second is told as due and as sent in the same report, so that what a lost worker told always adds up.
            if before_second is None or second < before_second:
                slots.setdefault(second, [0, 0, 0, 0, 0])[1:] = self._slots.pop(second)
        taken = {second: self._seconds.pop(second) for second in ready}
        return {
            "seconds": [self._plain(number, second) for number, second in taken.items()],
            "slots": [[second, *counts] for second, counts in sorted(slots.items())],
            "seen": self.watcher.findings(self.t0_s, clock()),
            "clipped": sum(second.clipped for second in taken.values()),
        }

    def _plain(self, number: int, second: _Second) -> dict[str, Any]:
        metrics = {}
        for metric, counts in second.metrics.items():
            indices = np.flatnonzero(counts)
            metrics[metric] = [indices.astype("<i4").tobytes(), counts[indices].astype("<i8").tobytes()]
        outcomes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        replicas: dict[tuple[str, str], int] = defaultdict(int)
        for kind_number, count in second.counts.items():
            kind = self.kinds.list[kind_number]
            row = outcomes[(kind.outcome, kind.code)]
            row[0] += count
            row[1] += second.bytes_in[kind_number]
            if kind.outcome not in NEVER_SENT:
                row[2] += count * self._request_size
            if kind.is_reply and (kind.gateway or kind.backend):
                replicas[(kind.gateway, kind.backend)] += count
        return {
            "second": number,
            "metrics": metrics,
            "outcomes": [[outcome, code, *row] for (outcome, code), row in outcomes.items()],
            "replicas": [[gateway, backend, count] for (gateway, backend), count in replicas.items()],
            "connections": second.connections,
        }
