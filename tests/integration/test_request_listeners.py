"""Locust's own statistics and the listeners of a scripted profile see what the run directory has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from locust_runs import PROFILE, Locust, Swarm, in_processes
from locust_runs import swarm_fixture as swarm_fixture
from run_accounts import Account, settled

from infra.lab import Lab, LabSpec

pytestmark = pytest.mark.integration

SHORT = ("-u", 10, "--rate", "200/s", "--warmup", "1s", "--duration", "1s")
LISTENER = """
import os
from locust import events


@events.request.add_listener
def note(request_type, name, response_time, response_length, exception, **_more):
    with open(f"{folder}/{{os.getpid()}}", "a") as file:
        print(request_type + " " + name, response_time, response_length, exception or "", sep="|", file=file)
"""
LATER = """
from locust import events


@events.test_start.add_listener
def listen(environment, **_more):
    environment.events.request.add_listener(note)
"""


@pytest.fixture(scope="module", name="lab")
def lab_fixture() -> Iterator[Lab]:
    with Lab.start(LabSpec("direct")) as lab:
        yield lab


def ended(locust: Locust) -> Account:
    assert locust.wait() in (0, 4), locust.said
    assert locust.run_dir is not None
    run = settled(locust.run_dir)
    assert run.due == 400
    return run


def noted(folder: Path) -> list[list[str]]:
    return [line.split("|") for path in folder.iterdir() for line in path.read_text().splitlines()]


def test_a_listener_sees_every_request(lab: Lab, swarm: Swarm) -> None:
    text = PROFILE.read_text()
    at_import, at_start = swarm.folder / "at_import.py", swarm.folder / "at_start.py"
    at_import.write_text(text + LISTENER.format(folder="import"))
    at_start.write_text(text + LISTENER.replace("@events.request.add_listener\n", "").format(folder="start") + LATER)
    for folder in ("import", "start"):
        (swarm.folder / folder).mkdir()
    spread = swarm.load(lab.http_url, *SHORT, *in_processes(2), profile=at_import)
    alone = swarm.load(lab.http_url, *SHORT, profile=at_start)
    for locust, folder in ((spread, "import"), (alone, "start")):
        run = ended(locust)
        requests = noted(swarm.folder / folder)
        assert len(requests) == 400
        assert {(name, exception) for name, _, _, exception in requests} == {("GET /", "")}
        assert sum(int(size) for _, _, size, _ in requests) == sum(row.bytes_in for row in run.outcomes)
        assert all(0 < float(milliseconds) < 60_000 for _, milliseconds, _, _ in requests)
    assert alone.said.count("A listener for the request event is registered") == 1


def test_locusts_statistics_have_the_same_counts_with_failures_and_without(lab: Lab, swarm: Swarm) -> None:
    fine = swarm.load(lab.http_url, *SHORT, "--json-file", "fine")
    spread = swarm.load(lab.http_url, *SHORT, *in_processes(2), "--json-file", "spread")
    failing = swarm.load(lab.http_url, *SHORT, "--expect-bytes", "1")
    for name, locust in (("fine", fine), ("spread", spread)):
        run = ended(locust)
        (entry,) = json.loads((swarm.folder / f"{name}.json").read_text())
        assert (entry["method"], entry["name"]) == ("GET", "/")
        assert (entry["num_requests"], entry["num_failures"]) == (400, 0)
        assert sum(entry["response_times"].values()) == 400
        assert entry["total_content_length"] == sum(row.bytes_in for row in run.outcomes)
        assert run.ended == {"ok": 400}
        assert "A listener for the request event is registered" not in locust.said
    assert ended(failing).ended == {"wrong_reply": 400}
    assert re.search(r"^GET + / +400 +400\(100\.00%\)", failing.said, re.MULTILINE)
    assert "SlotFailedError('wrong_reply 200')" in failing.said
