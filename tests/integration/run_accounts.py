"""Reads a run directory and settles its accounts: every slot that was due has one end, wherever it is written."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.rundir import (
    CENSORED,
    REPLIES,
    ConnectionsRow,
    OutcomeRow,
    ReplicaRow,
    ResourceRow,
    RunReader,
    SlotsRow,
)

# What a busy machine may do to a run: the only reasons that a test may meet without having asked for one.
_BUSY = re.compile(r"late by our own fault|a worker's clock is known to")
_NEVER_SENT = ("dns", "unreachable", "refused", "connect_timeout", "tls")


@dataclass(frozen=True)
class Account:
    """One run directory, read whole."""

    path: Path
    manifest: dict[str, Any]
    slots: list[SlotsRow]
    outcomes: list[OutcomeRow]
    connections: list[ConnectionsRow]
    replicas: list[ReplicaRow]
    resources: list[ResourceRow]
    events: list[dict[str, Any]]
    metrics: Counter[str]

    @classmethod
    def of(cls, path: Path) -> Account:
        reader = RunReader(path)
        metrics: Counter[str] = Counter()
        for interval in reader.histograms():
            metrics[interval.metric] += int(interval.counts.sum())
        return cls(
            path,
            reader.manifest,
            list(reader.rows(SlotsRow)),
            list(reader.rows(OutcomeRow)),
            list(reader.rows(ConnectionsRow)),
            list(reader.rows(ReplicaRow)),
            list(reader.rows(ResourceRow)),
            reader.events(),
            metrics,
        )

    @property
    def due(self) -> int:
        return sum(row.due for row in self.slots)

    @property
    def due_by_second(self) -> dict[int, int]:
        due: Counter[int] = Counter()
        for row in self.slots:
            due[row.second] += row.due
        return dict(due)

    @property
    def ended(self) -> dict[str, int]:
        """How many slots ended in each way; attempts that were repeated are no ends."""
        ended: Counter[str] = Counter()
        for row in self.outcomes:
            if not row.code.startswith("repeat:"):
                ended[row.outcome] += row.count
        return dict(ended)

    @property
    def reasons(self) -> list[str]:
        """Why the run is invalid, apart from what a busy machine did to it."""
        return [reason for reason in self.manifest["invalid_reasons"] if not _BUSY.search(reason)]

    @property
    def exit_code(self) -> int:
        """What the process must have said at its end."""
        return 4 if self.manifest["invalid_reasons"] else 0

    def of_kind(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] in kinds]

    def incidents(self) -> list[str]:
        return [event["text"] for event in self.of_kind("incident")]


def settled(path: Path) -> Account:
    """A finished run whose accounts are in balance: slots due = ends = histograms = what the manifest says."""
    run = Account.of(path)
    ended = run.ended
    response = sum(ended.get(outcome, 0) for outcome in REPLIES)
    censored = sum(ended.get(outcome, 0) for outcome in CENSORED)
    failed = sum(ended.values()) - response - censored
    assert run.manifest["state"] == "finished"
    assert run.due == sum(ended.values())
    assert run.manifest["accounting"] == {
        "due": run.due,
        "response": response,
        "failed": failed,
        "censored": censored,
    }
    assert [run.metrics[name] for name in ("response", "failed", "censored")] == [response, failed, censored]
    assert run.metrics["service"] == response
    unsent = sum(row.unsent for row in run.slots)
    never_sent = sum(ended.get(outcome, 0) for outcome in _NEVER_SENT)
    assert sum(row.sent for row in run.slots) + unsent + never_sent == run.due
    assert unsent == ended.get("unsent", 0)
    assert run.manifest["valid"] is (not run.manifest["invalid_reasons"])
    return run


def due_by_hand(run: Account) -> dict[int, set[int]]:
    """What must have fallen due in each second, from the epochs' lines and the moment of the end alone.

    Times in a run directory are told to the microsecond, so for a second in which an epoch ends there may be two
    answers.
    """
    epochs = run.of_kind("epoch")
    ends_s = [*(epoch["requested_s"] for epoch in epochs[1:]), run.manifest["measured_to_s"]]
    due: dict[int, set[int]] = {}
    for epoch, end_s in zip(epochs, ends_s, strict=True):
        begin_s, rate_per_s = epoch["requested_s"], epoch["rate_per_s"]
        for second in range(math.floor(begin_s), math.ceil(end_s)):
            first = math.ceil(max(0.0, second - begin_s) * rate_per_s)
            stretch_s = min(end_s, second + 1) - begin_s
            counts = {math.ceil((stretch_s + error_s) * rate_per_s) - first for error_s in (-2e-6, 0.0, 2e-6)}
            due[second] = {count + before for count in counts for before in due.get(second, {0})}
    return due


def in_order(*moments_s: float | None) -> bool:
    """Whether all these moments are known, and none comes before the one before it."""
    known = [moment_s for moment_s in moments_s if moment_s is not None]
    return len(known) == len(moments_s) and known == sorted(known)


def restored(run: Account) -> bool:
    return run.manifest["target"]["restored"] is True


def only(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    (one,) = found
    return one
