"""Locust's own statistics, fed in bulk, are what they would be had each request been logged."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locust.env import Environment
from locust.stats import StatsEntry

from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._stats import LocustStats

KINDS = [
    Kind("ok", "200"),
    Kind("http_3xx", "301"),
    Kind("http_5xx", "503"),
    Kind("reset", "eof"),
    Kind("reset", "repeat:eof"),
]
GOOD, REPEAT = (0, 1), 4
TIMES_MS = (1, 2, 7, 63, 99, 112, 268, 947, 1_312, 2_468, 8_888)  # none on the edge between two of Locust's buckets

Rows = list[tuple[int, int, int]]  # response in ms, kind, bytes


def make() -> tuple[Environment, LocustStats]:
    environment, kinds = Environment(), Kinds()
    for kind in KINDS:
        kinds.number(kind)
    return environment, LocustStats(environment, kinds, "GET", "GET /")


def feed(stats: LocustStats, rows: Rows) -> None:
    stats.take(np.array([(10.0, 0.0, 10.0, 10.0 + ms / 1000, kind, size) for ms, kind, size in rows]).reshape(-1, 6))
    stats.pump_out()


def facts(entry: StatsEntry) -> dict[str, Any]:
    return {
        "requests": entry.num_requests,
        "bytes": entry.total_content_length,
        "times": {int(time): count for time, count in entry.response_times.items()},
        "total": pytest.approx(entry.total_response_time),
        "range": (pytest.approx(entry.min_response_time), pytest.approx(entry.max_response_time)),
        "seconds": sum(entry.num_reqs_per_sec.values()),
    }


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(TIMES_MS), st.sampled_from(GOOD), st.integers(0, 2_000)), min_size=1, max_size=30
    )
)
def test_in_bulk_is_as_one_by_one(rows: Rows) -> None:
    environment, stats = make()
    feed(stats, rows[:10])
    feed(stats, rows[10:])
    plain = Environment().stats
    for ms, _, size in rows:
        plain.log_request("GET", "GET /", ms, size)
    assert facts(environment.stats.total) == facts(plain.total)
    assert facts(environment.stats.entries["GET /", "GET"]) == facts(plain.entries["GET /", "GET"])


def test_only_failures_fire_while_nobody_else_listens() -> None:
    environment, stats = make()
    feed(stats, [(5, 0, 100), (7, 2, 50), (9, 3, 0), (9, REPEAT, 0), (5, 1, 100)])
    # Without a runner nobody logs what is fired; the good ones went in by bulk, and a repeated attempt is no request.
    assert environment.stats.total.num_requests == 2


def test_a_listener_sees_every_request_and_no_repeated_attempt() -> None:
    environment, stats = make()
    heard: list[tuple[Any, ...]] = []

    def listen(
        request_type: str, name: str, response_time: float, response_length: int, exception: object, **_: object
    ) -> None:
        heard.append((request_type, name, round(response_time, 6), response_length, exception and str(exception)))

    environment.events.request.add_listener(listen)
    feed(stats, [(5, 0, 100), (7, 2, 50), (9, 3, 0), (9, REPEAT, 0)])
    assert heard == [
        ("GET", "GET /", 5.0, 100, None),
        ("GET", "GET /", 7.0, 50, "http_5xx 503"),
        ("GET", "GET /", 9.0, 0, "reset eof"),
    ]
    assert environment.stats.total.num_requests == 0
