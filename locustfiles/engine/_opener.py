"""Opens connections for the pump: connect and TLS as a state machine, so that neither ever blocks the measured loop.

Opens that no slot waits for are paced and bounded. An attempt for a slot is made at once: its class is the slot's
outcome, and the schedule's grid is the back-off. CPU for opening is bounded per turn of the loop either way.
"""

import math
import select
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic as clock
from typing import Final, Protocol

from locustfiles.engine._connection import CLOSED, CONNECTING, HANDSHAKING, Connection
from locustfiles.engine._outcome import Verdict, connect_failure, tls_failure

OPENS_PER_S: Final = 500.0
OPENING_LIMIT: Final = 32
# CPU time for opening in one turn of the loop. One step of a handshake costs about as much; with more, slots of other
# connections would be late by our own fault while a gateway's reload has all connections opened anew.
OPENING_BUDGET_S: Final = 0.0005
CONNECT_TIMEOUT_S: Final = 10.0
_BURST: Final = 10.0  # as many as fall due between two ticks of an otherwise idle loop


class Selector(Protocol):
    """The part of an epoll set that opening needs."""

    def register(self, fd: int, eventmask: int) -> None:
        """Watch a descriptor."""

    def modify(self, fd: int, eventmask: int) -> None:
        """Watch it for something else."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Times of one opening, seconds on the monotonic clock; `tls_s` is NaN without TLS."""

    end_s: float
    connect_s: float
    tls_s: float


class Opener:
    """`on_open(connection, opened)` and `on_failure(connection, verdict)` are the pump's; both are called outside of
    any iteration here.
    """

    def __init__(
        self,
        selector: Selector,
        by_fd: dict[int, Connection],
        tls: ssl.SSLContext | None,
        server_name: str,
        on_open: Callable[[Connection, Opened], None],
        on_failure: Callable[[Connection, Verdict], None],
    ) -> None:
        self._selector, self._by_fd = selector, by_fd
        self._tls, self._server_name = tls, server_name
        self._on_open, self._on_failure = on_open, on_failure
        self._queue: deque[Connection] = deque()
        self._eager: deque[Connection] = deque()
        self._under_way: dict[Connection, None] = {}  # oldest first, as every attempt has the same limit
        self._allowance = _BURST
        self._refilled_s = clock()
        self._spent_s = 0.0

    def queue(self, connection: Connection) -> None:
        """Open it when the pace allows. One that a slot opened meanwhile, or that is gone, is passed over."""
        self._queue.append(connection)

    @property
    def eager(self) -> bool:
        """Whether an attempt for a slot waits for the next turn's budget."""
        return bool(self._eager)

    def turn(self, now_s: float) -> None:
        """Called once per turn of the loop: gives the budget anew, and starts what slots wait for and the pace
        allows.
        """
        self._spent_s = 0.0
        while self._eager and self._spent_s < OPENING_BUDGET_S:
            connection = self._eager.popleft()
            if connection.state == CLOSED:
                self._attempt(connection)
        if not self._queue:
            return
        self._allowance = min(_BURST, self._allowance + (now_s - self._refilled_s) * OPENS_PER_S)
        self._refilled_s = now_s
        while (
            self._queue
            and self._allowance >= 1.0
            and self._spent_s < OPENING_BUDGET_S
            and len(self._under_way) < OPENING_LIMIT
        ):
            connection = self._queue.popleft()
            if connection.state == CLOSED and not connection.retiring:
                self._allowance -= 1.0
                self._attempt(connection)

    def open(self, connection: Connection) -> None:
        """A slot waits for the connection: make an attempt as soon as this turn's or a later one's budget allows."""
        if self._spent_s < OPENING_BUDGET_S:
            self._attempt(connection)
        else:
            self._eager.append(connection)

    def _attempt(self, connection: Connection) -> None:
        connection.opening_since_s = started_s = clock()
        try:
            stands = connection.begin()
        except OSError as error:
            self._spent_s += clock() - started_s
            self._fail(connection, connect_failure(error))
            return
        connection.state = CONNECTING
        self._under_way[connection] = None
        self._by_fd[connection.fd] = connection
        self._selector.register(connection.fd, select.EPOLLOUT)
        self._spent_s += clock() - started_s
        if stands:
            self._connected(connection)

    def ready(self, connection: Connection) -> None:
        """The epoll set says that an opening connection can go on."""
        if connection.state == CONNECTING:
            try:
                connection.established()
            except OSError as error:
                self._fail(connection, connect_failure(error))
                return
            self._connected(connection)
        elif self._spent_s < OPENING_BUDGET_S:  # else the level-triggered set names it again in the next turn
            self._handshake(connection)

    def expire(self, now_s: float) -> None:
        """Give up attempts that are older than the limit."""
        while self._under_way:
            oldest = next(iter(self._under_way))
            if now_s - oldest.opening_since_s < CONNECT_TIMEOUT_S:
                return
            if oldest.state == CONNECTING:
                self._fail(oldest, Verdict("connect_timeout", "ETIMEDOUT"))
            else:
                self._fail(oldest, Verdict("tls", "timeout"))

    def forget(self, connection: Connection) -> None:
        """The pump gives a connection up while it is being opened."""
        self._under_way.pop(connection, None)

    def _connected(self, connection: Connection) -> None:
        connection.connected_s = clock()
        if self._tls is None:
            self._done(connection, math.nan)
            return
        try:
            connection.start_tls(self._tls, self._server_name)
        except OSError as error:
            self._fail(connection, tls_failure(error))
            return
        connection.state = HANDSHAKING
        self._spent_s += clock() - connection.connected_s
        self._handshake(connection)

    def _handshake(self, connection: Connection) -> None:
        started_s = clock()
        try:
            connection.stream.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(connection.fd, select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._selector.modify(connection.fd, select.EPOLLOUT)
        except OSError as error:
            self._fail(connection, tls_failure(error))
        else:
            self._done(connection, clock() - connection.connected_s)
        self._spent_s += clock() - started_s

    def _done(self, connection: Connection, tls_s: float) -> None:
        del self._under_way[connection]
        self._selector.modify(connection.fd, select.EPOLLIN)
        self._on_open(connection, Opened(clock(), connection.connected_s - connection.opening_since_s, tls_s))

    def _fail(self, connection: Connection, verdict: Verdict) -> None:
        self._under_way.pop(connection, None)
        self._by_fd.pop(connection.fd, None)
        connection.drop()
        connection.state = CLOSED
        self._on_failure(connection, verdict)
