"""The figures of one run, as frozen values. Every renderer starts from here; nothing in here knows how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.changes import ChangeCost, KindOfChange
from analysis.latency import Latency

Verdict = Literal["valid", "invalid", "incomplete"]


@dataclass(frozen=True)
class Accounting:
    """Whether every slot that was due is accounted for, over all seconds of the run, warm-up included.

    `holds` is None for a run without an end, where slots are naturally missing.
    """

    due: int
    response: int
    failed: int
    censored: int
    outcomes: int
    holds: bool | None


@dataclass(frozen=True)
class WrkCounts:
    """wrk's four counts, for comparison with its output; repeated attempts included.

    connect = refused + unreachable + connect_timeout + tls; read = reset + truncated + bad_reply; write = write.
    timeout is an estimate: slots that took over 2 s from their first byte, each once (wrk sweeps over connections).
    """

    connect: int
    read: int
    write: int
    timeout_estimate: int


@dataclass(frozen=True)
class RoleUsage:
    """What one role used over the measured seconds: shares of one core, and the most memory it held at once."""

    cpu_user_share: float
    cpu_system_share: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class RunSummary:
    """All figures of one run. Rates and MB/s are over the whole measured seconds; times and outcomes include the drain.

    `response` ranks failed, unfinished and unsent slots above every reply, `replies` leaves them out, `service` is from
    the first byte sent to the end of the reply. See analysis.latency for what a quantile is. None means not known.
    """

    run_id: str
    name: str
    campaign: str | None
    scenario: str | None
    gateway: str
    gateway_version: str | None
    variant: Literal["static", "dynamic"]
    model: str
    started_utc: str | None
    verdict: Verdict
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    measured_s: int
    connections: int | None
    rate_configured_per_s: float | None
    rate_asked_per_s: float | None
    rate_reached_per_s: float | None
    received_mb_per_s: float | None
    late_own_share: float | None
    response: Latency
    replies: Latency
    service: Latency
    slots: int
    by_outcome: Mapping[str, int]
    by_code: Mapping[tuple[str, str], int]
    repeated: Mapping[str, int]
    wrk: WrkCounts
    gateway_usage: RoleUsage | None
    worker_usage: RoleUsage | None
    changes: tuple[ChangeCost, ...]
    kinds_of_change: tuple[KindOfChange, ...]
    background_errors_per_s: float | None
    accounting: Accounting
    published: Mapping[str, object] | None

    @property
    def failed(self) -> int:
        """Slots without a complete reply: failures, and those that were left unfinished or unsent."""
        return sum(count for outcome, count in self.by_outcome.items() if outcome != "ok" and outcome[:5] != "http_")

    @property
    def error_replies(self) -> int:
        """Complete replies with a 4xx or 5xx status."""
        return self.by_outcome.get("http_4xx", 0) + self.by_outcome.get("http_5xx", 0)

    @property
    def errors(self) -> int:
        """Slots that were errors to the user: failed ones and error replies."""
        return self.failed + self.error_replies

    @property
    def mostly_not_2xx(self) -> bool:
        """Whether fewer than half of the slots got a 2xx reply: then the times are not those of the real service."""
        return self.slots > 0 and 2 * self.by_outcome.get("ok", 0) < self.slots
