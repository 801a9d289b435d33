"""When a change took effect, seen from replies."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._watch import Watch, Watcher, matches


def marker(field: str, *values: str) -> dict[str, Any]:
    return {"field": field, "values": list(values)}


OLD = Kind("ok", "200", backend="1", path="/api/x")
NEW = Kind("ok", "200", backend="6", path="/v2/x", cors=True)
OTHER = Kind("ok", "200", backend="7")
BROKEN = Kind("http_5xx", "503", backend="6", cors=True)
FAILED = Kind("reset", "eof")
KINDS = [OLD, NEW, OTHER, BROKEN, FAILED]


def known_kinds() -> Kinds:
    kinds = Kinds()
    for kind in KINDS:
        kinds.number(kind)
    return kinds


def see(watcher: Watcher, *replies: tuple[Kind, float]) -> None:
    kinds, ends_s = zip(*replies, strict=True)
    watcher.see(np.array([KINDS.index(kind) for kind in kinds]), np.array(ends_s))


@pytest.mark.parametrize(
    ("field", "values", "kind", "shows"),
    [
        ("backend", ("6",), NEW, True),
        ("backend", ("6", "7"), OTHER, True),
        ("backend", ("6",), OLD, False),
        ("backend", (), OLD, False),
        ("cors", ("on",), NEW, True),
        ("cors", ("on",), OLD, False),
        ("cors", ("off",), OLD, True),
        ("path_prefix", ("/v2",), NEW, True),
        ("path_prefix", ("/v1", "/api"), OLD, True),
        ("path_prefix", ("/v2",), OLD, False),
        ("backend", ("6",), BROKEN, False),  # a gateway's own error page shows nothing
        ("cors", ("off",), FAILED, False),
        ("cors", ("off",), Kind("wrong_reply", "200"), False),
    ],
)
def test_a_reply_shows_a_marker(field: str, values: tuple[str, ...], kind: Kind, shows: bool) -> None:
    assert matches(marker(field, *values), kind) is shows


def test_the_first_new_and_the_last_old_are_found_in_any_order() -> None:
    watcher = Watcher(known_kinds())
    watcher.add(Watch(3, 100.0, [marker("backend", "6"), marker("backend", "7")], marker("backend", "1")))
    see(watcher, (OLD, 101.5), (NEW, 101.0), (NEW, 100.5))
    see(watcher, (OLD, 101.2), (NEW, 102.0), (BROKEN, 100.1), (FAILED, 100.1))
    assert watcher.findings(90.0, 103.0) == [[3, [10.5, None], 11.5]]
    see(watcher, (OTHER, 104.0))
    assert watcher.findings(90.0, 105.0) == [[3, [10.5, 14.0], 11.5]]


def test_only_replies_from_the_request_on_count_and_only_until_the_end() -> None:
    watcher = Watcher(known_kinds())
    watcher.add(Watch(1, 100.0, [marker("backend", "6")], marker("backend", "1")))
    watcher.end(1, 102.0)
    see(watcher, (NEW, math.nextafter(100.0, 0)), (OLD, 99.0), (OLD, 102.0))
    assert watcher.findings(100.0, 102.0) == [[1, [None], None]]
    see(watcher, (NEW, 100.0), (OLD, math.nextafter(102.0, 0)))
    assert watcher.findings(100.0, 102.0) == [[1, [0.0], math.nextafter(102.0, 0) - 100.0]]


def test_replies_that_came_before_the_news_of_a_change_count() -> None:
    watcher = Watcher(known_kinds())
    see(watcher, (NEW, 99.0), (NEW, 100.2), (OLD, 100.3))
    see(watcher, (NEW, 100.4))
    watcher.add(Watch(1, 100.0, [marker("backend", "6")], marker("backend", "1")))
    assert watcher.findings(100.0, 101.0) == [[1, [pytest.approx(0.2)], pytest.approx(0.3)]]


def test_what_is_kept_for_late_news_is_bounded() -> None:
    watcher = Watcher(known_kinds())
    for count in range(200):
        see(watcher, (NEW, 100.0 + count * 0.1))
    assert 30 <= len(watcher._recent) <= 32  # three seconds of them


def test_nothing_to_see_by_is_nothing_seen() -> None:
    watcher = Watcher(known_kinds())
    watcher.add(Watch(1, 100.0, [], None))
    see(watcher, (NEW, 101.0), (OLD, 101.0))
    assert watcher.findings(100.0, 102.0) == [[1, [], None]]


def test_an_ended_watch_is_told_a_last_time_then_dropped() -> None:
    watcher = Watcher(known_kinds())
    watcher.add(Watch(1, 100.0, [marker("backend", "6")], None))
    watcher.add(Watch(2, 105.0, [], None))
    see(watcher, (NEW, 101.0))
    watcher.end(1, 105.0)
    watcher.end(9, 105.0)
    assert [found[0] for found in watcher.findings(100.0, 105.5)] == [1, 2]
    assert watcher.findings(100.0, 120.0)[0] == [1, [1.0], None]
    assert [found[0] for found in watcher.findings(100.0, 120.5)] == [2]


def test_kinds_that_appear_later_are_seen() -> None:
    kinds = Kinds()
    watcher = Watcher(kinds)
    watcher.add(Watch(1, 0.0, [marker("backend", "9")], None))
    watcher.see(np.array([kinds.number(OLD)]), np.array([1.0]))
    watcher.see(np.array([kinds.number(Kind("ok", "200", backend="9"))]), np.array([2.0]))
    assert watcher.findings(0.0, 3.0) == [[1, [2.0], None]]


replies = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(950, 1050).map(lambda tick: tick / 10)), min_size=1)


def first_and_last(
    seen: list[tuple[Kind, float]], new: Mapping[str, Any], old: Mapping[str, Any]
) -> list[float | None]:
    times = [(kind, end_s) for kind, end_s in seen if 100.0 <= end_s < 104.0]
    return [
        min((end_s - 100.0 for kind, end_s in times if matches(new, kind)), default=None),
        max((end_s - 100.0 for kind, end_s in times if matches(old, kind)), default=None),
    ]


@settings(deadline=None, max_examples=50)
@given(replies, st.lists(st.integers(1, 50), max_size=5))
def test_batches_make_no_difference(seen: list[tuple[Kind, float]], places: list[int]) -> None:
    watcher = Watcher(known_kinds())
    new, old = marker("cors", "on"), marker("cors", "off")
    watcher.add(Watch(1, 100.0, [new], old, until_s=104.0))
    edges = [0, *sorted({place for place in places if place < len(seen)}), len(seen)]
    for start, end in itertools.pairwise(edges):
        see(watcher, *seen[start:end])
    ((_, (first,), last),) = watcher.findings(100.0, 104.0)
    assert [first, last] == first_and_last(seen, new, old)
