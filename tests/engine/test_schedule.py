"""When slots are due: the grid, who gets which slot of it, and counting without walking."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locustfiles.engine._schedule import Epoch, deal

EPOCH = Epoch(1, 100.0, 10.0, 4, (1, 3))
ODD_RATES = (0.1, 1 / 3, 7.0, 999.9, 29999.7, 30000.0)

rates = st.one_of(st.sampled_from(ODD_RATES), st.floats(0.05, 50_000.0))
starts = st.floats(0.0, 1e6)
counts = st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any)


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    connections = draw(st.integers(1, 40))
    numbers = draw(st.sets(st.integers(0, connections - 1)))
    return Epoch(1, draw(starts), draw(rates), connections, tuple(sorted(numbers)))


@st.composite
def moments(draw: st.DrawFn, epoch: Epoch) -> float:
    """Moments around the epoch's start and its slots, and the floats next to them."""
    slot = draw(st.integers(-3, 5 * epoch.connections))
    moment_s = epoch.t0_s + (slot + draw(st.sampled_from([0.0, 0.0, 0.5]))) / epoch.rate_per_s
    return draw(st.sampled_from([moment_s, math.nextafter(moment_s, math.inf), math.nextafter(moment_s, -math.inf)]))


def brute_force(epoch: Epoch, start_s: float, end_s: float) -> int:
    turns = range(8)
    return sum(start_s <= epoch.due_s(number, turn) < end_s for number in epoch.numbers for turn in turns)


@pytest.mark.parametrize(
    ("number", "turn", "due_s"),
    [(0, 0, 100.0), (1, 0, 100.1), (3, 0, 100.3), (0, 1, 100.4), (3, 1, 100.7), (1, 1000, 500.1)],
)
def test_a_slot_is_due_at_its_place_on_the_grid(number: int, turn: int, due_s: float) -> None:
    assert EPOCH.due_s(number, turn) == pytest.approx(due_s, abs=1e-9)


def test_starts_do_not_drift() -> None:
    epoch = Epoch(1, 0.0, 29999.7, 1000, (999,))
    assert epoch.due_s(999, 3_599_963) == 3_599_963_999 / 29999.7  # after 33 hours, exact to the last bit


def test_the_period_is_that_of_one_connection() -> None:
    assert EPOCH.period_s == 0.4


@pytest.mark.parametrize(
    ("moment_s", "count"),
    [
        (-math.inf, 0),
        (99.0, 0),
        (100.0, 0),
        (100.1, 0),
        (math.nextafter(100.1, 200), 1),
        (100.25, 1),
        (100.3, 1),
        (100.35, 2),
        (100.45, 2),
        (100.55, 3),
        (104.0, 20),
    ],
)
def test_slots_before_a_moment(moment_s: float, count: int) -> None:
    assert EPOCH.due_before(moment_s) == count


@pytest.mark.parametrize(
    ("start_s", "end_s", "count"),
    [(100.0, 100.4, 2), (100.0, 100.0, 0), (0.0, 100.0, 0), (100.1, 100.3, 1), (100.4, 100.8, 2), (100.35, 100.45, 0)],
)
def test_slots_between_two_moments(start_s: float, end_s: float, count: int) -> None:
    assert EPOCH.due_between(start_s, end_s) == count


def test_no_numbers_no_slots() -> None:
    assert Epoch(1, 0.0, 1000.0, 5, ()).due_before(60.0) == 0


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate_per_s: float) -> None:
    with pytest.raises(ValueError, match=r"rate: given .*, allowed above 0 per second"):
        Epoch(1, 0.0, rate_per_s, 1, (0,))


@pytest.mark.parametrize("numbers", [(-1,), (4,), (0, 1, 99)])
def test_a_number_outside_the_connections_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"connection numbers must lie in 0\.\.3"):
        Epoch(1, 0.0, 1.0, 4, numbers)


@pytest.mark.parametrize(
    ("sizes", "dealt"),
    [
        ([], []),
        ([0], [()]),
        ([3], [(0, 1, 2)]),
        ([2, 2], [(0, 2), (1, 3)]),
        ([0, 2], [(), (0, 1)]),
        ([3, 1], [(0, 1, 3), (2,)]),
        ([1, 3], [(1,), (0, 2, 3)]),
        ([2, 4], [(1, 4), (0, 2, 3, 5)]),
    ],
)
def test_deal(sizes: list[int], dealt: list[tuple[int, ...]]) -> None:
    assert deal(sizes) == dealt


@settings(deadline=None, max_examples=50)
@given(counts)
def test_deal_is_a_partition_in_ascending_order(sizes: list[int]) -> None:
    dealt = deal(sizes)
    assert [len(numbers) for numbers in dealt] == sizes
    assert sorted(number for numbers in dealt for number in numbers) == list(range(sum(sizes)))
    assert all(list(numbers) == sorted(numbers) for numbers in dealt)


@settings(deadline=None, max_examples=50)
@given(counts)
def test_deal_spreads_evenly(sizes: list[int]) -> None:
    """In every first part of a round each worker has its share, to within half a slot of each worker."""
    workers = sum(size > 0 for size in sizes)
    for numbers, size in zip(deal(sizes), sizes, strict=True):
        share = size / sum(sizes)
        for reach in range(sum(sizes) + 1):
            mine = sum(number < reach for number in numbers)
            assert abs(mine - reach * share) <= 0.5 + workers * share / 2 + 1e-9


@settings(deadline=None, max_examples=50)
@given(counts, starts, rates)
def test_all_workers_together_are_exactly_the_grid(sizes: list[int], t0_s: float, rate_per_s: float) -> None:
    total, turns = sum(sizes), 3
    due_s = [
        Epoch(1, t0_s, rate_per_s, total, numbers).due_s(number, turn)
        for numbers in deal(sizes)
        for number in numbers
        for turn in range(turns)
    ]
    assert sorted(due_s) == [t0_s + k / rate_per_s for k in range(turns * total)]


@settings(deadline=None, max_examples=50)
@given(st.data(), epochs())
def test_counting_equals_walking_and_adds_up(data: st.DataObject, epoch: Epoch) -> None:
    start_s, middle_s, end_s = sorted(data.draw(moments(epoch)) for _ in range(3))
    assert epoch.due_between(start_s, end_s) == brute_force(epoch, start_s, end_s)
    assert epoch.due_between(start_s, end_s) == epoch.due_between(start_s, middle_s) + epoch.due_between(
        middle_s, end_s
    )


@settings(deadline=None, max_examples=50)
@given(counts, starts, rates, st.integers(0, 10**8))
def test_workers_counts_add_up_to_the_grid(sizes: list[int], t0_s: float, rate_per_s: float, slots: int) -> None:
    total = sum(sizes)
    end_s = t0_s + slots / rate_per_s
    counted = sum(Epoch(1, t0_s, rate_per_s, total, numbers).due_before(end_s) for numbers in deal(sizes))
    # Far out and fast, neighbouring slots come to lie on the same float: those at the moment itself are not before it.
    on_it = sum(t0_s + k / rate_per_s >= end_s for k in range(max(0, slots - 200), slots))
    assert counted == slots - on_it


@pytest.mark.parametrize("rate_per_s", ODD_RATES)
def test_an_hour_of_seconds_adds_up(rate_per_s: float) -> None:
    epoch = Epoch(1, 5000.25, rate_per_s, 7, (0, 2, 5))
    counts = [epoch.due_between(5000.25 + second, 5001.25 + second) for second in range(3600)]
    assert sum(counts) == epoch.due_before(5000.25 + 3600)
    assert abs(sum(counts) - 3600 * rate_per_s * 3 / 7) <= 3
    assert max(counts) - min(counts) <= 3 + 1  # whole numbers on either side of the share, for three connections
