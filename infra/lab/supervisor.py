"""The one process behind a lab: `python -m infra.lab.supervisor`, started by `Lab.start`.

It runs in a session of its own with everything it starts, so that a Ctrl-C meant for the load does not reach the lab.
Its standard input is a pipe from its parent: the first line says what to start, and the end of the pipe is the end of
the parent, in whatever way, and ends the lab. Its standard output carries one line: that the lab is up, or why not.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.lab.control import ControlServer
from infra.lab.core import LabCore
from infra.lab.limits import raise_open_files
from infra.lab.processes import kill_session
from infra.lab.spec import LabError, LabSpec

__all__ = ["main"]

_log = logging.getLogger("infra.lab")
_LOOK_EVERY_MS = 200


@dataclass(frozen=True)
class Order:
    """What the parent asks for. `remove`: the folder is the lab's own, and goes with it."""

    spec: LabSpec
    folder: Path
    remove: bool

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Read the first line of standard input."""
        data = json.loads(line)
        return cls(LabSpec.from_json(data["spec"]), Path(data["folder"]), data["remove"] is True)


def main() -> int:
    """Run a lab until the parent is gone or SIGTERM comes; return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if os.getsid(0) != os.getpid():
        # The end of a lab is the end of its session, so it must never be a session with others in it.
        sys.stderr.write("lab supervisor: not in a session of its own: it is started by `ingress-swarm lab up`\n")
        return 2
    line = _first_line()
    if not line:
        return 1
    supervisor = Supervisor(Order.from_line(line))
    try:
        return supervisor.run()
    finally:
        supervisor.close()


class Supervisor:
    """Starts the lab in a thread, and meanwhile and afterwards watches for reasons to end it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        os.umask(0o077)
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.settimeout(0)
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._core: LabCore | None = None
        self._refused: str | None = None
        self._watchdog = self._start_watchdog()

    def run(self) -> int:
        """Return once the lab has to end."""
        self._pin()
        threading.Thread(target=self._boot, name="boot", daemon=True).start()
        poll = select.poll()
        watchdog = os.pidfd_open(self._watchdog.pid)
        for descriptor in (0, self._wake.fileno(), watchdog):
            poll.register(descriptor, select.POLLIN)
        while self._refused is None:
            ready = {descriptor for descriptor, _ in poll.poll(_LOOK_EVERY_MS)}
            if 0 in ready:
                _log.info("the parent is gone")
                return 0
            if self._wake.fileno() in ready:
                _log.info("told to end by a signal")
                return 0
            if watchdog in ready:
                _log.error("the watchdog was killed: without it the lab may outlive its supervisor, so it ends now")
                return 1
            self._look_after_children()
        _log.error("%s", self._refused)
        return 1

    def close(self) -> None:
        """End every process of the lab, and remove its folder."""
        kill_session(os.getsid(0), spare=os.getpid())
        if self._order.remove:
            shutil.rmtree(self._order.folder, ignore_errors=True)
        self._watchdog.kill()
        self._watchdog.wait()

    def _pin(self) -> None:
        """Pin this thread, and with it every thread and process that it starts from now on."""
        if self._order.spec.cpus is not None:
            os.sched_setaffinity(0, self._order.spec.cpus)

    def _boot(self) -> None:
        try:
            answer = self._start()
        except LabError as error:
            answer = {"ok": False, "error": str(error)}
        except Exception as error:  # noqa: BLE001  # told to the parent and logged
            # This thread is the only one that knows: the parent waits for an answer.
            _log.exception("a fault in the lab itself")
            answer = {"ok": False, "error": f"lab: a fault of its own: {error!r}"}
        os.write(1, json.dumps(answer).encode() + b"\n")
        if answer["ok"] is not True:
            self._refused = str(answer["error"])

    def _start(self) -> dict[str, object]:
        spec, folder = self._order.spec, self._order.folder
        core = LabCore(spec, folder, raise_open_files(spec.connections))
        control = folder / "control.sock"
        ControlServer(core, control)
        url = core.addresses["https" if spec.tls else "http"]
        target = {
            "kind": "lab",
            "control": str(control),
            "url": url,
            "ca": str(core.ca),
            "gateway": spec.gateway,
        }
        target_file = folder / "target.yaml"
        target_file.write_text(yaml.safe_dump(target, sort_keys=False), encoding="utf-8")
        self._core = core
        return {
            "ok": True,
            "url": url,
            "http_url": core.addresses["http"],
            "ca": str(core.ca),
            "control": str(control),
            "target": str(target_file),
            "facts": core.facts(),
        }

    def _look_after_children(self) -> None:
        if self._core is None:
            return
        for child in self._core.children:
            if child.wait(0) and child in self._core.children:
                self._core.fail(f"lab: {child.ending()}")

    def _start_watchdog(self) -> subprocess.Popen[bytes]:
        folder = [str(self._order.folder)] if self._order.remove else []
        # Nothing but this process ever holds the other end of its standard input.
        return subprocess.Popen(
            [sys.executable, "-m", "infra.lab.watchdog", str(os.getsid(0)), *folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def _first_line() -> bytes:
    # Byte by byte, so that nothing behind the line is taken from the pipe that is watched afterwards.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
