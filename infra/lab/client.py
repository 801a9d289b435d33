"""A lab from outside: starting its supervisor, and holding the pipe whose end is the end of the lab."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from infra.lab.spec import LabError, LabSpec

__all__ = ["Lab"]

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0
# A Unix socket's path has 107 bytes at most, and the longest here is /haproxy-runtime.sock.4194304.tmp.
_LONGEST_FOLDER_BYTES = 107 - 34


class Lab:
    """A running lab, ended by `close`, by leaving the `with` block, or by the end of this process in any way.

    - `url`: the HTTPS listener (the HTTP listener if the spec says `tls=False`); `http_url`: the HTTP listener.
    - `ca_path`: the certificate to verify it with. It is valid for 127.0.0.1 and localhost.
    - `control_path`: the control socket; `target_path`: a target file that names it.
    - `folder`: configurations and logs. A temporary one, removed at the end, unless one was given to `start`.
    - `facts`: what the manifest says of it: gateway name, version, configuration digest and workers; addresses.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, answer: Mapping[str, object]) -> None:
        self._process = process
        self.folder = folder
        self.url = str(answer["url"])
        self.http_url = str(answer["http_url"])
        self.ca_path = Path(str(answer["ca"]))
        self.control_path = Path(str(answer["control"]))
        self.target_path = Path(str(answer["target"]))
        facts = answer["facts"]
        assert isinstance(facts, dict)
        self.facts: dict[str, object] = facts
        self.gateway_version = str(facts["gateway"]["version"])

    @classmethod
    def start(cls, spec: LabSpec, *, folder: Path | None = None) -> Lab:
        """Start a lab and return once it serves; raise LabError with one line if it does not.

        `folder` must be empty or not exist; it is kept at the end, for its logs.
        """
        if spec.cpus is not None and not set(spec.cpus) <= os.sched_getaffinity(0):
            allowed = ", ".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
            raise LabError(f"cpus: given {', '.join(map(str, spec.cpus))}, allowed {allowed}")
        place = _temporary_folder() if folder is None else _own_folder(folder)
        process = _spawn(place)
        order = {"spec": spec.to_json(), "folder": str(place), "remove": folder is None}
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            return cls(process, place, _await_answer(process, place))
        except BaseException as error:
            _end(process)
            if folder is None:
                shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, BrokenPipeError):
                raise LabError("lab: its supervisor ended before it was told what to start") from error
            raise

    @property
    def pid(self) -> int:
        """The supervisor's process number, which is also the number of the lab's session."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the supervisor still runs. Whether all is well in the lab, the control socket tells."""
        return self._process.poll() is None

    def close(self) -> None:
        """End every process of the lab; its temporary folder is removed. Closing twice does no harm."""
        _end(self._process)

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _temporary_folder() -> Path:
    place = Path(tempfile.gettempdir()).resolve()
    _check_length(place / "swarm-lab-12345678", "TMPDIR")
    return Path(tempfile.mkdtemp(prefix="swarm-lab-", dir=place))


def _check_length(place: Path, name: str) -> None:
    if len(os.fsencode(place)) > _LONGEST_FOLDER_BYTES:
        raise LabError(
            f"{name}: {place} is too long for the sockets in it: allowed {_LONGEST_FOLDER_BYTES} bytes, choose another"
        )


def _own_folder(folder: Path) -> Path:
    place = folder.resolve()
    _check_length(place, "lab folder")
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise LabError(f"lab folder: {folder} is not empty: give one that is, or that does not exist")
        place.chmod(0o700)
    except OSError as error:
        raise LabError(f"lab folder: {folder}: {error.strerror}") from error
    return place


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "infra.lab.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def _await_answer(process: subprocess.Popen[bytes], folder: Path) -> Mapping[str, object]:
    assert process.stdout is not None
    limit_s = time.monotonic() + _START_TIMEOUT_S
    line = b""
    while not line.endswith(b"\n"):
        left_s = limit_s - time.monotonic()
        if not select.select([process.stdout], [], [], max(0.0, left_s))[0]:
            raise LabError(f"lab: not up after {_START_TIMEOUT_S:g} s")
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            words = (folder / "supervisor.log").read_text(errors="replace").strip().splitlines()
            raise LabError(f"lab: its supervisor ended: {words[-1] if words else 'without a word'}")
        line += piece
    answer = json.loads(line)
    if answer["ok"] is not True:
        raise LabError(answer["error"])
    return answer  # type: ignore[no-any-return]  # our own supervisor wrote it


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                # What was still to be written is of no use to a supervisor that has ended.
                continue
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Its watchdog ends the rest.
        process.send_signal(signal.SIGKILL)
        process.wait()
