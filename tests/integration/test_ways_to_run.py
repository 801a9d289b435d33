"""Each way to run a load sends and counts every slot: headless, in several processes, from a folder or a list."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import psutil
import pytest
from locust_runs import PROFILE, Locust, Swarm, free_port, in_processes, listening
from locust_runs import swarm_fixture as swarm_fixture
from run_accounts import Account, only, settled

from infra.lab import Lab, LabSpec

pytestmark = pytest.mark.integration

SHORT = ("-u", 10, "--rate", "200/s", "--warmup", "1s", "--duration", "1s")


@pytest.fixture(scope="module", name="lab")
def lab_fixture() -> Iterator[Lab]:
    with Lab.start(LabSpec("direct")) as lab:
        yield lab


def ended_well(locust: Locust, workers: int = 1) -> Account:
    """The whole of SHORT was sent over 10 connections, and nothing else."""
    code = locust.wait()
    assert locust.run_dir is not None
    assert locust.run_dir.exists(), locust.said
    run = settled(locust.run_dir)
    assert run.reasons == []
    assert code == run.exit_code
    assert run.ended == {"ok": 400}
    assert run.due_by_second == {0: 200, 1: 200}
    assert (run.manifest["connections"], len(run.manifest["workers"])) == (10, workers)
    assert sum(row.opened for row in run.connections) == 10
    assert (run.manifest["measured_from_s"], run.manifest["measured_to_s"]) == (1.0, 2.0)
    epoch = only(run.events)
    assert (epoch["kind"], epoch["requested_s"], epoch["workers"]) == ("epoch", 0.0, workers)
    return run


def test_two_processes_and_a_master_with_two_workers(lab: Lab, swarm: Swarm) -> None:
    ca = ("--ca", lab.ca_path)
    port = free_port()
    master = swarm.load(lab.url, *SHORT, *ca, "--master", "--expect-workers", 2, "--master-bind-port", port)
    workers = [swarm.start("--worker", "--master-port", port) for _ in range(2)]
    processes = swarm.load(lab.url, *SHORT, *ca, *in_processes(2))

    assert ended_well(processes, workers=2).metrics["tls"] == 10
    run = ended_well(master, workers=2)
    assert run.manifest["addresses"] == [lab.url.removeprefix("https://")]
    assert sorted(worker["index"] for worker in run.manifest["workers"]) == [0, 1]
    assert {row.role: row.name for row in run.resources if row.role == "master"} == {"master": "0"}
    assert [worker.wait() for worker in workers] == [0, 0]
    assert swarm.nothing_left()


def test_a_folder_a_list_a_profile_elsewhere_and_a_run_that_keeps_nothing(lab: Lab, swarm: Swarm) -> None:
    elsewhere, second = swarm.folder / "mine.py", swarm.folder / "second_rate.py"
    shutil.copy(PROFILE, elsewhere)
    text = PROFILE.read_text()
    second.write_text(text.replace("ConstantRateUser", "SecondRateUser").replace("constant_rate", "second_rate"))
    folder = swarm.load(lab.url, *SHORT, "--ca", lab.ca_path, profile=PROFILE.parent)
    listed = swarm.load(lab.http_url, *SHORT, profile=f"{PROFILE},{second}")
    mine = swarm.start("--headless", "--host", lab.http_url, *SHORT, profile="mine.py")
    nothing = swarm.start("--headless", "--host", lab.http_url, *SHORT, "--no-run-dir", "--only-summary")

    https, http = ended_well(folder), ended_well(listed)
    assert https.manifest["profile"] == "constant_rate"
    assert https.manifest["tls"]["tls_version"] == "TLSv1.3"
    assert http.manifest["profile"] == "constant_rate+second_rate"
    assert http.manifest["tls"] == {}
    code = mine.wait()
    (path,) = (swarm.folder / "runs").iterdir()  # the others keep theirs elsewhere, or none
    run = settled(path)
    assert path.name == run.manifest["run_id"]
    assert "-constant_rate-" in path.name
    assert (run.ended, run.exit_code) == ({"ok": 400}, code)
    assert nothing.wait() in (0, 4)
    assert "400     0(0.00%)" in nothing.said


def test_everything_that_listens_does_so_on_loopback(lab: Lab, swarm: Swarm) -> None:
    web, local_web = free_port(), free_port()
    processes = in_processes(1)
    bind = processes[-1]
    master = swarm.start("--host", lab.http_url, "--web-port", web, *processes)
    local = swarm.start("--host", lab.http_url, "--web-port", local_web)

    def found(locust: Locust) -> set[tuple[str, int]]:
        return listening([psutil.Process(locust.pid), *locust.children()])

    master.until(lambda: len(found(master)) >= 2)
    local.until(lambda: len(found(local)) >= 1)
    assert found(master) == {("127.0.0.1", web), ("127.0.0.1", bind)}
    assert found(local) == {("127.0.0.1", local_web)}
    for locust in (master, local):
        locust.interrupt()
    assert (master.wait(), local.wait()) == (0, 0)
    assert swarm.nothing_left()
