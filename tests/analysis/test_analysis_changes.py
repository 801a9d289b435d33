"""Changes: their windows, what is attributed to them, and what is not."""

from typing import Any

import numpy as np
import pytest

from analysis.changes import Change, cost_of_changes, kinds_of_change, parse_changes
from analysis.rundir import RunDirError


def event(number: int, requested_s: float, **more: Any) -> dict[str, object]:
    return {"id": number, "kind": "scale", "params": {"replicas": 7}, "requested_s": requested_s} | more


def changes(*events: dict[str, object]) -> list[Change]:
    return parse_changes(events, "events.jsonl")


def errors(*per_second: int) -> dict[str, Any]:
    return {"reset": np.array(per_second, dtype=np.int64)}


def windows(*events: dict[str, object], seconds: int = 60) -> list[tuple[int, int] | None]:
    costs, _ = cost_of_changes(changes(*events), errors(*[0] * seconds), 0, (0, seconds))
    return [cost.window_s for cost in costs]


def test_a_window_ends_five_seconds_after_it_settled() -> None:
    assert windows(event(1, 10.2, settled_s=11.5)) == [(10, 17)]


def test_a_window_ends_with_the_next_change() -> None:
    assert windows(event(1, 10.2, settled_s=11.5), event(2, 12.0, settled_s=12.0)) == [(10, 12), (12, 17)]


def test_without_settling_a_window_ends_with_the_next_change_or_the_run() -> None:
    assert windows(event(1, 10.2), event(2, 30.0), seconds=40) == [(10, 30), (30, 40)]


def test_a_no_op_has_no_window_and_ends_none() -> None:
    assert windows(event(1, 10.0, settled_s=12.0), event(2, 11.0, noop=True)) == [(10, 17), None]


def test_events_are_sorted_by_request_and_only_changes_count() -> None:
    found = changes(event(2, 9.0), event(1, 3.0), {"kind": "epoch", "id": 0}, {"kind": "incident", "text": "x"})
    assert [(change.id, change.requested_s) for change in found] == [("1", 3.0), ("2", 9.0)]


def test_errors_above_the_background_are_attributed() -> None:
    per_second = errors(1, 1, 1, 1, 20, 9, 1, 1, 1, 1, 1, 1)
    costs, background = cost_of_changes(changes(event(1, 4.5, settled_s=4.9)), per_second, 0, (0, 12))
    assert costs[0].window_s == (4, 10)
    assert background == 1.0
    assert costs[0].by_class == {"reset": 33}
    assert costs[0].above_background == 33 - 6


def test_less_than_the_background_is_nothing_not_negative() -> None:
    per_second = errors(5, 5, 5, 5, 0, 0, 0, 0, 0, 0, 5, 5)
    costs, _ = cost_of_changes(changes(event(1, 4.5, settled_s=4.9)), per_second, 0, (0, 12))
    assert costs[0].above_background == 0.0


def test_a_shared_second_belongs_to_the_later_change() -> None:
    per_second = errors(0, 0, 7, 0)
    costs, background = cost_of_changes(changes(event(1, 1.0), event(2, 2.9)), per_second, 0, (0, 4))
    assert [cost.failed for cost in costs] == [0, 7]
    assert background == 0.0


def test_warm_up_is_neither_window_nor_background() -> None:
    per_second = errors(100, 100, 0, 4, 0)
    costs, background = cost_of_changes(changes(event(1, 1.5, settled_s=1.5)), per_second, 0, (2, 5))
    assert costs[0].failed == 4
    assert background is None  # every measured second lies in the window
    assert costs[0].above_background == 4.0


def test_seconds_may_start_anywhere() -> None:
    costs, background = cost_of_changes(changes(event(1, 102.0, settled_s=102.0)), errors(2, 2, 9, 0), 100, (100, 104))
    assert (costs[0].failed, background) == (9, 2.0)


def test_replies_with_an_error_status_are_told_apart_from_failures() -> None:
    per_class = {**errors(0, 3), "http_5xx": np.array([0, 5]), "http_4xx": np.array([0, 1])}
    costs, _ = cost_of_changes(changes(event(1, 1.0)), per_class, 0, (0, 2))
    assert (costs[0].failed, costs[0].error_replies) == (3, 6)


def test_kinds_leave_out_no_ops_and_refused_changes() -> None:
    found = changes(
        event(1, 1.0, observed_ms=10.0),
        event(2, 2.0, observed_ms=30.0),
        event(3, 3.0, observed_ms=None),
        event(4, 4.0, noop=True, observed_ms=0.0),
        event(5, 5.0, error="refused"),
        event(7, 5.5, kind="restore"),
        event(6, 6.0, params={"replicas": 5}, observed_ms=7.0),
    )
    costs, _ = cost_of_changes(found, errors(0, 2, 4, 0, 0, 0, 1, 0), 0, (0, 8))
    up, down = kinds_of_change(costs)
    assert (up.label, up.n, up.observed, up.observed_median_ms, up.observed_max_ms) == ("scale to 7", 3, 2, 20.0, 30.0)
    assert (up.errors, up.errors_above_background) == (6, 6.0)
    assert (down.label, down.n, down.errors) == ("scale to 5", 1, 1)


@pytest.mark.parametrize(
    ("kind", "params", "label"),
    [
        ("scale", {"replicas": 7}, "scale to 7"),
        ("cors", {"on": True}, "cors on"),
        ("cors", {"on": False}, "cors off"),
        ("rewrite", {"rewrite": {"from": "/api", "to": "/v2"}}, "rewrite /api to /v2"),
        ("rewrite", {"rewrite": None}, "rewrite off"),
        ("restore", {"changed": ["replicas: 7 to 5"]}, "put back"),
        ("restart", {"what": "gateway"}, "restart what=gateway"),
        ("roll", {"x": "y" * 500}, "roll x=" + "y" * 73),
    ],
)
def test_labels(kind: str, params: dict[str, object], label: str) -> None:
    assert changes({"kind": kind, "params": params, "requested_s": 1.0})[0].label == label


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": 3, "kind": "scale"}, "events.jsonl: event 3: a change without requested_s"),
        (event(3, 1.0, settled_s="soon"), "events.jsonl: event 3: settled_s is 'soon', not a number or null"),
        (event(3, 1.0, settled_s=True), "settled_s is True"),
        (event(3, 1e12), "requested_s is 1000000000000.0"),
    ],
)
def test_malformed_changes(given: dict[str, object], message: str) -> None:
    with pytest.raises(RunDirError, match=message):
        changes(given)
