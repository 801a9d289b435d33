"""How far a worker's clock is off."""

import pytest

from locustfiles.engine._clock import SAME, ClockOffset


@pytest.mark.parametrize(
    ("sent_s", "worker_s", "received_s", "offset_s", "error_s"),
    [
        (10.0, 10.5, 11.0, 0.0, 0.5),
        (10.0, 510.5, 11.0, 500.0, 0.5),
        (10.0, 9.0, 10.5, -1.25, 0.25),
        (10.0, 20.0, 10.0, 10.0, 0.0),
    ],
)
def test_a_round_trip(sent_s: float, worker_s: float, received_s: float, offset_s: float, error_s: float) -> None:
    offset = ClockOffset.of_round_trip(sent_s, worker_s, received_s)
    assert offset == ClockOffset(offset_s, error_s)
    # Wherever in the round trip the worker looked at its clock, the true offset is within the error.
    for looked_s in (sent_s, received_s):
        assert abs((worker_s - looked_s) - offset.offset_s) <= offset.error_s


def test_the_shortest_round_trip_is_kept_and_the_later_of_equals() -> None:
    long, short, equal = ClockOffset(1.0, 0.5), ClockOffset(2.0, 0.1), ClockOffset(3.0, 0.1)
    assert long.better(None) == long
    assert long.better(short) == short
    assert short.better(long) == short
    assert equal.better(short) == equal


def test_a_process_is_not_off_from_itself() -> None:
    assert ClockOffset(0.0, 0.0) == SAME
