"""The line of a change in events.jsonl, from what was asked, done and seen."""

from typing import Any

import pytest

from locustfiles.engine._churn import AppliedChange

T0_S = 1000.0


def change(kind: str, params: dict[str, Any], *, new_markers: int, **more: Any) -> AppliedChange:
    return AppliedChange(
        3,
        kind,
        params,
        requested_s=1012.0001,
        accepted_s=1012.0031,
        applied_s=1012.0102,
        new_markers=new_markers,
        **more,
    )


UP = ("scale", {"replicas": 7})
DOWN = ("scale", {"replicas": 5})
REWRITE = {"from": "/api", "to": "/v2"}


@pytest.mark.parametrize(
    ("what", "markers", "seen", "first_new_s", "last_old_s", "settled_s", "observed_ms"),
    [
        # scale up: each new replica must be seen; the first one counts as observed
        (UP, 2, [([12.0334, 12.2], None)], 12.0334, None, 12.2, 33.3),
        (UP, 2, [([12.0334, None], None)], 12.0334, None, None, 33.3),
        (UP, 2, [([None, None], None)], None, None, None, None),
        (UP, 2, [], None, None, None, None),
        (UP, 1, [([12.5], None), ([12.4], None), ([None], None)], 12.4, None, 12.4, 399.9),
        # scale down: nothing new to see, the last reply of a replica that goes counts
        (DOWN, 0, [([], 12.0801), ([], 12.0501), ([], None)], None, 12.0801, 12.0801, 80.0),
        (DOWN, 0, [([], None)], None, None, None, None),
        # something is switched on: the first that shows it is observed, settled with the last that does not
        (("cors", {"on": True}), 1, [([12.0201], 12.0301)], 12.0201, 12.0301, 12.0301, 20.0),
        (("cors", {"on": True}), 1, [([12.0201], 12.0101)], 12.0201, 12.0101, 12.0201, 20.0),
        (("cors", {"on": True}), 1, [([None], 12.0301)], None, 12.0301, None, None),
        (("rewrite", {"rewrite": REWRITE}), 1, [([12.0201], 12.0301)], 12.0201, 12.0301, 12.0301, 20.0),
        # something is switched off: the last that still shows it is observed
        (("cors", {"on": False}), 1, [([12.0201], 12.0301)], 12.0201, 12.0301, 12.0301, 30.0),
        (("cors", {"on": False}), 1, [([12.0201], None)], 12.0201, None, 12.0201, None),
        (("rewrite", {"rewrite": None}), 1, [([12.0201], 12.0301)], 12.0201, 12.0301, 12.0301, 30.0),
    ],
)
def test_what_was_seen_becomes_times(
    what: tuple[str, dict[str, Any]],
    markers: int,
    seen: list[tuple[list[float | None], float | None]],
    first_new_s: float | None,
    last_old_s: float | None,
    settled_s: float | None,
    observed_ms: float | None,
) -> None:
    applied = change(*what, new_markers=markers)
    for first_new, last_old in seen:
        applied.see(first_new, last_old)
    assert applied.event(T0_S) == {
        "id": 3,
        "kind": what[0],
        "params": what[1],
        "by": "plan",
        "requested_s": 12.0001,
        "accepted_s": 12.0031,
        "applied_s": 12.0102,
        "first_new_s": first_new_s,
        "last_old_s": last_old_s,
        "settled_s": settled_s,
        "observed_ms": observed_ms,
        "noop": False,
        "error": None,
    }


def test_what_did_not_happen_is_null() -> None:
    event = AppliedChange(1, *UP, requested_s=1001.0, by="api", error="nobody applied it").event(T0_S)
    absent = ("accepted_s", "applied_s", "first_new_s", "last_old_s", "settled_s", "observed_ms")
    assert [event[key] for key in absent] == [None] * 6
    assert (event["requested_s"], event["by"], event["error"]) == (1.0, "api", "nobody applied it")


@pytest.mark.parametrize(
    ("what", "markers", "ends"),
    [
        (UP, 2, False),
        (DOWN, 0, True),
        (("cors", {"on": True}), 1, False),
        (("cors", {"on": False}), 1, True),
        (("rewrite", {"rewrite": REWRITE}), 1, False),
        (("rewrite", {"rewrite": None}), 1, True),
    ],
)
def test_which_changes_take_something_away(what: tuple[str, dict[str, Any]], markers: int, ends: bool) -> None:
    assert change(*what, new_markers=markers).ends_something is ends


def test_workers_reports_add_up_to_the_earliest_first_and_the_latest_last() -> None:
    applied = change(*UP, new_markers=2)
    for first_new, last_old in (([13.0, None], 12.5), ([12.7, 14.0], None), ([None, 13.9], 12.4)):
        applied.see(list(first_new), last_old)
    assert applied.first_new == [12.7, 13.9]
    assert applied.last_old == 12.5
