"""Which connection owes which slot: a cursor over the present epoch, and what earlier epochs left behind. No heap,
and no object per slot.

All connections of an epoch have the same period, so they fall due in one fixed order, round after round. How many
slots a connection owes follows from the cursor and from how many it has taken; only a change of epoch writes debts
down.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence

from locustfiles.engine._connection import Connection, Debt
from locustfiles.engine._schedule import Epoch

_NO_EPOCH = Epoch(0, 0.0, 1.0, 1, ())


class Ledger:
    """`next_s` is the next intended start, or infinity when none is to come."""

    def __init__(self) -> None:
        self.next_s = math.inf
        self._epoch = _NO_EPOCH
        self._order: tuple[Connection, ...] = ()
        self._cursor = 0
        self._round = 0
        self._end_s = -math.inf
        self._following: deque[tuple[Epoch, tuple[Connection, ...], float]] = deque()
        self._past: list[tuple[Epoch, float]] = []

    def begin(self, epoch: Epoch, connections: Sequence[Connection], end_s: float = math.inf) -> None:
        """From epoch.t0_s until `end_s` these connections follow `epoch`, in the order of its numbers; the epoch
        before ends at its start.
        """
        if len(connections) != len(epoch.numbers):
            raise ValueError(f"{len(connections)} connections for {len(epoch.numbers)} numbers")
        self.end_at(epoch.t0_s)
        self._following.append((epoch, tuple(connections), end_s))
        self._look_ahead()

    def end_at(self, end_s: float) -> None:
        """No slot with an intended start of `end_s` or later falls due any more; what has fallen due already stays
        due.
        """
        self._end_s = min(self._end_s, max(end_s, self._fallen_to_s()))
        self._following = deque((epoch, order, min(until_s, end_s)) for epoch, order, until_s in self._following)
        self._look_ahead()

    def has(self, connection: Connection) -> bool:
        """Whether the present epoch or one to come counts on the connection."""
        # A place is given to the connections of the present epoch, and taken away at its end.
        return connection.position >= 0 or any(connection in order for _, order, _ in self._following)

    def fall_due(self) -> Connection:
        """The slot at `next_s` has fallen due: returns its connection, which owes it from now on."""
        connection = self._order[self._cursor]
        self._cursor += 1
        if self._cursor == len(self._order):
            self._cursor, self._round = 0, self._round + 1
        self._look_ahead()
        return connection

    def owes(self, connection: Connection) -> bool:
        """Whether a slot of the connection has fallen due and was not taken."""
        return bool(connection.debts) or self._left(connection) > 0

    def take(self, connection: Connection) -> float:
        """Take the oldest slot that the connection owes: returns its intended start."""
        if connection.debts:
            debt = connection.debts[0]
            due_s = debt.epoch.due_s(debt.number, debt.turn)
            debt.turn, debt.left = debt.turn + 1, debt.left - 1
            if not debt.left:
                del connection.debts[0]
            return due_s
        due_s = self._epoch.due_s(self._epoch.numbers[connection.position], connection.turn)
        connection.turn += 1
        return due_s

    def owed_starts(self, connection: Connection) -> Iterator[float]:
        """The intended starts of all slots that the connection owes, oldest first."""
        for debt in connection.debts:
            for turn in range(debt.turn, debt.turn + debt.left):
                yield debt.epoch.due_s(debt.number, turn)
        for turn in range(connection.turn, connection.turn + self._left(connection)):
            yield self._epoch.due_s(self._epoch.numbers[connection.position], turn)

    def owed(self, connection: Connection) -> int:
        """How many slots the connection owes."""
        return sum(debt.left for debt in connection.debts) + self._left(connection)

    def due_between(self, start_s: float, end_s: float) -> int:
        """How many slots fall due in start_s <= t < end_s, over all epochs so far."""
        stretches = [*self._past, (self._epoch, self._end_s)]
        return sum(epoch.due_between(start_s, min(end_s, until_s)) for epoch, until_s in stretches if until_s > start_s)

    @property
    def period_s(self) -> float:
        """Time between two slots of one connection in the present epoch."""
        return self._epoch.period_s

    def _left(self, connection: Connection) -> int:
        if connection.position < 0:
            return 0
        return self._round + (connection.position < self._cursor) - connection.turn

    def _fallen_to_s(self) -> float:
        """The first moment after the last slot of the present epoch that has fallen due: news of an end may come
        late.
        """
        turn, place = (self._round, self._cursor - 1) if self._cursor else (self._round - 1, len(self._order) - 1)
        if turn < 0 or not self._order:
            return -math.inf
        return math.nextafter(self._epoch.due_s(self._epoch.numbers[place], turn), math.inf)

    def _look_ahead(self) -> None:
        if self._order:
            due_s = self._epoch.due_s(self._epoch.numbers[self._cursor], self._round)
            if due_s < self._end_s:
                self.next_s = due_s
                return
        if self._following:
            self._turn_page()
        else:
            self.next_s = math.inf

    def _turn_page(self) -> None:
        """The present epoch has no slot left: write down what it is owed and take up the following one."""
        for connection in self._order:
            left = self._left(connection)
            if left:
                connection.debts.append(
                    Debt(self._epoch, self._epoch.numbers[connection.position], connection.turn, left)
                )
            connection.position = -1
        self._past.append((self._epoch, self._end_s))
        self._epoch, self._order, self._end_s = self._following.popleft()
        self._cursor = self._round = 0
        for position, connection in enumerate(self._order):
            connection.position, connection.turn = position, 0
        self._look_ahead()
