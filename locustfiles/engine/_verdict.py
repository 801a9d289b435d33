"""Gathers what the workers say of themselves, for generator.csv and for the verdict on the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locustfiles.engine._health import Evidence


@dataclass(frozen=True, slots=True)
class Rows:
    """A row for generator.csv (as arguments by name) and one for resources.csv."""

    generator: dict[str, Any]
    resource: tuple[int, str, str, float, float, int, str]


@dataclass(slots=True)
class GeneratorRecord:
    """The worst readings of a run, warm-up left out."""

    lost: list[str] = field(default_factory=list)
    connections_missing: int = 0
    _cpu_share_max: float = 0.0
    _gc_pause_max_us: int = 0
    _steal_share_max: float = 0.0

    def add(self, worker: str, second: int, reading: Mapping[str, Any], warmup_s: int) -> Rows:
        """One worker's readings of one second, as rows."""
        elapsed_s = reading["elapsed_s"]
        cpu_s = reading["cpu_user_s"] + reading["cpu_system_s"]
        if second >= warmup_s and elapsed_s >= 0.5:  # a shorter stretch, as at the end, says little
            # Looking for work where there is none is no use of the CPU that could run out.
            used_s = cpu_s - reading["spun_s"]
            self._cpu_share_max = max(self._cpu_share_max, used_s / elapsed_s / reading["cpu_quota"])
            self._gc_pause_max_us = max(self._gc_pause_max_us, reading["gc_pause_max_us"])
            if reading["steal_s"] is not None:
                self._steal_share_max = max(self._steal_share_max, reading["steal_s"] / elapsed_s / reading["cores"])
        row = {
            "second": second,
            "worker": worker,
            "loop_lag_p99_us": reading["loop_lag_p99_us"],
            "loop_lag_max_us": reading["loop_lag_max_us"],
            "cpu_s": round(cpu_s, 4),
            "cpu_quota": reading["cpu_quota"],
            "throttled_s": reading["throttled_s"],
            "steal_s": reading["steal_s"],
            "fds": reading["fds"],
            "gc_pause_max_us": reading["gc_pause_max_us"],
            "retransmits": None if reading["retransmits"] is None else int(reading["retransmits"]),
            "clipped": reading["clipped"],
        }
        resource = (
            second,
            "worker",
            worker,
            reading["cpu_user_s"],
            reading["cpu_system_s"],
            int(reading["rss_bytes"]),
            "os.times",
        )
        return Rows(row, resource)

    def evidence(self, late_own: Mapping[int, tuple[int, int]]) -> Evidence:
        """What the readings say for or against the run."""
        return Evidence(
            late_own=late_own,
            lost_workers=tuple(self.lost),
            cpu_share_max=self._cpu_share_max,
            gc_pause_max_us=self._gc_pause_max_us,
            steal_share_max=self._steal_share_max,
            connections_missing=self.connections_missing,
        )
