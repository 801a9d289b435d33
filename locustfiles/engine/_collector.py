"""Merges what the workers report, second by second, exactly, and hands whole seconds to the run directory's writer.

A second is written once every worker has come past it; what arrives later is written as further rows, which readers
add. Totals for the accounts and for validity are kept here, so nothing needs the files to be read again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.rundir import HDR_SIZE, RunWriter
from locustfiles.engine._filing import Write
from locustfiles.engine._kinds import REPEAT_PREFIX
from locustfiles.engine._outcome import CENSORED, REPLIES


class _Second:
    def __init__(self) -> None:
        self.metrics: dict[str, NDArray[np.int64]] = {}
        self.outcomes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.replicas: Counter[tuple[str, str]] = Counter()
        self.connections = [0, 0, 0, 0, 0]


class Collector:
    """`name` is the request's, for the rows."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._come_to: dict[str, int] = {}
        self._released: set[str] = set()
        self._seconds: dict[int, _Second] = defaultdict(_Second)
        self._slots: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
        self.late_own: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self.totals: Counter[str] = Counter()
        self.due = 0
        self.ended_by_worker: Counter[str] = Counter()
        self.due_by_worker: Counter[str] = Counter()
        self.due_told: dict[str, Counter[int]] = defaultdict(Counter)  # by worker and second, of the latest seconds
        self.failing: dict[int, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, worker: str, report: Mapping[str, Any]) -> None:
        """Take in one report of a worker."""
        for entry in report["seconds"]:
            self._add_second(worker, entry)
        for second, *counts in report["slots"]:
            slots = self._slots[second]
            for place, count in enumerate(counts):
                slots[place] += count
            self.due += counts[0]
            self.due_by_worker[worker] += counts[0]
            self.due_told[worker][second] += counts[0]
            self.late_own[second][0] += counts[0]
            self.late_own[second][1] += counts[2]
        told = self.due_told[worker]
        for second in [second for second in told if second < report["complete"] - 1]:
            del told[second]
        self._come_to[worker] = max(self._come_to.get(worker, 0), report["complete"])

    def _add_second(self, worker: str, entry: Mapping[str, Any]) -> None:
        second = self._seconds[entry["second"]]
        for metric, (indices, counts) in entry["metrics"].items():
            dense = second.metrics.setdefault(metric, np.zeros(HDR_SIZE, dtype=np.int64))
            dense[np.frombuffer(indices, dtype="<i4")] += np.frombuffer(counts, dtype="<i8")
        for outcome, code, count, bytes_in, bytes_out in entry["outcomes"]:
            row = second.outcomes[(outcome, code)]
            for place, amount in enumerate((count, bytes_in, bytes_out)):
                row[place] += amount
            if not code.startswith(REPEAT_PREFIX):
                self.totals[outcome] += count
                self.ended_by_worker[worker] += count
                failing = self.failing[entry["second"]]
                failing[0] += count
                failing[1] += 0 if outcome in ("ok", "http_3xx") else count
        for gateway, backend, count in entry["replicas"]:
            second.replicas[(gateway, backend)] += count
        for place, count in enumerate(entry["connections"]):
            second.connections[place] += count

    def lose(self, worker: str, due: Mapping[int, int], at_second: int, ages: ArrayLike) -> None:
        """A worker is lost. `due`: slots, by second, that had fallen to it since its last report: unsent as far as
        anybody knows.

        What it reported as due and never ended is unfinished. `ages`: the histogram indices of the ages of the unsent
        ones; the unfinished are at least as old as the oldest of them.
        """
        unfinished = self.due_by_worker[worker] - self.ended_by_worker[worker]
        for second, count in due.items():
            self._slots[second][0] += count
            self._slots[second][4] += count
            self.late_own[second][0] += count
        unsent = sum(due.values())
        counted = self._seconds[at_second]
        for outcome, count in (("unsent", unsent), ("unfinished", unfinished)):
            if count:
                counted.outcomes[(outcome, "worker_lost")][0] += count
                self.totals[outcome] += count
        dense = counted.metrics.setdefault("censored", np.zeros(HDR_SIZE, dtype=np.int64))
        indices = np.asarray(ages, dtype=np.int64)
        np.add.at(dense, indices, 1)
        dense[int(indices.max(initial=0))] += unfinished
        self.due += unsent
        self.due_by_worker[worker] += unsent
        self.ended_by_worker[worker] = self.due_by_worker[worker]
        self._released.add(worker)

    def expect(self, workers: Iterable[str]) -> None:
        """These workers report from now on: no second is complete without them."""
        for worker in workers:
            self._come_to.setdefault(worker, 0)

    def release(self, worker: str) -> None:
        """The worker is lost: seconds are complete without it from now on."""
        self._released.add(worker)

    def come_to(self, worker: str) -> int:
        """The first second that the worker has not reported."""
        return self._come_to.get(worker, 0)

    def fails_throughout(self, last_second: int, seconds: int, share: float) -> bool:
        """Whether more than `share` of what ended failed in each of the last `seconds` complete seconds."""
        last_second = min(last_second, self.complete - 1)
        window = [self.failing.get(second, (0, 0)) for second in range(last_second - seconds + 1, last_second + 1)]
        return last_second >= seconds - 1 and all(ended and failed > share * ended for ended, failed in window)

    @property
    def complete(self) -> int:
        """Every second before this one has been reported by all workers."""
        return min((second for worker, second in self._come_to.items() if worker not in self._released), default=0)

    def writes(self, writer: RunWriter, *, everything: bool) -> list[Write]:
        """What is to be written of the seconds that are complete, or of all; they are forgotten here."""
        limit = None if everything else self.complete
        found: list[Write] = []
        for number in sorted(second for second in self._seconds if limit is None or second < limit):
            found += self._writes_of(writer, number, self._seconds.pop(number))
        for number in sorted(second for second in self._slots if limit is None or second < limit):
            found.append((writer.slots, (number, self._name, *self._slots.pop(number))))
        return found

    def _writes_of(self, writer: RunWriter, number: int, second: _Second) -> list[Write]:
        found: list[Write] = []
        for metric, dense in sorted(second.metrics.items()):
            indices = np.flatnonzero(dense)
            if indices.size:
                found.append((writer.histogram, (number, self._name, metric, indices, dense[indices])))
        for (outcome, code), row in sorted(second.outcomes.items()):
            found.append((writer.outcome, (number, self._name, outcome, code, *row)))
        for (gateway, backend), count in sorted(second.replicas.items()):
            found.append((writer.replica, (number, gateway, backend, count)))
        if any(second.connections):
            found.append((writer.connections, (number, *second.connections)))
        return found

    def accounting(self) -> dict[str, int]:
        """Slots due = response + failed + censored, or a slot was lost or counted twice."""
        response = sum(self.totals[outcome] for outcome in REPLIES)
        censored = sum(self.totals[outcome] for outcome in CENSORED)
        failed = sum(self.totals.values()) - response - censored
        return {"due": self.due, "response": response, "failed": failed, "censored": censored}
