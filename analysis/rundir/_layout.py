"""Files of a run directory and the row of each: shared by writer and reader, so that they cannot drift apart."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

SCHEMA: Final = 1

MANIFEST: Final = "manifest.json"
HISTOGRAMS: Final = "histograms.hlog"
EVENTS: Final = "events.jsonl"

METRICS: Final = ("response", "service", "connect", "tls", "first_byte", "failed", "censored")

REPLIES: Final = ("ok", "http_3xx", "http_4xx", "http_5xx")
FAILURES: Final = (
    "dns",
    "unreachable",
    "refused",
    "connect_timeout",
    "tls",
    "write",
    "reset",
    "truncated",
    "read_timeout",
    "bad_reply",
    "wrong_reply",
    "local",
)
CENSORED: Final = ("unfinished", "unsent")
OUTCOMES: Final = REPLIES + FAILURES + CENSORED
"""What became of a slot: a complete reply, a failure, or no end by the end of the run."""

MAX_TEXT_CHARS: Final = 256
"""Names, codes and replica ids are cut here: some of them come out of a stranger's reply."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: whole seconds since t0, then the columns of the table."""

    second: int


@dataclass(frozen=True, slots=True)
class SlotsRow(Row):
    """Slots by the second of their intended start."""

    name: str
    due: int
    sent: int
    late_own: int
    late_peer: int
    unsent: int


@dataclass(frozen=True, slots=True)
class OutcomeRow(Row):
    """Ended slots by the second of their end. `code`: status, errno name or TLS alert."""

    name: str
    outcome: str
    code: str
    count: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ConnectionsRow(Row):
    """Connections opened and closed in one second."""

    opened: int
    resumed: int
    peer_closed_idle: int
    peer_closed_busy: int
    closed_by_us: int


@dataclass(frozen=True, slots=True)
class ReplicaRow(Row):
    """Replies of one second by the gateway replica and the backend they name."""

    gateway_replica: str
    backend: str
    count: int


@dataclass(frozen=True, slots=True)
class ResourceRow(Row):
    """CPU time used in this one second and resident memory at its end, of one role."""

    role: str
    name: str
    cpu_user_s: float
    cpu_system_s: float
    rss_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class GeneratorRow(Row):
    """Health of one worker in one second; None where the host does not tell."""

    worker: str
    loop_lag_p99_us: int | None
    loop_lag_max_us: int | None
    cpu_s: float | None
    cpu_quota: float | None
    throttled_s: float | None
    steal_s: float | None
    fds: int | None
    gc_pause_max_us: int | None
    retransmits: int | None
    clipped: int | None


TABLES: Final[dict[str, type[Row]]] = {
    "slots.csv": SlotsRow,
    "outcomes.csv": OutcomeRow,
    "connections.csv": ConnectionsRow,
    "replicas.csv": ReplicaRow,
    "resources.csv": ResourceRow,
    "generator.csv": GeneratorRow,
}


def columns(row: type[Row]) -> tuple[str, ...]:
    """Names of the columns of a table, in the order they stand in the file."""
    return tuple(field.name for field in fields(row))
