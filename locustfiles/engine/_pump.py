"""The measured loop: one epoll set per process carries the connections of all its users.

A greenlet waits for the epoll descriptor and serves every ready connection in one batch, so that a request costs two
system calls and some bytes work, and no greenlet switch. A timerfd in the same set wakes it when the next slot is
due. Locust's own greenlets run every few milliseconds.
"""

import itertools
import math
import select
from collections.abc import Sequence
from time import monotonic as clock
from typing import Final

import gevent
import numpy as np
from gevent.monkey import get_original

from locustfiles.engine._connection import AWAITING, GONE, IDLE, WRITING, Connection
from locustfiles.engine._exchange import Exchange, Traffic
from locustfiles.engine._lag import LagMeter
from locustfiles.engine._ledger import Ledger
from locustfiles.engine._outcome import Verdict
from locustfiles.engine._recorder import COLUMNS, LATE_S, Recorder
from locustfiles.engine._schedule import Epoch
from locustfiles.engine._timer import Timer

BATCH: Final = 64  # connections served, or slots sent, before the other kind of work gets its turn
YIELD_S: Final = 0.005
TICK_S: Final = 0.02
FOLD_ROWS: Final = 2_048
FOLD_S: Final = 0.1
# A wait shorter than this is spent in the pump's own epoll set: going through gevent's loop costs more CPU than it
# gives to others.
SHORT_WAIT_S: Final = 0.001
# With spinning, the loop looks at its connections without pause from this long before a slot is due.
SPIN_S: Final = 0.01


class Pump:
    """The connections of one process and the loop that serves them.

    All but `run` is called from other greenlets of the same thread.
    """

    def __init__(self, traffic: Traffic, recorder: Recorder) -> None:
        self._recorder = recorder
        self._timer = Timer()
        self._epoll: select.epoll = get_original("select", "epoll")()  # gevent hides epoll where it patches select
        self._epoll.register(self._timer.fd, select.EPOLLIN)
        self._by_fd: dict[int, Connection] = {}
        self._ledger = Ledger()
        self._exchange = Exchange(traffic, self._ledger, recorder, self._epoll, self._by_fd)
        self._connections: dict[Connection, None] = {}
        self._retiring: list[Connection] = []
        self._addresses = itertools.cycle(traffic.addresses)
        self._running = True
        self._spins = traffic.spins
        self._spun_s = 0.0
        self._tick_s = self._fold_s = 0.0
        self.lag = LagMeter()

    def add(self) -> Connection:
        """Open one more connection, in its turn."""
        connection = Connection(next(self._addresses))
        self._connections[connection] = None
        self._exchange.opener.queue(connection)
        return connection

    def retire(self, connection: Connection) -> None:
        """The connection belongs to no user any more: it serves its slots until the next epoch leaves it out."""
        connection.retiring = True
        self._retiring.append(connection)

    def live(self) -> list[Connection]:
        """Connections that belong to users, oldest first."""
        return [connection for connection in self._connections if not connection.retiring]

    def open_count(self) -> int:
        """Connections that belong to users and stand."""
        return sum(IDLE <= connection.state < GONE for connection in self.live())

    def begin(self, epoch: Epoch, connections: Sequence[Connection], end_s: float = math.inf) -> None:
        """From epoch.t0_s on, these connections follow it; the epoch before ends there."""
        self._ledger.begin(epoch, connections, end_s)

    def end_at(self, end_s: float) -> None:
        """No slot that is due at `end_s` or later is taken any more."""
        self._ledger.end_at(end_s)

    def come_to_s(self) -> float:
        """Every slot due before this moment has fallen due."""
        return min(self._ledger.next_s, clock())

    def due_between(self, start_s: float, end_s: float) -> int:
        """How many slots fall due in start_s <= t < end_s."""
        return self._ledger.due_between(start_s, end_s)

    def unfinished(self) -> int:
        """Slots that have fallen due and have no end yet."""
        return sum(connection.has_slot + self._ledger.owed(connection) for connection in self._connections)

    def censor(self) -> None:
        """What has no end by now gets none: it is recorded as unfinished or unsent. All connections are closed."""
        now_s = clock()
        sent: list[float] = []
        unsent: list[float] = []
        for connection in self._connections:
            if connection.has_slot:
                (unsent if math.isnan(connection.sent_s) else sent).append(connection.intended_s)
            unsent.extend(self._ledger.owed_starts(connection))
        for starts, outcome in ((sent, "unfinished"), (unsent, "unsent")):
            if starts:
                kind = self._recorder.kinds.of_verdict(Verdict(outcome, ""))
                self._recorder.censored(kind, now_s, np.array(starts), sent=starts is sent)
        for connection in list(self._connections):
            self._exchange.abandon(connection)
        self._connections.clear()
        self._retiring.clear()

    def take_spun_s(self) -> float:
        """Seconds since the last call that were spent looking for work where there was none."""
        spun_s, self._spun_s = self._spun_s, 0.0
        return spun_s

    def close(self) -> None:
        """End the loop."""
        self._running = False

    def run(self) -> None:
        """Serve until closed. What is in flight then is dropped: `censor` first."""
        try:
            self._loop()
        finally:
            for connection in list(self._connections):
                self._exchange.abandon(connection)
            self._epoll.close()
            self._timer.close()

    def _loop(self) -> None:
        poll, ledger, exchange, by_fd = self._epoll.poll, self._ledger, self._exchange, self._by_fd
        read, due = exchange.read, exchange.due
        woke_s = yielded_s = turned_s = clock()
        spun = False
        while self._running:
            sent = 0
            now_s = clock()
            if spun:
                self._spun_s += now_s - turned_s
            turned_s = now_s
            while ledger.next_s <= now_s and sent < BATCH:
                due(ledger.fall_due())
                sent += 1
            if exchange.later_s <= now_s:
                exchange.postponed(now_s)
            exchange.opener.turn(now_s)
            if now_s >= self._tick_s:
                self._tick(now_s)
            asked_s = clock()
            if not spun:
                self.lag.add(asked_s - woke_s)
            if asked_s - yielded_s > YIELD_S:
                gevent.sleep(0)
                asked_s = yielded_s = clock()
                ready, yielded = poll(0, BATCH), False
            else:
                ready, yielded = self._wait(asked_s, rushed=sent == BATCH)
                if yielded:
                    yielded_s = clock()
            unseen_s = asked_s - woke_s
            exchange.unseen_s = unseen_s if unseen_s > LATE_S else 0.0
            spun = self._spins and not (ready or sent or yielded)
            woke_s = clock()
            for fd, mask in ready:
                connection = by_fd.get(fd)  # None: the timer
                if connection is not None and connection.state == AWAITING:
                    read(connection)
                elif connection is not None:
                    self._serve(connection, mask)

    def _serve(self, connection: Connection, mask: int) -> None:
        """A connection is ready that does not simply await its reply."""
        if connection.state == IDLE:
            self._exchange.idle_ready(connection)
        elif connection.state == WRITING and mask & select.EPOLLOUT:
            self._exchange.write_on(connection)
        elif connection.state == WRITING:
            self._exchange.read(connection)
        else:
            self._exchange.opener.ready(connection)

    def _wait(self, now_s: float, *, rushed: bool) -> tuple[list[tuple[int, int]], bool]:
        """Ready connections, and whether Locust's greenlets had their turn."""
        until_s = min(self._ledger.next_s, self._exchange.later_s, self._tick_s)
        wait_s = until_s - now_s
        if rushed or wait_s <= 0 or self._exchange.opener.eager:
            return self._epoll.poll(0, BATCH), False
        if self._spins:
            if self._exchange.busy or self._ledger.next_s - now_s < SPIN_S:
                self._timer.disarm()
                return self._epoll.poll(0, BATCH), False
            until_s = min(until_s, self._ledger.next_s - SPIN_S)
        self._timer.arm(until_s)
        if wait_s < SHORT_WAIT_S:
            return self._epoll.poll(SHORT_WAIT_S, BATCH), False
        ready = self._epoll.poll(0, BATCH)
        if ready:
            return ready, False
        hub = gevent.get_hub()
        hub.wait(hub.loop.io(self._epoll.fileno(), 1))
        late_s = clock() - until_s
        if late_s > 0:
            self.lag.add(late_s)
        return self._epoll.poll(0, BATCH), True

    def _let_go(self) -> None:
        """Close the connections that belong to no user, once no epoch counts on them and they owe nothing."""
        for connection in self._retiring:
            if not self._ledger.has(connection):
                self._exchange.let_go(connection)
            if connection.state == GONE:
                del self._connections[connection]
        self._retiring = [connection for connection in self._retiring if connection.state != GONE]

    def _tick(self, now_s: float) -> None:
        self._tick_s = now_s + TICK_S
        self._exchange.expire(now_s)
        self._exchange.opener.expire(now_s)
        if self._retiring:
            self._let_go()
        rows = len(self._recorder.rows) // COLUMNS
        if rows >= FOLD_ROWS or now_s >= self._fold_s:
            self._fold_s = now_s + FOLD_S
            self._recorder.fold()
