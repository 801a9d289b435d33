"""Swarming in Locust's web UI: start, change, stop and start again, with every slot counted."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from locust_runs import Locust, Swarm, free_port, in_processes
from locust_runs import swarm_fixture as swarm_fixture
from run_accounts import Account, due_by_hand, settled

from infra.lab import Lab, LabSpec

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", name="lab")
def lab_fixture() -> Iterator[Lab]:
    with Lab.start(LabSpec("direct")) as lab:
        yield lab


class WebUi:
    """The web UI of one Locust process, used as a browser does."""

    def __init__(self, swarm: Swarm, lab: Lab, *words: object) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        ca = ("--ca", lab.ca_path)
        self.locust: Locust = swarm.start("--host", lab.url, "--web-port", port, *ca, *words)
        self._folder = swarm.folder
        self.locust.until(self._answers)

    def swarm(self, users: int, **form: object) -> dict[str, Any]:
        """The form's start button; during a run, that of "edit"."""
        return self._ask("/swarm", {"user_count": users, "spawn_rate": 1000, **form})

    def stop(self) -> None:
        assert self._ask("/stop", {})["success"]

    def get(self, path: str) -> dict[str, Any]:
        return self._ask(path)

    def requests(self) -> tuple[int, int]:
        """Requests and failures as Locust's own statistics have them."""
        (total,) = (row for row in self.get("/stats/requests")["stats"] if row["name"] == "Aggregated")
        return total["num_requests"], total["num_failures"]

    def run_dirs(self) -> list[Path]:
        return sorted((self._folder / "runs").glob("*"), key=lambda path: path.stat().st_ctime)

    def _answers(self) -> bool:
        try:
            return bool(self.get("/stats/requests"))
        except OSError:
            return False

    def _ask(self, path: str, form: dict[str, object] | None = None) -> dict[str, Any]:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(self._url + path, data, timeout=30) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer


def due_as_by_hand(run: Account) -> None:
    """Exactly so many slots as the epochs say. The end is told a moment after it was decided: it may be some more."""
    by_hand, told = due_by_hand(run), run.due_by_second
    last = max(told)
    assert {second: count for second, count in told.items() if second < last and count not in by_hand[second]} == {}
    assert min(by_hand.get(last, {0})) <= told[last] <= max(by_hand.get(last, {0})) + 200
    assert set(by_hand) <= set(told)


def established(locust: Locust, lab: Lab) -> int:
    """How many connections of the process to the lab stand."""
    port = int(lab.url.rpartition(":")[2])
    found = psutil.Process(locust.pid).net_connections("tcp4")
    return sum(entry.status == psutil.CONN_ESTABLISHED and entry.raddr.port == port for entry in found)


def epochs(run: Account) -> list[tuple[float, int]]:
    return [(epoch["rate_per_s"], epoch["connections"]) for epoch in run.of_kind("epoch")]


def test_a_refused_start_a_start_changes_a_stop_and_another_start(lab: Lab, swarm: Swarm) -> None:
    ui = WebUi(swarm, lab, "--warmup", "1s")
    locust = ui.locust
    ui.swarm(10, rate="many")
    locust.until(lambda: bool(ui.get("/exceptions")["exceptions"]))
    (told,) = ui.get("/exceptions")["exceptions"]
    assert told["msg"].startswith("The test was not started: --rate: given 'many', allowed requests per second above 0")
    locust.until(lambda: ui.get("/stats/requests")["state"] == "stopped")
    assert ui.run_dirs() == []

    assert ui.swarm(10, rate="400/s")["success"]
    first = locust.until_loaded(400)
    changes: list[dict[str, object]] = [{"users": 20, "rate": "200/s"}, {"users": 20, "rate": "500"}, {"users": 5}]
    for number, change in enumerate(changes, start=2):
        ui.swarm(**change)  # type: ignore[arg-type]  # users is the only word that is not free
        locust.until(lambda number=number: f"Epoch {number}:" in locust.said)  # type: ignore[misc]
        time.sleep(1.1)
    open_now = established(locust, lab)
    ui.swarm(5, rate="0")  # a bad change changes nothing
    locust.until(lambda: "the change was not made: --rate: given '0'" in locust.said)
    ui.stop()
    run = settled(first)
    assert epochs(run) == [(400.0, 10), (200.0, 20), (500.0, 20), (500.0, 5)]
    due_as_by_hand(run)
    assert run.ended == {"ok": run.due}
    assert run.reasons == []
    assert [text.partition(":")[0] for text in run.incidents()] == ["the change was not made"]
    assert (run.manifest["rate_per_s"], run.manifest["connections"]) == (500.0, 5)
    assert sum(row.opened for row in run.connections) == 20
    assert open_now == 5
    assert sum(row.closed_by_us for row in run.connections) == 15
    assert ui.requests() == (run.due, 0)

    assert ui.swarm(4, rate="300/s")["success"]
    locust.until(lambda: len(ui.run_dirs()) == 2)
    second = ui.run_dirs()[1]
    locust.until(lambda: (second / "slots.csv").read_text().count("\n") >= 2)
    locust.interrupt()
    code = locust.wait()
    run = settled(second)
    assert epochs(run) == [(300.0, 4)]
    due_as_by_hand(run)
    assert run.ended == {"ok": run.due}
    assert code == run.exit_code
    assert swarm.nothing_left()


def test_two_workers_change_together_and_the_stop_button_loses_nothing(lab: Lab, swarm: Swarm) -> None:
    ui = WebUi(swarm, lab, "--warmup", "0s", *in_processes(2))
    ui.locust.until(lambda: len(ui.get("/stats/requests").get("workers", [])) == 2)
    ui.swarm(10, rate="400/s")
    path = ui.locust.until_loaded(400)
    ui.swarm(16, rate="600/s")
    ui.locust.until(lambda: "Epoch 2:" in ui.locust.said)
    time.sleep(1.1)
    ui.stop()
    run = settled(path)
    assert epochs(run) == [(400.0, 10), (600.0, 16)]
    assert [epoch["workers"] for epoch in run.of_kind("epoch")] == [2, 2]
    due_as_by_hand(run)
    assert run.ended == {"ok": run.due}
    assert run.reasons == []
    ui.locust.until(lambda: ui.requests() == (run.due, 0))  # workers send their statistics after they stopped
    ui.locust.interrupt()
    assert ui.locust.wait() == run.exit_code
    assert swarm.nothing_left()
