"""The agent against a real lab: what it answers, and that it puts back at every ending that can run code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from infra.lab import Lab, LabSpec
from infra.targets import Rewrite, State, Target, load_target, open_target

pytestmark = pytest.mark.integration

ORIGINAL = State(replicas=2, cors=False, rewrite=None)
CHANGED = State(replicas=3, cors=False, rewrite=Rewrite("/api", "/v2"))
SCALE_TO_3 = {"kind": "scale", "params": {"replicas": 3}}
REWRITE = {"kind": "rewrite", "params": {"rewrite": {"from": "/api", "to": "/v2"}}}


class AgentProcess:
    def __init__(self, spec: Mapping[str, object]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.targets.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.send(spec)

    def send(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def ask(self, op: str, **more: object) -> dict[str, Any]:
        self.send({"id": 7, "op": op, **more})
        return self.receive()

    def change_everything(self) -> None:
        assert self.ask("state")["state"] == ORIGINAL.to_json()
        assert self.ask("apply", change=SCALE_TO_3)["ok"]
        assert self.ask("apply", change=REWRITE)["state"] == CHANGED.to_json()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start(LabSpec("nginx", replicas=2)) as lab:
        yield lab


@pytest.fixture
def target(lab: Lab) -> Iterator[Target]:
    target = open_target(load_target(lab.target_path))
    yield target
    target.put_back(ORIGINAL)
    target.close()


@pytest.fixture
def agent(lab: Lab) -> Iterator[AgentProcess]:
    agent = AgentProcess(load_target(lab.target_path))
    with agent.process:
        assert agent.ask("facts")["ok"]  # it is up: from now on signals find their handlers
        yield agent
        if agent.process.poll() is None:
            agent.send({"id": 0, "op": "quit"})


def test_it_answers_every_question(agent: AgentProcess, lab: Lab) -> None:
    assert agent.ask("facts") == {"id": 7, "ok": True, "facts": lab.facts}
    assert agent.ask("state") == {"id": 7, "ok": True, "state": ORIGINAL.to_json()}
    assert agent.ask("evidence", change=SCALE_TO_3)["evidence"] == {
        "new": [{"field": "backend", "values": ["3"]}],
        "old": None,
    }
    applied = agent.ask("apply", change=SCALE_TO_3)
    assert set(applied) == {"id", "ok", "accepted_at_s", "applied_at_s", "state", "noop"}
    assert applied["accepted_at_s"] <= applied["applied_at_s"] <= time.monotonic()
    assert applied["noop"] is False
    assert agent.ask("apply", change=SCALE_TO_3)["noop"] is True
    assert [used["name"] for used in agent.ask("usage")["usage"]] == ["nginx-0", "backend-1", "backend-2", "backend-3"]
    assert agent.ask("put_back")["changed"] == ["replicas: 3 to 2"]
    assert agent.ask("put_back")["changed"] == []


def test_it_tells_usage_while_a_change_is_under_way(agent: AgentProcess) -> None:
    agent.send({"id": 1, "op": "apply", "change": REWRITE})  # a reload: 100 ms and more
    agent.send({"id": 2, "op": "usage"})
    assert [agent.receive()["id"] for _ in range(2)] == [2, 1]


@pytest.mark.parametrize(
    ("request_line", "told"),
    [
        ({"op": "dance"}, "op: given 'dance', allowed facts, state, usage, evidence, apply, put_back, keep or quit"),
        ({"op": "apply"}, "change: given None, allowed an object of kind and params"),
        (
            {"op": "apply", "change": {"kind": "scale", "params": {"replicas": 99}}},
            "replicas: given 99, allowed 1 to 16",
        ),
        ({"op": "apply", "change": {"kind": "rewrite", "params": {"rewrite": {"from": "/a;", "to": "/b"}}}}, "rewrite"),
    ],
)
def test_what_it_cannot_do_is_one_line(agent: AgentProcess, request_line: Mapping[str, object], told: str) -> None:
    agent.send({"id": 3, **request_line})
    answer = agent.receive()
    assert (answer["id"], answer["ok"]) == (3, False)
    assert told in answer["error"]
    assert "\n" not in answer["error"]
    assert agent.ask("state")["state"] == ORIGINAL.to_json()


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM", "quit"])
def test_it_puts_back_at_its_end(agent: AgentProcess, target: Target, ending: str) -> None:
    agent.change_everything()
    agent.process.send_signal(signal.SIGINT)  # Ctrl-C goes to the whole terminal group: not for it
    assert agent.ask("state")["state"] == CHANGED.to_json()
    assert agent.process.stdin is not None
    if ending == "end of input":
        agent.process.stdin.close()
    elif ending == "SIGTERM":
        agent.process.terminate()
    else:
        agent.send({"id": 9, "op": "quit"})
    assert agent.process.wait(10) == 0
    assert target.state() == ORIGINAL


def test_it_puts_back_when_its_parent_is_killed(lab: Lab, target: Target) -> None:
    code = f"""
import json, subprocess, sys
agent = subprocess.Popen([sys.executable, "-m", "infra.targets.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    start_new_session=True)
for message in ({dict(load_target(lab.target_path))!r}, {{"id": 1, "op": "apply", "change": {SCALE_TO_3!r}}}):
    agent.stdin.write(json.dumps(message).encode() + b"\\n")
agent.stdin.flush()
print(agent.stdout.readline(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert target.state().replicas == 3
        parent.kill()
    limit_s = time.monotonic() + 10
    while target.state() != ORIGINAL and time.monotonic() < limit_s:
        time.sleep(0.05)
    assert target.state() == ORIGINAL


def test_a_change_under_way_at_its_end_is_finished_and_put_back(agent: AgentProcess, target: Target) -> None:
    agent.send({"id": 1, "op": "apply", "change": REWRITE})
    time.sleep(0.01)  # it has begun; a reload takes longer
    agent.process.terminate()
    assert agent.process.wait(10) == 0
    assert target.state() == ORIGINAL


def test_what_is_kept_is_not_put_back(agent: AgentProcess, target: Target) -> None:
    agent.change_everything()
    assert agent.ask("keep") == {"id": 7, "ok": True}
    agent.send({"id": 9, "op": "quit"})
    assert agent.process.wait(10) == 0
    assert target.state() == CHANGED


def test_without_a_target_every_reply_says_why() -> None:
    agent = AgentProcess({"kind": "lab", "control": "/no/such/lab"})
    with agent.process:
        told = "lab /no/such/lab: No such file or directory: is the lab still up?"
        assert agent.ask("state") == {"id": 7, "ok": False, "error": told}
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.process.wait(10) == 1


def test_a_lab_that_ended_is_told_at_the_end() -> None:
    with Lab.start(LabSpec("nginx", replicas=2)) as lab:
        agent = AgentProcess(load_target(lab.target_path))
        with agent.process:
            assert agent.ask("apply", change=SCALE_TO_3)["ok"]
            lab.close()
            agent.send({"id": 9, "op": "quit"})
            assert agent.process.wait(10) == 1
            assert agent.process.stderr is not None
            said = agent.process.stderr.read().decode()
    assert said.startswith("agent: the target was not put back: lab ")
    assert said.count("\n") == 1
