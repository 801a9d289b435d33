"""How long the loop and the garbage collector stood still."""

import gc

import pytest

from locustfiles.engine._lag import GcMeter, LagMeter


@pytest.mark.parametrize(
    ("stretches_s", "p99_us", "longest_us"),
    [
        ([], 0, 0),
        ([0.002], 2_000, 2_000),
        ([0.003, 0.001], 3_000, 3_000),
        ([count / 1000 for count in range(100, 0, -1)], 99_000, 100_000),
        ([0.0001] * 98 + [0.5, 0.4], 400_000, 500_000),
        ([0.0001] * 990 + [0.5] * 10, 100, 500_000),
    ],
)
def test_the_loops_lag(stretches_s: list[float], p99_us: int, longest_us: int) -> None:
    meter = LagMeter()
    for stretch_s in stretches_s:
        meter.add(stretch_s)
    assert meter.take_us() == (p99_us, longest_us)
    assert meter.take_us() == (0, 0)


def test_the_collectors_pauses() -> None:
    meter = GcMeter()
    meter.install()
    try:
        rings: list[list[object]] = [[] for _ in range(50_000)]
        for ring in rings:
            ring.append(ring)
        gc.collect()
        longest_us = meter.take_us()
        assert 50 < longest_us < 10_000_000
    finally:
        meter.remove()
    meter.take_us()
    gc.collect()
    assert meter.take_us() == 0
    meter.remove()  # a second time does nothing
    assert all(getattr(callback, "__self__", None) is not meter for callback in gc.callbacks)
