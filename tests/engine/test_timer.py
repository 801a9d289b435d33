"""The timer that wakes the pump: never early, and far more precise than waits in whole milliseconds."""

import select
import statistics
import time
from collections.abc import Iterator

import pytest
from gevent.monkey import get_original

from locustfiles.engine._timer import Timer


@pytest.fixture
def timer() -> Iterator[Timer]:
    made = Timer()
    yield made
    made.close()


@pytest.fixture
def epoll(timer: Timer) -> "Iterator[select.epoll]":
    with get_original("select", "epoll")() as made:
        made.register(timer.fd, select.EPOLLIN)
        yield made


def test_it_fires_never_early_and_hardly_late(timer: Timer, epoll: "select.epoll") -> None:
    late_s = []
    for _ in range(60):
        at_s = time.monotonic() + 0.0011
        timer.arm(at_s)
        assert epoll.poll(1.0) == [(timer.fd, select.EPOLLIN)]
        late_s.append(time.monotonic() - at_s)
    assert min(late_s) >= 0
    assert statistics.median(late_s) < 0.0005  # rounded up to whole milliseconds it would be 0.0009


def test_it_does_not_fire_before(timer: Timer, epoll: "select.epoll") -> None:
    timer.arm(time.monotonic() + 60)
    assert epoll.poll(0.01) == []


@pytest.mark.parametrize("at_s", [0.0, -5.0, 1e-12])
def test_a_moment_in_the_past_fires_at_once(timer: Timer, epoll: "select.epoll", at_s: float) -> None:
    timer.arm(at_s)
    assert epoll.poll(1.0) == [(timer.fd, select.EPOLLIN)]


def test_it_stays_ready_until_it_is_armed_again(timer: Timer, epoll: "select.epoll") -> None:
    timer.arm(time.monotonic())
    assert len(epoll.poll(1.0)) == len(epoll.poll(0)) == 1
    timer.arm(time.monotonic() + 60)
    assert epoll.poll(0) == []


def test_it_can_be_called_off(timer: Timer, epoll: "select.epoll") -> None:
    timer.arm(time.monotonic())
    assert len(epoll.poll(1.0)) == 1
    timer.disarm()
    assert epoll.poll(0) == []
    timer.arm(time.monotonic())
    assert len(epoll.poll(1.0)) == 1


def test_closing_twice_closes_once(timer: Timer) -> None:
    timer.close()
    timer.close()
    assert timer.fd == -1
