"""What `doctor` looks at: one small function per fact about this machine, each with an answer and what to do."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.command.cores import BUSY_SHARE, available_cores, busy_share
from infra.command.limits import files_needed
from infra.lab import LabError
from infra.lab.binaries import PROGRAMS, find_program, program_version

__all__ = ["CHECKS", "Check", "cgroup_cpus", "new_connections_per_s"]

_PUBLISHED_CONNECTIONS = 1000
_TIME_WAIT_S = 60  # Linux fixes it
_STEADY_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


@dataclass(frozen=True)
class Check:
    """The answer to one question: what it is about, whether it is well, what was found, what to do if it is not."""

    about: str
    level: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def python_version() -> list[Check]:
    """Check the interpreter."""
    found = ".".join(map(str, sys.version_info[:3]))
    well = sys.version_info >= (3, 11)
    return [Check("Python", "ok" if well else "fail", found, "" if well else "use Python 3.11 or newer")]


def dependencies() -> list[Check]:
    """Check that every library that the package asks for is installed."""
    missing = []
    for requirement in importlib.metadata.requires("ingress-swarm") or []:
        if "extra ==" not in requirement:
            name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                missing.append(name)
    if missing:
        return [Check("libraries", "fail", f"missing: {', '.join(missing)}", "install ingress-swarm anew")]
    # Locust patches the interpreter when it is imported: that is tried in a process of its own.
    tried = subprocess.run([sys.executable, "-c", "import locust"], capture_output=True, text=True, check=False)
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [Check("libraries", "fail", f"locust cannot be imported: {said}", "install ingress-swarm anew")]
    return [Check("libraries", "ok", f"all installed, locust {importlib.metadata.version('locust')}")]


def programs() -> list[Check]:
    """Check the gateways of the lab; without one of them the others still run."""
    checks = []
    for name in PROGRAMS:
        try:
            checks.append(Check(name, "ok", program_version(name, find_program(name))))
        except LabError as error:
            problem = str(error).removeprefix(f"{name}: ")
            found, _, advice = problem.partition(": ")
            checks.append(Check(name, "fail", found, advice))
    return checks


def file_limit() -> list[Check]:
    """Check whether a lab for the published 1,000 connections may open its files."""
    needed = files_needed(_PUBLISHED_CONNECTIONS, lab=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return [Check("open files", "ok", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")]
    advice = f"1,000 connections in the lab need {needed:,}: as root, ulimit -n {needed}"
    return [Check("open files", "warn", f"up to {hard:,}", advice)]


def processors() -> list[Check]:
    """Check how many cores there are for the load and the gateway, by affinity and by the cgroup's quota."""
    cores = len(available_cores())
    quota = cgroup_cpus()
    found = f"{cores} usable of {os.cpu_count()}" + (f", cgroup quota {quota:g}" if quota is not None else "")
    if cores < 2:
        return [Check("CPUs", "warn", found, "load and gateway share a core: latencies are not comparable")]
    if quota is not None and quota < 2:
        return [Check("CPUs", "warn", found, "the quota throttles the load worker: give at least 2 CPUs")]
    return [Check("CPUs", "ok", found)]


def other_work() -> list[Check]:
    """Check whether the machine is busy with something else."""
    share = busy_share()
    found = f"{share:.0%} of the CPU in use"
    if share > BUSY_SHARE:
        return [Check("other work", "warn", found, "end it, or runs are likely to be invalid")]
    return [Check("other work", "ok", found)]


def ports() -> list[Check]:
    """Check how many new connections a second one address can take: each port rests for a minute after use."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    rate_per_s = new_connections_per_s(low, high)
    found = f"{high - low + 1:,} ports, {rate_per_s:,.0f} new connections/s to one address for ever"
    if high - low + 1 < 20_000:
        return [Check("ports", "warn", found, "sysctl net.ipv4.ip_local_port_range='1024 65535'")]
    return [Check("ports", "ok", found)]


def loopback() -> list[Check]:
    """Check that the addresses of the lab's backends answer: 127.0.1.1 stands for all of them."""
    try:
        with socket.create_server(("127.0.1.1", 0)) as server:
            server.settimeout(2)
            with socket.create_connection(server.getsockname(), timeout=2):
                server.accept()[0].close()
    except OSError as error:
        return [Check("loopback", "fail", f"127.0.1.1: {error}", "bring the interface lo up with 127.0.0.0/8")]
    return [Check("loopback", "ok", "127.0.0.0/8 answers")]


def timer(waits: int = 200) -> list[Check]:
    """Check how late a wait of 1 ms ends: the load is timed by the same high-resolution timers of the kernel."""
    late_us = sorted(_lateness_us(waits))
    middle, high = late_us[len(late_us) // 2], late_us[len(late_us) * 95 // 100]
    found = f"1 ms waits end {middle:.0f} us late at p50, {high:.0f} us at p95"
    if middle > 250:
        return [Check("timer", "warn", found, "requests leave late: is the machine busy, or a throttled virtual one?")]
    return [Check("timer", "ok", found)]


def clock() -> list[Check]:
    """Check what the kernel's clock is read from."""
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    try:
        source = path.read_text().strip()
    except OSError:
        return [Check("clock", "warn", "the kernel does not tell its clock source", "latencies may be coarse")]
    if source in _STEADY_CLOCKS:
        return [Check("clock", "ok", source)]
    return [Check("clock", "warn", source, f"slow to read; steadier are {', '.join(_STEADY_CLOCKS[:3])}")]


CHECKS: Sequence[Callable[[], list[Check]]] = (
    python_version,
    dependencies,
    programs,
    file_limit,
    processors,
    other_work,
    ports,
    loopback,
    timer,
    clock,
)


def new_connections_per_s(low: int, high: int) -> float:
    """Return the connections a second that ports `low` to `high` last for, when each rests in TIME_WAIT for 60 s."""
    return (high - low + 1) / _TIME_WAIT_S


def cgroup_cpus(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> float | None:
    """Return how many CPUs the cgroup's quota gives, the least of our group and those above it; None without a quota.

    `own` is our group's path below `root`, by default as the kernel tells it. Reads version 2, then version 1.
    """
    if own is None:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    group = root / own.strip("/")
    quotas = [_quota(folder) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            quota, period = " ".join(file.read_text() for file in files).split()
            return None if quota in ("max", "-1") else int(quota) / int(period)
    return None


def _lateness_us(waits: int) -> list[float]:
    late = []
    for _ in range(waits):
        due_s = time.monotonic() + 0.001
        time.sleep(0.001)
        late.append((time.monotonic() - due_s) * 1e6)
    return late
