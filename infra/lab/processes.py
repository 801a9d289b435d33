"""Processes of the lab: starting, ending and measuring them, by what /proc says."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.lab.spec import LabError

__all__ = ["Child", "CpuTimes", "ProcessStat", "kill_session", "process_table", "process_trees", "tree_usage"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True)
class ProcessStat:
    """One line of /proc. Times in seconds; `children_*` are of children that have exited and were waited for."""

    pid: int
    state: str
    parent: int
    session: int
    user_s: float
    system_s: float
    children_user_s: float
    children_system_s: float
    rss_bytes: int


@dataclass(frozen=True)
class CpuTimes:
    """CPU used so far and memory held now."""

    user_s: float = 0.0
    system_s: float = 0.0
    rss_bytes: int = 0


def parse_stat(text: str) -> ProcessStat:
    """Read the text of /proc/PID/stat. The name in it may hold blanks and brackets, so fields count from its end."""
    pid, _, rest = text.partition(" (")
    field = rest[rest.rindex(")") + 2 :].split()
    user, system, children_user, children_system = (int(ticks) / _TICKS_PER_S for ticks in field[11:15])
    return ProcessStat(
        pid=int(pid),
        state=field[0],
        parent=int(field[1]),
        session=int(field[3]),
        user_s=user,
        system_s=system,
        children_user_s=children_user,
        children_system_s=children_system,
        rss_bytes=int(field[21]) * _PAGE_BYTES,
    )


def process_table() -> dict[int, ProcessStat]:
    """Return every process that can be seen. One that ends meanwhile is left out."""
    return _read_stats(int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def process_trees(roots: Iterable[int]) -> dict[int, ProcessStat]:
    """Return processes and their descendants, without a look at every other process of a busy machine.

    Falls back to all processes on a kernel that does not list children.
    """
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return process_table()
    table: dict[int, ProcessStat] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        table |= _read_stats([pid])
        waiting += _children(pid)
    return table


def _read_stats(pids: Iterable[int]) -> dict[int, ProcessStat]:
    table = {}
    for pid in pids:
        try:
            table[pid] = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return table


def _children(pid: int) -> list[int]:
    # Listed by the thread that made them.
    try:
        lists = [list_.read_text(encoding="ascii") for list_ in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for children in lists for child in children.split()]


def tree_usage(table: Mapping[int, ProcessStat], root: int) -> CpuTimes:
    """Return what a process, its descendants, and those of them that have exited used. All zero if it is gone."""
    user_s = system_s = 0.0
    rss_bytes = 0
    members = {root}
    for stat in sorted(table.values(), key=lambda stat: stat.pid):
        # Process numbers wrap around, so a child may come before its parent: ask each for its ancestors.
        if _descends(table, stat, members):
            members.add(stat.pid)
            user_s += stat.user_s + stat.children_user_s
            system_s += stat.system_s + stat.children_system_s
            rss_bytes += stat.rss_bytes
    return CpuTimes(user_s, system_s, rss_bytes)


def _descends(table: Mapping[int, ProcessStat], stat: ProcessStat, roots: set[int]) -> bool:
    seen: ProcessStat | None = stat
    while seen is not None and seen.pid > 1:
        if seen.pid in roots:
            return True
        seen = table.get(seen.parent)
    return False


def kill_session(session: int, *, spare: int | None = None) -> None:
    """Kill every process of a session but `spare`, and those that they start meanwhile.

    By session rather than by parent: a worker whose master was killed has another parent, and answers on.
    """
    while True:
        members = [
            stat.pid
            for stat in process_table().values()
            if stat.session == session and stat.pid != spare and stat.state not in "ZX"
        ]
        if not members:
            return
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.002)


class Child:
    """A process that this one started, in the same session; what it prints goes to a file.

    Safe to use from several threads.
    """

    def __init__(
        self, name: str, argv: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._log = log
        self._lock = threading.Lock()
        self._final: CpuTimes | None = None
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=log.parent,
                    env=None if environment is None else {**os.environ, **environment},
                )
        except OSError as error:
            raise LabError(f"{name}: cannot be started: {error.strerror}: {argv[0]}") from error
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return False
        with self._lock:
            if self._final is None:
                _, status, usage = os.wait4(self.pid, 0)
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._final = CpuTimes(usage.ru_utime, usage.ru_stime)
        return True

    def usage(self, table: Mapping[int, ProcessStat]) -> CpuTimes:
        """Return what it has used, its own children included; the whole of its life once it has ended."""
        if self.wait(0):
            assert self._final is not None
            return self._final
        return tree_usage(table, self.pid)

    def ending(self) -> str:
        """Return how it ended, with the last lines that it printed, on one line."""
        code = self._process.returncode
        how = (
            "is running" if code is None else f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        )
        return f"{self.name} {how}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the last lines of its log on one line."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        return " | ".join(line.strip() for line in lines[-6:] if line.strip()) or "its log is empty"

    def close(self) -> None:
        """Let go of an ended process."""
        os.close(self.pidfd)
