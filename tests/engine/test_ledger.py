"""Which connection owes which slot: every slot that falls due is taken exactly once, whatever comes in between."""

import itertools
import math
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locustfiles.engine._connection import Connection
from locustfiles.engine._ledger import Ledger
from locustfiles.engine._schedule import Epoch


def connections(count: int) -> list[Connection]:
    return [Connection((socket.AF_INET, ("127.0.0.1", 1))) for _ in range(count)]


def epoch(number: int, t0_s: float, rate_per_s: float, count: int, total: int = 0) -> Epoch:
    return Epoch(number, t0_s, rate_per_s, total or count, tuple(range(count)))


def fall(ledger: Ledger, until_s: float) -> list[tuple[Connection, float]]:
    """Let everything fall due that is due until then: connection and intended start of each."""
    fallen = []
    while ledger.next_s <= until_s:
        start_s = ledger.next_s
        fallen.append((ledger.fall_due(), start_s))
    return fallen


def test_before_the_first_epoch_nothing_is_due() -> None:
    ledger = Ledger()
    (connection,) = connections(1)
    assert ledger.next_s == math.inf
    assert not ledger.has(connection)
    assert not ledger.owes(connection)
    assert ledger.owed(connection) == 0
    assert ledger.due_between(0.0, 1e9) == 0


def test_slots_fall_due_round_after_round() -> None:
    ledger, (first, second) = Ledger(), (pair := connections(2))
    ledger.begin(epoch(1, 10.0, 2.0, 2), pair)
    assert fall(ledger, 11.5) == [(first, 10.0), (second, 10.5), (first, 11.0), (second, 11.5)]
    assert ledger.next_s == 12.0
    assert ledger.period_s == 1.0
    assert [ledger.take(first), ledger.take(first), ledger.take(second)] == [10.0, 11.0, 10.5]
    assert not ledger.owes(first)
    assert list(ledger.owed_starts(second)) == [11.5]


def test_an_epoch_of_part_of_the_connections_skips_the_slots_of_others() -> None:
    ledger, mine = Ledger(), connections(2)
    ledger.begin(Epoch(1, 0.0, 10.0, 10, (3, 7)), mine)
    assert [start_s for _, start_s in fall(ledger, 1.5)] == [0.3, 0.7, 1.3]


def test_connections_and_numbers_must_match() -> None:
    with pytest.raises(ValueError, match="1 connections for 2 numbers"):
        Ledger().begin(epoch(1, 0.0, 1.0, 2), connections(1))


def test_an_end_is_exclusive() -> None:
    ledger, mine = Ledger(), connections(1)
    ledger.begin(epoch(1, 10.0, 1.0, 1), mine, end_s=12.0)
    assert [start_s for _, start_s in fall(ledger, 99.0)] == [10.0, 11.0]
    assert ledger.next_s == math.inf
    assert ledger.due_between(0.0, 99.0) == 2


def test_an_end_that_comes_late_leaves_due_what_has_fallen_due() -> None:
    ledger, mine = Ledger(), connections(2)
    ledger.begin(epoch(1, 10.0, 2.0, 2), mine)
    fallen = fall(ledger, 11.0)
    ledger.end_at(10.2)
    assert ledger.next_s == math.inf
    assert ledger.due_between(0.0, 99.0) == len(fallen) == 3
    assert [ledger.owed(connection) for connection in mine] == [2, 1]


def test_a_later_end_does_not_undo_an_earlier_one() -> None:
    ledger, mine = Ledger(), connections(1)
    ledger.begin(epoch(1, 10.0, 1.0, 1), mine, end_s=11.0)
    ledger.end_at(20.0)
    assert [start_s for _, start_s in fall(ledger, 99.0)] == [10.0]


def test_an_end_before_the_start_leaves_nothing_due() -> None:
    ledger, mine = Ledger(), connections(1)
    ledger.begin(epoch(1, 10.0, 1.0, 1), mine)
    ledger.end_at(5.0)
    assert ledger.next_s == math.inf
    assert ledger.due_between(0.0, 99.0) == 0


def test_the_next_epoch_takes_over_at_its_start() -> None:
    ledger, mine = Ledger(), connections(2)
    ledger.begin(epoch(1, 10.0, 2.0, 2), mine)
    fall(ledger, 10.0)
    ledger.begin(epoch(2, 11.0, 1.0, 1), mine[1:])
    assert ledger.has(mine[0])
    assert fall(ledger, 12.5) == [(mine[1], 10.5), (mine[1], 11.0), (mine[1], 12.0)]
    assert not ledger.has(mine[0])
    assert ledger.period_s == 1.0


def test_debts_of_earlier_epochs_are_taken_first() -> None:
    ledger, (connection,) = Ledger(), (mine := connections(1))
    for number, t0_s, rate_per_s in ((1, 0.0, 2.0), (2, 1.0, 4.0), (3, 2.0, 1.0)):
        ledger.begin(epoch(number, t0_s, rate_per_s, 1), mine)
        fall(ledger, t0_s + 0.99)
    assert len(connection.debts) == 2
    assert list(ledger.owed_starts(connection)) == [0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0]
    assert [ledger.take(connection) for _ in range(7)] == [0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0]
    assert not ledger.owes(connection)
    assert ledger.due_between(0.0, 3.0) == 7


def test_a_connection_that_an_epoch_leaves_out_still_owes_what_fell_due() -> None:
    ledger, mine = Ledger(), connections(2)
    ledger.begin(epoch(1, 0.0, 2.0, 2), mine)
    fall(ledger, 1.9)
    ledger.begin(epoch(2, 2.0, 1.0, 1), mine[:1])
    fall(ledger, 2.0)
    assert not ledger.has(mine[1])
    assert list(ledger.owed_starts(mine[1])) == [0.5, 1.5]
    assert [ledger.take(mine[1]), ledger.take(mine[1])] == [0.5, 1.5]
    assert not ledger.owes(mine[1])


def test_an_epoch_of_no_connections_ends_the_one_before() -> None:
    ledger, mine = Ledger(), connections(1)
    ledger.begin(epoch(1, 0.0, 1.0, 1), mine)
    ledger.begin(Epoch(2, 2.0, 1.0, 5, ()), [])
    assert [start_s for _, start_s in fall(ledger, 99.0)] == [0.0, 1.0]
    assert ledger.next_s == math.inf


def test_two_epochs_told_ahead_both_take_place() -> None:
    """The rate is changed twice before the first change begins: the one in between lasts until the second."""
    ledger, mine = Ledger(), connections(1)
    ledger.begin(epoch(1, 0.0, 1.0, 1), mine)
    fall(ledger, 0.5)
    ledger.begin(epoch(2, 2.0, 2.0, 1), mine)
    ledger.begin(epoch(3, 3.0, 4.0, 1), mine)
    assert [start_s for _, start_s in fall(ledger, 3.3)] == [1.0, 2.0, 2.5, 3.0, 3.25]
    assert ledger.due_between(0.0, 3.3) == 6


@dataclass
class Stretch:
    """An epoch as the rules have it: what is due in it falls due until its end."""

    epoch: Epoch
    members: list[Connection]
    end_s: float = math.inf

    def starts(self, connection: Connection, now_s: float) -> Iterator[float]:
        if connection in self.members:
            number = self.epoch.numbers[self.members.index(connection)]
            due_s = (self.epoch.due_s(number, turn) for turn in itertools.count())
            yield from itertools.takewhile(lambda start_s: start_s <= now_s and start_s < self.end_s, due_s)


@dataclass
class Run:
    """A ledger under random steps, beside plain lists of what fell due, what was taken, and what should have been."""

    pool: list[Connection] = field(default_factory=lambda: connections(5))
    ledger: Ledger = field(default_factory=Ledger)
    now_s: float = 100.0
    stretches: list[Stretch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fallen: dict[Connection, list[float]] = {connection: [] for connection in self.pool}
        self.taken: dict[Connection, list[float]] = {connection: [] for connection in self.pool}

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for connection, start_s in fall(self.ledger, self.now_s):
            self.fallen[connection].append(start_s)

    def take(self, place: int, most: int) -> None:
        connection = self.pool[place]
        while most and self.ledger.owes(connection):
            self.taken[connection].append(self.ledger.take(connection))
            most -= 1

    def begin(self, places: set[int], rate_per_s: float, delay_s: float, others: int) -> None:
        """Also late, so that its start has gone by, and also while another one is still to begin."""
        t0_s = self.now_s + delay_s
        members = [self.pool[place] for place in sorted(places)]
        total = max(1, len(members) * (others + 1))
        epoch = Epoch(
            len(self.stretches) + 1, t0_s, rate_per_s, total, tuple(range(0, total, others + 1))[: len(members)]
        )
        self._cut(t0_s)
        self.stretches.append(Stretch(epoch, members))
        self.ledger.begin(epoch, members)
        self.advance(0.0)

    def end(self, delay_s: float) -> None:
        self._cut(self.now_s + delay_s)
        self.ledger.end_at(self.now_s + delay_s)
        self.advance(0.0)

    def _cut(self, end_s: float) -> None:
        """Nothing from `end_s` on, but what has fallen due by now stays."""
        for stretch in self.stretches:
            stretch.end_s = min(stretch.end_s, max(end_s, math.nextafter(self.now_s, math.inf)))

    def check(self) -> None:
        for connection in self.pool:
            fallen, taken = self.fallen[connection], self.taken[connection]
            assert fallen == [
                start_s for stretch in self.stretches for start_s in stretch.starts(connection, self.now_s)
            ]
            assert taken == fallen[: len(taken)]
            assert self.ledger.owed(connection) == len(fallen) - len(taken)
            assert list(self.ledger.owed_starts(connection)) == fallen[len(taken) :]
            assert self.ledger.owes(connection) == (len(fallen) > len(taken))
        everything = sum(map(len, self.fallen.values()))
        assert self.ledger.due_between(-math.inf, math.nextafter(self.now_s, math.inf)) == everything
        middle_s = self.now_s - 0.7
        before = self.ledger.due_between(0.0, middle_s)
        assert before == sum(start_s < middle_s for starts in self.fallen.values() for start_s in starts)
        assert before + self.ledger.due_between(middle_s, math.nextafter(self.now_s, math.inf)) == everything


steps = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.sampled_from([0.0, 0.05, 0.3, 1.0])),
        st.tuples(st.just("take"), st.integers(0, 4), st.integers(1, 5)),
        st.tuples(
            st.just("begin"),
            st.sets(st.integers(0, 4)),
            st.sampled_from([0.1, 1.0, 7.3, 29.97, 50.0]),
            st.sampled_from([-0.5, 0.0, 0.1, 1.0]),
            st.integers(0, 2),
        ),
        st.tuples(st.just("end"), st.sampled_from([-1.0, -0.01, 0.0, 0.25])),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(steps)
def test_every_slot_is_taken_once_and_in_order_whatever_comes_between(todo: list[tuple[object, ...]]) -> None:
    run = Run()
    for name, *arguments in todo:
        getattr(run, str(name))(*arguments)
        run.check()
    for place in range(5):
        run.take(place, 10**6)
    assert run.taken == run.fallen
    run.check()


@settings(deadline=None)
@given(st.integers(1, 5), st.sampled_from([0.1, 3.0, 997.3]), st.integers(1, 60))
def test_what_falls_due_is_what_the_epoch_says(count: int, rate_per_s: float, slots: int) -> None:
    ledger, mine = Ledger(), connections(count)
    ledger.begin(epoch(1, 50.0, rate_per_s, count), mine)
    fallen = fall(ledger, 50.0 + (slots - 0.5) / rate_per_s)
    assert fallen == [(mine[k % count], 50.0 + k / rate_per_s) for k in range(slots)]
