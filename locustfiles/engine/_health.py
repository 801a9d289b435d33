"""Whether the generator itself can be believed: the rules, as arithmetic on what was counted, and the readings they
need.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic as clock
from typing import Final

LATE_OWN_SHARE: Final = 0.01
LATE_OWN_SHARE_IN_A_SECOND: Final = 0.10
JUDGED_SLOTS_IN_A_SECOND: Final = 10  # below that, one late slot would be a tenth of the second
CLOCK_ERROR_LIMIT_US: Final = 2_000
CPU_SHARE_WARNING: Final = 0.85
GC_PAUSE_WARNING_US: Final = 5_000
STEAL_SHARE_WARNING: Final = 0.02


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run showed of its own generator.

    `late_own` maps second -> (slots due, slots late by our own fault), warm-up left out.
    """

    late_own: Mapping[int, tuple[int, int]]
    local_outcomes: int = 0
    recorder_error: str | None = None
    lost_workers: tuple[str, ...] = ()
    clock_error_us: float = 0.0
    accounts_differ: str | None = None
    aborted: str | None = None
    cpu_share_max: float = 0.0
    gc_pause_max_us: int = 0
    steal_share_max: float = 0.0
    connections_missing: int = 0


def invalid_reasons(evidence: Evidence) -> list[str]:
    """Why the run's numbers must not be used; empty for a valid run. Each says what a user can do."""
    reasons = []
    due = sum(due for due, _ in evidence.late_own.values())
    late = sum(late for _, late in evidence.late_own.values())
    if due and late > LATE_OWN_SHARE * due:
        reasons.append(
            f"{late / due:.1%} of slots were sent over 1 ms late by our own fault (allowed 1 %): "
            "use more worker processes or cores, a lower rate, or a machine with less other work"
        )
    worst = max(
        ((late / due, second) for second, (due, late) in evidence.late_own.items() if due >= JUDGED_SLOTS_IN_A_SECOND),
        default=(0.0, 0),
    )
    if worst[0] > LATE_OWN_SHARE_IN_A_SECOND:
        reasons.append(
            f"in second {worst[1]}: {worst[0]:.0%} of slots were sent over 1 ms late by our own fault (allowed 10 %): "
            "keep other work off the worker's core"
        )
    if evidence.local_outcomes:
        reasons.append(
            f"{evidence.local_outcomes} slots failed for want of our own ports, descriptors or memory: "
            "see outcomes 'local'; run 'ingress-swarm doctor'"
        )
    if evidence.recorder_error:
        reasons.append(f"the recorder failed: {evidence.recorder_error}")
    if evidence.lost_workers:
        reasons.append(
            f"lost {len(evidence.lost_workers)} worker(s) during the run ({', '.join(evidence.lost_workers[:4])}): "
            "their share of the load was not sent"
        )
    if evidence.clock_error_us > CLOCK_ERROR_LIMIT_US:
        reasons.append(
            f"a worker's clock is known to {evidence.clock_error_us / 1000:.1f} ms only (allowed 2 ms): "
            "the network between master and workers is too slow or too busy"
        )
    if evidence.accounts_differ:
        reasons.append(
            f"slots due and outcomes differ: {evidence.accounts_differ}: "
            "this is a fault of ingress-swarm, please report it"
        )
    if evidence.aborted:
        reasons.append(f"aborted: {evidence.aborted}")
    return reasons


def warnings(evidence: Evidence) -> list[str]:
    """What makes the numbers doubtful, not wrong."""
    found = []
    if evidence.cpu_share_max > CPU_SHARE_WARNING:
        found.append(
            f"a worker used {evidence.cpu_share_max:.0%} of its CPU quota (above 85 %, latencies suffer): "
            "use more workers"
        )
    if evidence.gc_pause_max_us > GC_PAUSE_WARNING_US:
        found.append(f"the garbage collector stopped a worker for {evidence.gc_pause_max_us / 1000:.1f} ms")
    if evidence.steal_share_max > STEAL_SHARE_WARNING:
        found.append(f"the hypervisor took up to {evidence.steal_share_max:.0%} of the CPU: use a machine of your own")
    if evidence.connections_missing:
        found.append(f"{evidence.connections_missing} connections were not open when the load began")
    return found


class Meter:
    """Readings of this process and its machine, as differences since the last `take`."""

    def __init__(self) -> None:
        self.cpu_quota = cpu_quota()
        self._last = self._read()
        self._taken_s = clock()

    def take(self) -> dict[str, float | int | None]:
        """Since the last call: seconds gone by, CPU seconds (user, system), throttled and stolen seconds,
        retransmits; and descriptors and memory now.
        """
        now, before = self._read(), self._last
        taken_s, self._last = self._taken_s, now
        self._taken_s = clock()
        changes = {key: _difference(now[key], before[key]) for key in now}
        return {
            **changes,
            "elapsed_s": self._taken_s - taken_s,
            "fds": open_descriptors(),
            "cpu_quota": self.cpu_quota,
            "cores": os.cpu_count(),
            "rss_bytes": _rss_bytes(),
        }

    def _read(self) -> dict[str, float | None]:
        times = os.times()
        return {
            "cpu_user_s": times.user,
            "cpu_system_s": times.system,
            "throttled_s": _throttled_s(),
            "steal_s": _steal_s(),
            "retransmits": _retransmits(),
        }


def cpu_quota() -> float:
    """Cores that this process may use: its affinity, cut by the quota of its cgroup (version 1 or 2)."""
    cores = float(len(os.sched_getaffinity(0)))
    text = _read_text("/sys/fs/cgroup/cpu.max")
    if text is not None:
        quota, period = text.split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    quota_us, period_us = (
        _read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        _read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    )
    if quota_us is None or period_us is None or int(quota_us) <= 0:
        return cores
    return min(cores, int(quota_us) / int(period_us))


def open_descriptors() -> int:
    """Descriptors of this process.

    Linux 6.2 and later tells the number as the folder's size; before, they are counted.
    """
    size = Path("/proc/self/fd").stat().st_size
    return size or len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # Path.iterdir makes an object for each of thousands


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


def _read_text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None  # this kernel does not tell


def _throttled_s() -> float | None:
    for path, unit in (("/sys/fs/cgroup/cpu.stat", 1e-6), ("/sys/fs/cgroup/cpu/cpu.stat", 1e-9)):
        for line in (_read_text(path) or "").splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time"):
                return int(value) * unit
    return None


def _steal_s() -> float | None:
    fields = (_read_text("/proc/stat") or "").split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else None


def _retransmits() -> float | None:
    rows = [line.split() for line in (_read_text("/proc/net/snmp") or "").splitlines() if line.startswith("Tcp:")]
    return float(rows[1][rows[0].index("RetransSegs")]) if len(rows) == 2 else None


def _rss_bytes() -> int:
    return int((_read_text("/proc/self/statm") or "0 0").split()[1]) * os.sysconf("SC_PAGE_SIZE")
