"""Each gateway is changed under load: the events are whole and in order, the replies bear them out, all is put back."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from locust_runs import Locust, Swarm
from locust_runs import swarm_fixture as swarm_fixture
from run_accounts import Account, in_order, only, restored, settled

from infra.lab import Lab, LabSpec
from infra.targets import State, open_target

pytestmark = pytest.mark.integration

GATEWAYS = ("nginx", "haproxy", "envoy", "traefik")
PLAN = """
- scale: 4
- wait: 400ms
- cors: on
- wait: 400ms
- cors: on
- wait: 100ms
- cors: off
- wait: 400ms
- rewrite: {from: /api, to: /v2}
- wait: 400ms
- scale: 1
"""
MAY_FAIL = {"reset", "truncated", "http_5xx", "refused", "write", "tls"}  # what a reload or a scale-down may cost


@pytest.fixture(scope="module", name="labs")
def labs_fixture() -> Iterator[dict[str, Lab]]:
    with ExitStack() as stack:
        yield {
            gateway: stack.enter_context(Lab.start(LabSpec(gateway, replicas=2, max_replicas=4)))
            for gateway in GATEWAYS
        }


def start(swarm: Swarm, lab: Lab) -> Locust:
    plan = swarm.folder / "plan.yaml"
    plan.write_text(PLAN)
    return swarm.load(
        lab.url,
        *("-u", 12, "--rate", "300/s", "--path", "/api/x", "--warmup", "1s", "--ca", lab.ca_path),
        *("--churn", plan, "--target", lab.target_path),
    )


def last_is_applied(locust: Locust) -> bool:
    assert locust.run_dir is not None
    path = locust.run_dir / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else ["{}"]
    last = json.loads(lines[-1]) if lines else {}
    return last.get("params") == {"replicas": 1} and last["applied_s"] is not None


def test_every_gateway_is_changed_and_put_back(labs: dict[str, Lab], swarm: Swarm) -> None:
    started = {gateway: start(swarm, lab) for gateway, lab in labs.items()}
    for locust in started.values():
        locust.until(lambda locust=locust: last_is_applied(locust))  # type: ignore[misc]
    time.sleep(0.5)
    for locust in started.values():
        locust.interrupt()
    codes = {gateway: locust.wait() for gateway, locust in started.items()}
    for gateway, locust in started.items():
        assert locust.run_dir is not None
        run = settled(locust.run_dir)
        assert run.reasons == []
        assert codes[gateway] == run.exit_code
        assert run.due >= 900
        assert set(run.ended) - {"ok"} <= MAY_FAIL
        assert run.ended["ok"] > 0.8 * run.due
        assert run.manifest["gateway"]["name"] == gateway
        assert restored(run)
        the_changes_are_whole(run)
        the_replies_bear_them_out(run)
        the_gateway_was_measured(run, gateway)
        target = open_target({"kind": "lab", "control": str(labs[gateway].control_path)})
        assert target.state() == State(replicas=2, cors=False, rewrite=None)
    assert swarm.nothing_left()


def the_changes_are_whole(run: Account) -> None:
    changes = run.of_kind("scale", "cors", "rewrite")
    rewrite = {"from": "/api", "to": "/v2"}
    assert [(change["kind"], *change["params"].values()) for change in changes] == [
        ("scale", 4),
        ("cors", True),
        ("cors", True),
        ("cors", False),
        ("rewrite", rewrite),
        ("scale", 1),
    ]
    assert [change["noop"] for change in changes] == [False, False, True, False, False, False]
    for change in changes:
        assert (change["error"], change["by"]) == (None, "plan")
        assert in_order(change["requested_s"], change["accepted_s"], change["applied_s"])
        assert change["requested_s"] >= 1.0  # never in the warm-up
    for earlier, later in itertools.pairwise(changes):
        assert later["requested_s"] > earlier["applied_s"]
    up, on, again, off, rewritten, down = changes
    for change in (up, on, off, rewritten):
        assert in_order(change["requested_s"], change["first_new_s"], change["settled_s"])
    for change in (on, off, rewritten):
        if change["last_old_s"] is not None:  # a change may be quicker than the next request
            assert change["settled_s"] >= change["last_old_s"] > change["requested_s"]
    for change in (up, on, rewritten):
        assert change["observed_ms"] == since_requested_ms(change, "first_new_s")
    for change in (off, down):
        assert change["observed_ms"] == since_requested_ms(change, "last_old_s")
    assert up["last_old_s"] is None
    assert (down["first_new_s"], down["settled_s"]) == (None, down["last_old_s"])
    assert [again[key] for key in ("first_new_s", "last_old_s", "settled_s", "observed_ms")] == [None] * 4
    assert only(run.of_kind("restore"))["params"] == {"changed": ["rewrite: /api -> /v2 to off", "replicas: 1 to 2"]}


def since_requested_ms(change: dict[str, Any], moment: str) -> object:
    if change[moment] is None:
        return None
    return pytest.approx((change[moment] - change["requested_s"]) * 1000, abs=0.002)


def the_replies_bear_them_out(run: Account) -> None:
    """New backends answer from the first reply that showed them on, and gone ones no later than the last."""
    up, *_, down = run.of_kind("scale")
    seconds: dict[str, list[int]] = {}
    for row in run.replicas:
        if not row.backend:
            continue  # a gateway that found no backend to ask answers itself
        assert row.gateway_replica == f"{run.manifest['gateway']['name']}-0"
        seconds.setdefault(row.backend, []).append(row.second)
    assert sorted(seconds) == ["1", "2", "3", "4"]
    assert seconds["1"][0] == seconds["2"][0] == 0
    assert min(seconds["3"][0], seconds["4"][0]) == int(up["first_new_s"])
    assert max(seconds["3"][0], seconds["4"][0]) <= int(up["settled_s"])
    if down["last_old_s"] is not None:
        assert max(seconds["2"][-1], seconds["3"][-1], seconds["4"][-1]) == int(down["last_old_s"])
    assert seconds["1"] == list(range(seconds["1"][-1] + 1))
    assert sum(row.count for row in run.replicas) >= run.ended["ok"]


def the_gateway_was_measured(run: Account, gateway: str) -> None:
    rows = [row for row in run.resources if row.role == "gateway"]
    assert {row.name for row in rows} == {f"{gateway}-0"}
    assert len({row.second for row in rows}) >= int(run.manifest["measured_to_s"]) - 1
    assert 0 < sum(row.cpu_user_s + row.cpu_system_s for row in rows) < 10
    assert all(row.rss_bytes > 1_000_000 for row in rows)
    backends = {row.name for row in run.resources if row.role == "backend"}
    assert {"backend-1", "backend-2", "backend-3", "backend-4"} <= backends
    assert {row.role for row in run.resources} == {"gateway", "backend", "worker"}


def test_a_change_that_fails_is_told_and_the_load_goes_on(swarm: Swarm) -> None:
    with Lab.start(LabSpec("direct")) as lab:
        plan = swarm.folder / "plan.yaml"
        plan.write_text("- cors: on\n- wait: 100ms\n- scale: 2\n")
        locust = swarm.load(
            lab.url,
            *("-u", 4, "--rate", "200/s", "--warmup", "0s", "--duration", "1s", "--ca", lab.ca_path),
            *("--churn", plan, "--target", lab.target_path),
        )
        code = locust.wait()
        assert locust.run_dir is not None
        run = settled(locust.run_dir)
        assert (run.ended, run.reasons, code) == ({"ok": 200}, [], run.exit_code)
        for change in run.of_kind("cors", "scale"):
            assert change["error"].startswith("direct: there is no gateway to change")
            assert [change[key] for key in ("accepted_s", "applied_s", "first_new_s", "settled_s")] == [None] * 4
        assert len(run.of_kind("cors", "scale")) == 2
        assert restored(run)
