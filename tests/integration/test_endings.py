"""Every way in which a run ends: the accounts are in balance, the target is put back, nothing lives on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from locust_runs import Locust, Swarm, in_processes
from locust_runs import swarm_fixture as swarm_fixture
from run_accounts import Account, due_by_hand, restored, settled

from infra.lab import Lab, LabSpec
from infra.targets import State, open_target

pytestmark = pytest.mark.integration

ORIGINAL = State(replicas=2, cors=False, rewrite=None)
CHANGED = State(replicas=3, cors=True, rewrite=None)


class LabPool:
    """Labs that are as they were at their start. A test that leaves one otherwise costs the next test a new one."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._labs: list[Lab] = []
        self._taken: list[Lab] = []

    def take(self) -> Lab:
        free = (lab for lab in self._labs if lab not in self._taken and self._is_as_before(lab))
        lab = next(free, None)
        if lab is None:
            lab = self._stack.enter_context(Lab.start(LabSpec("nginx", replicas=2, max_replicas=3)))
            self._labs.append(lab)
        self._taken.append(lab)
        return lab

    def give_back(self) -> None:
        self._taken.clear()

    @staticmethod
    def _is_as_before(lab: Lab) -> bool:
        return lab.alive and state(lab) == ORIGINAL


@pytest.fixture(scope="module", name="pool")
def pool_fixture() -> Iterator[LabPool]:
    with ExitStack() as stack:
        yield LabPool(stack)


@pytest.fixture(name="take_lab")
def take_lab_fixture(pool: LabPool) -> Iterator[Callable[[], Lab]]:
    yield pool.take
    pool.give_back()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Takes connections and requests, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as sock:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def state(lab: Lab) -> State:
    target = open_target({"kind": "lab", "control": str(lab.control_path)})
    try:
        return target.state()
    finally:
        target.close()


def account(locust: Locust) -> Account:
    assert locust.run_dir is not None
    return settled(locust.run_dir)


def mostly_ok(run: Account) -> bool:
    """nginx closes idle connections at a reload, and a request may meet that on its way."""
    return set(run.ended) <= {"ok", "reset"} and run.ended.get("reset", 0) <= 8


class Changed:
    """A load under which a lab was scaled up and got CORS, for longer than any test waits."""

    def __init__(self, swarm: Swarm, lab: Lab, *words: object, host: str | None = None) -> None:
        plan = swarm.folder / "plan.yaml"
        plan.write_text("churn: [{cors: on}, {scale: 3}, {wait: 10m}]\n")
        self.lab = lab
        self.locust: Locust = swarm.load(
            host or lab.url,
            *("-u", 8, "--rate", "200/s", "--warmup", "0s", "--ca", lab.ca_path),
            *("--churn", plan, "--target", lab.target_path),
            *words,
        )
        assert self.locust.run_dir is not None
        self.run_dir = self.locust.run_dir

    def until_changed(self) -> None:
        self.locust.until(lambda: len(self._applied()) == 2)
        assert state(self.lab) == CHANGED

    def _applied(self) -> set[str]:
        path = self.run_dir / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {event["kind"] for event in map(json.loads, lines) if event.get("applied_s") is not None}

    def ended_well(self) -> Account:
        """It ended by itself or by a signal that lets code run: all is settled, and all is as before."""
        code = self.locust.wait()
        run = settled(self.run_dir)
        assert run.reasons == []
        assert code == run.exit_code
        assert restored(run)
        assert state(self.lab) == ORIGINAL
        assert [event["params"] for event in run.of_kind("restore")] == [
            {"changed": ["cors: on to off", "replicas: 3 to 2"]}
        ]
        assert mostly_ok(run)
        assert sum(map(min, due_by_hand(run).values())) <= run.due <= sum(map(max, due_by_hand(run).values())) + 100
        return run


def test_its_time_run_time_an_interrupt_and_a_termination(take_lab: Callable[[], Lab], swarm: Swarm) -> None:
    timed = Changed(swarm, take_lab(), "--duration", "3s")
    run_time = Changed(swarm, take_lab(), "-t", "5s")
    interrupted = Changed(swarm, take_lab(), "--duration", "5m")
    terminated = Changed(swarm, take_lab())
    interrupted.until_changed()
    interrupted.locust.interrupt()
    terminated.until_changed()
    terminated.locust.signal(signal.SIGTERM)

    run = timed.ended_well()
    assert run.due_by_second == {0: 200, 1: 200, 2: 200}
    assert run.manifest["measured_to_s"] == 3.0
    assert 0 < run_time.ended_well().manifest["measured_to_s"] < 5
    (warning,) = [text for text in interrupted.ended_well().manifest["warnings"] if "before its time" in text]
    assert warning.startswith("the run was stopped ")
    terminated.ended_well()
    assert swarm.nothing_left()


def test_a_master_with_two_workers_interrupted_and_terminated_and_killed(
    take_lab: Callable[[], Lab], swarm: Swarm
) -> None:
    interrupted = Changed(swarm, take_lab(), *in_processes(2))
    terminated = Changed(swarm, take_lab(), *in_processes(2))
    killed = Changed(swarm, take_lab(), *in_processes(2))
    for changed, number in ((interrupted, signal.SIGINT), (terminated, signal.SIGTERM), (killed, signal.SIGKILL)):
        changed.until_changed()
        if number == signal.SIGINT:
            changed.locust.interrupt()
        else:
            changed.locust.signal(number)
    for changed in (interrupted, terminated):
        assert len(changed.ended_well().manifest["workers"]) == 2
    assert killed.locust.wait() == -signal.SIGKILL
    assert swarm.nothing_left()
    assert state(killed.lab) == ORIGINAL


def test_a_second_interrupt_and_a_kill_leave_a_readable_run_and_the_target_is_put_back_all_the_same(
    take_lab: Callable[[], Lab], swarm: Swarm
) -> None:
    with silent_server() as host:
        hasty = Changed(swarm, take_lab(), "--drain", "5m", host=host)
        hasty_pair = Changed(swarm, take_lab(), "--drain", "5m", *in_processes(2), host=host)
        killed = Changed(swarm, take_lab())
        for changed in (hasty, hasty_pair, killed):
            changed.until_changed()
            changed.locust.until_loaded(200)
        killed.locust.signal(signal.SIGKILL)
        for changed in (hasty, hasty_pair):
            changed.locust.interrupt()
            time.sleep(0.5)
            assert changed.locust.running  # it waits for replies
            changed.locust.interrupt()
        assert [changed.locust.wait(10) for changed in (hasty, hasty_pair)] == [130, 130]
        assert killed.locust.wait() == -signal.SIGKILL
        assert swarm.nothing_left()
    for changed in (hasty, hasty_pair, killed):
        assert state(changed.lab) == ORIGINAL
        run = Account.of(changed.run_dir)
        assert (run.manifest["state"], run.manifest["valid"]) == ("running", None)
        assert run.manifest["target"]["original"] == ORIGINAL.to_json()
        assert [event["kind"] for event in run.events] == ["epoch", "cors", "scale"]
        assert run.due >= 200


def test_a_killed_and_a_terminated_worker_make_the_run_invalid_and_their_share_unsent(
    take_lab: Callable[[], Lab], swarm: Swarm
) -> None:
    lab = take_lab()
    words = (*("-u", 8, "--rate", "400/s", "--warmup", "0s", "--duration", "3s"), "--ca", lab.ca_path)
    killed = swarm.load(lab.url, *words, *in_processes(2))
    terminated = swarm.load(lab.url, *words, *in_processes(2))
    for locust, number in ((killed, signal.SIGKILL), (terminated, signal.SIGTERM)):
        locust.until_loaded(400)
        locust.children()[0].send_signal(number)
    for locust in (killed, terminated):
        assert locust.wait() == 4
        assert locust.run_dir is not None
        run = settled(locust.run_dir)
        (reason,) = run.reasons
        assert reason.startswith("lost 1 worker(s) during the run")
        assert len(run.incidents()) == 1
        assert run.due_by_second == {0: 400, 1: 400, 2: 400}
        assert set(run.ended) <= {"ok", "unsent", "unfinished"}
        assert run.ended.get("unfinished", 0) <= 8
        assert 50 <= run.ended["unsent"] <= 500  # half of what was due after the first second, or some more
        assert [row.second for row in run.slots if row.sent + row.unsent > row.due] == []
    assert swarm.nothing_left()


def test_what_breaks_around_a_run_does_not_end_it_and_is_told(take_lab: Callable[[], Lab], swarm: Swarm) -> None:
    gone, helpless, full = (Changed(swarm, take_lab(), "--duration", "4s") for _ in range(3))
    for changed in (gone, helpless, full):
        changed.until_changed()
    os.kill(gone.lab.pid, signal.SIGKILL)
    (helper,) = helpless.locust.children()
    helper.kill()
    size = (full.run_dir / "histograms.hlog").stat().st_size
    resource.prlimit(full.locust.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    full.locust.until(lambda: "The run directory can be written no further: " in full.locust.said)
    resource.prlimit(full.locust.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    codes = [changed.locust.wait() for changed in (gone, helpless, full)]
    the_lab_is_gone(gone, codes[0])
    the_helper_is_gone(helpless, codes[1])
    the_run_directory_is_full(full, codes[2])
    assert swarm.nothing_left()


def the_lab_is_gone(changed: Changed, code: int) -> None:
    run = settled(changed.run_dir)
    assert run.reasons == []
    assert run.due == 800
    assert run.ended["refused"] > 50
    assert set(run.ended) <= {"ok", "refused", "reset", "truncated", "tls", "write"}
    not_put_back(run)
    assert code == (run.exit_code or 1)


def the_helper_is_gone(changed: Changed, code: int) -> None:
    run = settled(changed.run_dir)
    assert run.due == 800
    assert mostly_ok(run)
    not_put_back(run)
    assert code == (run.exit_code or 1)
    assert "Traceback" not in changed.locust.said


def not_put_back(run: Account) -> None:
    assert run.manifest["target"]["restored"] is False
    (told,) = run.incidents()
    assert told.startswith("the target could not be put back: ")
    assert f"ingress-swarm restore {run.path}" in told


def the_run_directory_is_full(changed: Changed, code: int) -> None:
    reason = rf"the recorder failed: {changed.run_dir}/[a-z.]+: File too large"
    assert code == 4
    assert re.search(f"INVALID RUN: {reason}", changed.locust.said)
    sent = re.search(r"^ +Aggregated +(\d+) ", changed.locust.said, re.MULTILINE)
    assert sent is not None
    assert int(sent[1]) == 800  # the load went on to its end
    assert state(changed.lab) == ORIGINAL
    run = Account.of(changed.run_dir)
    assert (run.manifest["state"], run.manifest["valid"]) == ("finished", False)
    assert any(re.fullmatch(reason, told) for told in run.manifest["invalid_reasons"])


def test_too_many_errors_a_silent_server_and_an_interrupt_before_the_load(
    take_lab: Callable[[], Lab], swarm: Swarm
) -> None:
    rule = ("--abort-on", "errors > 50% for 2s")
    failing = Changed(swarm, take_lab(), "--duration", "10m", "--expect-bytes", "1", *rule)
    failing.until_changed()
    # Opening is paced, so that so many connections take some seconds.
    early = swarm.load(failing.lab.http_url, "-u", 3000, "--rate", "100/s")
    early.until(lambda: "Ramping to 3000 users" in early.said)
    early.interrupt()
    with silent_server() as host:
        words = ("-u", 5, "--rate", "100/s", "--warmup", "0s", "--duration", "1s")
        cut = swarm.load(host, *words, "--drain", "500ms")
        patient = swarm.load(host, *words, "--drain", "30s", "--timeout", "100ms")
        assert (early.wait(), cut.wait() in (0, 4), patient.wait() in (0, 4)) == (4, True, True)

    run = account(early)
    assert run.reasons == ["it was stopped before its load began"]
    assert (run.due, run.events) == (0, [])
    run = account(cut)
    assert run.ended == {"unfinished": 5, "unsent": 95}
    assert 1.4 < run.manifest["drained_s"] < 5
    run = account(patient)
    assert run.ended == {"read_timeout": 100}
    assert sum(row.closed_by_us for row in run.connections) >= 100

    assert failing.locust.wait() == 4
    run = account(failing.locust)
    assert run.reasons == ["aborted: more than 50% of slots failed for 2 s (--abort-on)"]
    assert run.incidents() == ["more than 50% of slots failed for 2 s (--abort-on)"]
    assert set(run.ended) <= {"wrong_reply", "reset"}
    assert 2 <= run.manifest["measured_to_s"] < 10
    assert restored(run)
    assert state(failing.lab) == ORIGINAL
    assert swarm.nothing_left()
