"""Whether the generator can be believed: each rule at its limit and just beyond it."""

import os
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locustfiles.engine._health import (
    CLOCK_ERROR_LIMIT_US,
    CPU_SHARE_WARNING,
    GC_PAUSE_WARNING_US,
    STEAL_SHARE_WARNING,
    Evidence,
    Meter,
    cpu_quota,
    invalid_reasons,
    open_descriptors,
    warnings,
)

FINE = Evidence(late_own=dict.fromkeys(range(10), (1000, 0)))


def test_nothing_wrong_nothing_said() -> None:
    assert invalid_reasons(FINE) == []
    assert warnings(FINE) == []
    assert invalid_reasons(Evidence(late_own={})) == []


@pytest.mark.parametrize(
    ("late_own", "reasons"),
    [
        ({0: (10_000, 100)}, []),  # 1 % exactly
        ({0: (10_000, 101)}, ["1.0% of slots"]),
        ({0: (5_000, 100), 1: (5_000, 0)}, []),
        ({0: (5_000, 100), 1: (5_000, 1)}, ["1.0% of slots"]),
        ({0: (10, 1), 1: (990, 0)}, []),  # 10 % of a second exactly
        ({0: (10, 2), 1: (990, 0)}, ["in second 0: 20% of slots"]),
        ({0: (1_000, 100), 7: (99_000, 0)}, []),
        ({0: (1_000, 0), 7: (1_000, 101), 8: (99_000, 0)}, ["in second 7: 10% of slots"]),
        ({0: (9, 9), 1: (9_991, 0)}, []),  # too few to judge a second by
        ({3: (100, 20), 4: (100, 50)}, ["35.0% of slots", "in second 4: 50% of slots"]),
        ({0: (0, 0)}, []),
    ],
)
def test_lateness_of_our_own(late_own: dict[int, tuple[int, int]], reasons: list[str]) -> None:
    found = invalid_reasons(Evidence(late_own=late_own))
    assert len(found) == len(reasons)
    for text, start in zip(found, reasons, strict=True):
        assert text.startswith(start)


@settings(deadline=None)
@given(st.integers(1, 10**7), st.integers(0, 10**6))
def test_the_share_is_exact_whatever_the_numbers(due: int, late: int) -> None:
    late = min(late, due)
    found = invalid_reasons(Evidence(late_own={0: (due, late), 1: (due * 9, 0)}))
    assert any("allowed 1 %" in text for text in found) == (late * 100 > due * 10)
    assert any("in second 0" in text for text in found) == (due >= 10 and late * 10 > due)


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        (replace(FINE, local_outcomes=1), ["1 slots failed", "ingress-swarm doctor"]),
        (replace(FINE, recorder_error="No space left on device"), ["the recorder failed: No space left on device"]),
        (replace(FINE, lost_workers=("a", "b")), ["lost 2 worker(s)", "(a, b)", "was not sent"]),
        (replace(FINE, clock_error_us=CLOCK_ERROR_LIMIT_US + 1), ["2.0 ms", "allowed 2 ms", "network"]),
        (replace(FINE, clock_error_us=float("inf")), ["allowed 2 ms"]),
        (replace(FINE, accounts_differ="due 5, ended 4"), ["due 5, ended 4", "please report it"]),
        (replace(FINE, aborted="too many errors"), ["aborted: too many errors"]),
    ],
)
def test_what_makes_a_run_invalid(evidence: Evidence, says: list[str]) -> None:
    (text,) = invalid_reasons(evidence)
    assert all(part in text for part in says)
    assert "\n" not in text
    assert warnings(evidence) == []


def test_a_clock_error_at_the_limit_is_allowed() -> None:
    assert invalid_reasons(replace(FINE, clock_error_us=CLOCK_ERROR_LIMIT_US)) == []


def test_all_that_is_wrong_is_said() -> None:
    evidence = Evidence(
        late_own={0: (10, 10)},
        local_outcomes=1,
        recorder_error="x",
        lost_workers=("a",),
        clock_error_us=9_000,
        accounts_differ="y",
        aborted="z",
    )
    assert len(invalid_reasons(evidence)) == 8


@pytest.mark.parametrize(
    ("at_the_limit", "beyond", "says"),
    [
        (
            replace(FINE, cpu_share_max=CPU_SHARE_WARNING),
            replace(FINE, cpu_share_max=0.87),
            "a worker used 87% of its CPU quota .* use more workers",
        ),
        (
            replace(FINE, gc_pause_max_us=GC_PAUSE_WARNING_US),
            replace(FINE, gc_pause_max_us=GC_PAUSE_WARNING_US + 100),
            "the garbage collector stopped a worker for 5.1 ms",
        ),
        (
            replace(FINE, steal_share_max=STEAL_SHARE_WARNING),
            replace(FINE, steal_share_max=0.031),
            "the hypervisor took up to 3% of the CPU: use a machine of your own",
        ),
        (FINE, replace(FINE, connections_missing=2), "2 connections were not open when the load began"),
    ],
)
def test_what_makes_numbers_doubtful(at_the_limit: Evidence, beyond: Evidence, says: str) -> None:
    assert warnings(at_the_limit) == []
    (text,) = warnings(beyond)
    assert re.search(says, text)
    assert invalid_reasons(beyond) == []


# -- readings of this very process


def test_the_quota_is_within_the_machine() -> None:
    assert 0 < cpu_quota() <= (os.cpu_count() or 1)


def test_descriptors_are_counted() -> None:
    before = open_descriptors()
    pair = os.pipe()
    try:
        assert open_descriptors() == before + 2
    finally:
        for fd in pair:
            os.close(fd)


def test_a_meter_tells_what_was_used_since() -> None:
    meter = Meter()
    before = os.times()
    while os.times().user - before.user < 0.05:
        pass
    first = meter.take()
    assert first["cpu_user_s"] is not None
    assert 0.04 <= first["cpu_user_s"] <= 5.0
    assert first["elapsed_s"] is not None
    assert first["elapsed_s"] >= 0.05
    assert first["fds"] == open_descriptors()
    assert first["rss_bytes"] is not None
    assert first["rss_bytes"] > 10_000_000
    second = meter.take()
    assert second["elapsed_s"] is not None
    assert 0 <= second["elapsed_s"] < first["elapsed_s"]
