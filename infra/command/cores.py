"""Who runs on which core: the load on its own, the gateway with its backends and the master on the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

__all__ = ["BUSY_SHARE", "Cores", "available_cores", "busy_share", "kept_off", "split_cores"]

BUSY_SHARE = 0.2
"""From this share of the CPU on, other work on the machine is likely to spoil the load's timing."""


@dataclass(frozen=True)
class Cores:
    """The cores of the load workers and of everything else. `shared` = they are the same: latencies mean little."""

    worker: tuple[int, ...]
    lab: tuple[int, ...]
    shared: bool


@contextmanager
def kept_off(cores: Cores) -> Iterator[None]:
    """Keep this process off the load worker's core meanwhile; a child that is to use it must be let back on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores.lab)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def available_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def busy_share(look_s: float = 0.5) -> float:
    """Return the share of the CPU in use now; it is others' work if it is asked while nothing of ours runs."""
    return psutil.cpu_percent(look_s) / 100


def split_cores(available: Iterable[int], processes: int = 1) -> Cores:
    """Give each of `processes` load workers a core of its own, while at least one is left for the lab."""
    cores = tuple(sorted(available))
    if len(cores) < 2:
        return Cores(worker=cores, lab=cores, shared=True)
    workers = min(processes, len(cores) - 1)
    return Cores(worker=cores[:workers], lab=cores[workers:], shared=False)
