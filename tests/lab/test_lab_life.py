"""How labs begin, live beside each other, and end: in every way that ends a process."""

from __future__ import annotations

import os
import re
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_replies import backends, eventually, get, session, watchdogs

from infra.lab import Lab, LabError, LabSpec
from infra.lab.processes import process_table
from infra.targets import State, Target, TargetError, load_target, open_target
from infra.targets.lines import LineSocket
from infra.targets.steps import Cors, Scale

pytestmark = pytest.mark.integration


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab = Lab.start(LabSpec(getattr(request, "param", "nginx"), replicas=2))
    yield lab
    lab.close()


def all_gone(number: int, folder: Path) -> bool:
    return not session(number) and not watchdogs(folder) and not folder.exists()


def failure(target: Target) -> str:
    try:
        target.state()
    except TargetError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("lab", ["nginx", "haproxy"], indirect=True)
def test_close_leaves_no_process_and_no_folder(lab: Lab) -> None:
    assert len(session(lab.pid)) == 5  # supervisor, master, worker, two backends
    assert len(watchdogs(lab.folder)) == 1
    lab.close()
    assert session(lab.pid) == []
    assert watchdogs(lab.folder) == []
    assert not lab.folder.exists()
    assert not lab.alive
    lab.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_the_supervisor_ends_everything(lab: Lab, number: signal.Signals) -> None:
    os.kill(lab.pid, number)
    assert eventually(lambda: all_gone(lab.pid, lab.folder))
    assert eventually(lambda: not lab.alive)


def test_an_interrupt_at_the_terminal_does_not_reach_the_lab(lab: Lab) -> None:
    os.kill(lab.pid, signal.SIGINT)
    time.sleep(0.3)
    assert lab.alive
    assert get(lab).status == 200


def test_a_killed_watchdog_ends_the_lab(lab: Lab) -> None:
    os.kill(watchdogs(lab.folder)[0], signal.SIGKILL)
    assert eventually(lambda: all_gone(lab.pid, lab.folder))


def test_a_killed_parent_takes_its_lab_along(tmp_path: Path) -> None:
    code = (
        "from infra.lab import Lab, LabSpec; import time\n"
        "lab = Lab.start(LabSpec('nginx', replicas=2)); print(lab.pid, lab.folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number, folder = parent.stdout.readline().split()
        assert len(session(int(number))) == 5
        parent.kill()
    assert eventually(lambda: all_gone(int(number), Path(folder)))


def test_a_gateway_that_ends_by_itself_is_reported_and_its_worker_ended(lab: Lab) -> None:
    target = open_target(load_target(lab.target_path))
    table = process_table()
    (master,) = [
        pid for pid in session(lab.pid) if any(child.parent == pid for child in table.values()) and pid != lab.pid
    ]
    os.kill(master, signal.SIGKILL)
    assert eventually(lambda: failure(target).startswith("lab: nginx was ended by signal 9"))
    assert get(lab).status == 200  # its worker answers on: ending by parents alone would leave it
    with pytest.raises(TargetError, match="nginx was ended by signal 9"):
        target.apply(Cors(on=True))
    assert "nginx was ended by signal 9" in (lab.folder / "supervisor.log").read_text()
    lab.close()
    assert session(lab.pid) == []


def test_a_backend_that_ends_by_itself_is_reported(lab: Lab) -> None:
    target = open_target(load_target(lab.target_path))
    os.kill(int((lab.folder / "backend-2.pid").read_text()), signal.SIGKILL)
    assert eventually(lambda: failure(target).startswith("lab: backend 2 was ended by signal 9"))


def test_two_labs_side_by_side_do_not_know_of_each_other() -> None:
    with Lab.start(LabSpec("haproxy", replicas=1)) as one, Lab.start(LabSpec("haproxy", replicas=3)) as other:
        open_target(load_target(one.target_path)).apply(Scale(2))
        assert eventually(lambda: backends(one) == {"1", "2"})
        assert backends(other) == {"1", "2", "3"}
        assert get(one).body.splitlines()[0] != get(other).body.splitlines()[0]  # address and port of the backend
        with pytest.raises(ssl.SSLCertVerificationError):
            get(one, url=other.url)  # each has an authority of its own
        one.close()
        assert backends(other) == {"1", "2", "3"}
        # Alike configurations have one digest, whatever ports and folders they have.
        with Lab.start(LabSpec("haproxy", replicas=3)) as third:
            assert third.facts["gateway"] == other.facts["gateway"]
            assert third.facts["addresses"] != other.facts["addresses"]


def test_direct_is_one_backend_that_nothing_can_be_changed_about() -> None:
    with Lab.start(LabSpec("direct", replicas=5)) as lab:
        target = open_target(load_target(lab.target_path))
        reply = get(lab)
        assert (reply.backend, reply.headers["x-swarm-gateway"], reply.tls) == ("1", "direct-0", "TLSv1.3")
        assert get(lab, url=lab.http_url).status == 200
        assert target.state() == State(replicas=1, cors=False, rewrite=None)
        for change in (Scale(2), Cors(on=True)):
            with pytest.raises(TargetError, match="direct: there is no gateway to change"):
                target.apply(change)
        assert target.state() == State(replicas=1, cors=False, rewrite=None)
        (used,) = target.usage()
        assert (used.role, used.name) == ("backend", "backend-1")


def test_plain_http_and_several_workers_when_asked() -> None:
    with Lab.start(LabSpec("nginx", replicas=1, tls=False, workers=2)) as lab:
        assert lab.url == lab.http_url
        assert get(lab).tls is None
        assert lab.facts["addresses"] == [lab.http_url.removeprefix("http://")]
        assert len(session(lab.pid)) == 5  # supervisor, master, two workers, one backend


def test_putting_back_is_one_reload_however_much_differs(lab: Lab) -> None:
    def generation() -> int:
        found = re.search(r"return 200 (\d+);", (lab.folder / "nginx.conf").read_text())
        assert found is not None
        return int(found[1])

    target = open_target(load_target(lab.target_path))
    original = target.state()
    target.apply(Scale(3))
    target.apply(Cors(on=True))
    assert generation() == 3
    assert target.put_back(original) == ["cors: on to off", "replicas: 3 to 2"]
    assert generation() == 4
    assert target.put_back(original) == []
    assert generation() == 4


@pytest.mark.parametrize(
    ("order", "applied_s"),
    [("together", (0.0, 0.4)), ("gateway-first", (0.0, 0.4)), ("backend-first", (0.5, 1.0))],
)
def test_the_order_of_a_scale_down_is_as_asked(order: str, applied_s: tuple[float, float]) -> None:
    with Lab.start(LabSpec("haproxy", replicas=2, order=order)) as lab:
        target = open_target(load_target(lab.target_path))
        start_s = time.monotonic()
        applied = target.apply(Scale(1))
        assert applied_s[0] <= applied.applied_at_s - start_s < applied_s[1]
        assert (time.monotonic() - start_s >= 0.5) == (order != "together")
        assert backends(lab) == {"1"}


def test_every_process_is_pinned_and_the_folder_is_its_owners() -> None:
    cpu = max(os.sched_getaffinity(0))
    with Lab.start(LabSpec("nginx", replicas=1, cpus=(cpu,))) as lab:
        open_target(load_target(lab.target_path)).apply(Scale(2))
        assert {pid: os.sched_getaffinity(pid) for pid in session(lab.pid)} == {pid: {cpu} for pid in session(lab.pid)}
        assert stat.S_IMODE(lab.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(lab.control_path.stat().st_mode) == 0o600
        for key in ("server.key", "server.bundle.pem"):
            assert stat.S_IMODE((lab.folder / key).stat().st_mode) == 0o600


def test_only_loopback_addresses_are_listened_on(lab: Lab) -> None:
    inodes = set()
    for pid in session(lab.pid):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(str(link.readlink()))
            except FileNotFoundError:
                continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert len(listening) == 4  # HTTPS, HTTP, two backends
    assert all(address.partition(":")[0].endswith("7F") for address in listening)  # 127.x.x.x, last byte first


def test_a_folder_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^lab folder: .* is too long .* allowed 73 bytes, choose another$"):
        Lab.start(LabSpec("direct"), folder=tmp_path / ("a" * 60))
    assert list(tmp_path.iterdir()) == []


def test_a_given_folder_is_kept_and_must_be_empty(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    with Lab.start(LabSpec("direct"), folder=folder) as lab:
        assert lab.folder == folder
        with pytest.raises(LabError, match="is not empty"):
            Lab.start(LabSpec("direct"), folder=folder)
    assert (folder / "direct.log").exists()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 3", "nginx: {program} tells no version: it says ''"),
        ("echo nginx version: nginx/1.2.3; echo out of luck; exit 3", "backend 1 exited with code 3: .*out of luck"),
    ],
)
def test_a_program_that_fails_is_told_with_its_last_words(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    tmp_path = tmp_path_factory.mktemp("f")
    program = tmp_path / "nginx"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("INGRESS_SWARM_NGINX", str(program))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(LabError, match=told.format(program=program)) as raised:
        Lab.start(LabSpec("nginx"))
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["nginx"]


BAD_REQUESTS = [
    (b"not json\n", "control: given b'not json', allowed one JSON object on a line"),
    (b"[1]\n", "control: given b'[1]', allowed one JSON object on a line"),
    (b'{"op": "halt"}\n', "op: given 'halt', allowed state, facts, usage, apply or put_back"),
    (b'{"op": "apply"}\n', "change: given None, allowed an object of kind and params"),
    (b'{"op": "apply", "change": {"kind": "scale", "params": {"replicas": 17}}}\n', "allowed 1 to 16"),
    (b'{"op": "apply", "change": {"kind": "scale", "params": {"replicas": 0}}}\n', "scale: "),
    (b'{"op": "apply", "change": {"kind": "scale", "params": {"replicas": "7; drop"}}}\n', "scale: "),
    (b'{"op": "put_back", "state": {"replicas": 99, "cors": false, "rewrite": null}}\n', "allowed 1 to 16"),
    (b'{"op": "put_back", "state": {"replicas": 2}}\n', "state: given {'replicas': 2}"),
    (b'{"op": "apply", "change": {"kind": "cors", "params": {"on": "maybe"}}}\n', "cors: "),
    (
        b'{"op": "apply", "change": {"kind": "rewrite", "params": {"rewrite": {"from": "/a {}", "to": "/b"}}}}\n',
        "rewrite: from: given '/a {}'",
    ),
    (
        b'{"op": "apply", "change": {"kind": "rewrite", "params": {"rewrite": {"from": "/a", "to": "/b\\n}"}}}}\n',
        "rewrite: to: given '/b\\n}'",
    ),
]


def test_bad_requests_get_one_line_and_change_nothing(lab: Lab) -> None:
    before = (lab.folder / "nginx.conf").read_text()
    for request, told in BAD_REQUESTS:
        with LineSocket.connect(lab.control_path, timeout_s=5) as line:
            line._connection.sendall(request)
            answer = line.receive()
        assert answer is not None
        assert answer["ok"] is False
        assert told in str(answer["error"])
        assert "\n" not in str(answer["error"])
    assert (lab.folder / "nginx.conf").read_text() == before
    assert open_target(load_target(lab.target_path)).state() == State(replicas=2, cors=False, rewrite=None)
