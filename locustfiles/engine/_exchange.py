"""What happens on a connection: a slot is sent, its reply is read, and either way the slot ends in exactly one row."""

import heapq
import itertools
import math
import select
import ssl
from dataclasses import dataclass
from time import monotonic as clock
from typing import Final

from locustfiles.engine._address import Address
from locustfiles.engine._connection import AWAITING, CLOSED, GONE, IDLE, WRITING, Connection
from locustfiles.engine._ledger import Ledger
from locustfiles.engine._opener import Opened, Opener
from locustfiles.engine._outcome import Verdict, read_failure, write_failure
from locustfiles.engine._recorder import Recorder
from locustfiles.engine._reply import BadReplyError, Framing, Reply, ReplyReader

READ_BYTES: Final = 16_384  # a TLS record is never larger, so one read empties the TLS object
KNOWN_HEADS: Final = 1_024
WANT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What every connection does, prepared once before the load.

    `timeout_s` None: a reply may take for ever. `spins`: the loop looks for work without pause while slots are near.
    """

    request: bytes
    head_request: bool
    addresses: tuple[Address, ...]
    tls: ssl.SSLContext | None
    server_name: str
    timeout_s: float | None = 60.0
    wrk2: bool = False
    expect_bytes: int | None = None
    spins: bool = False


class Exchange:
    """Sends slots and ends them. The pump tells it what is due and what is ready."""

    def __init__(
        self, traffic: Traffic, ledger: Ledger, recorder: Recorder, epoll: "select.epoll", by_fd: dict[int, Connection]
    ) -> None:
        self._traffic, self._ledger, self._recorder = traffic, ledger, recorder
        self._epoll, self._by_fd = epoll, by_fd
        self._kinds = recorder.kinds
        self.opener = Opener(epoll, by_fd, traffic.tls, traffic.server_name, self._opened, self._open_failed)
        self.busy: dict[Connection, None] = {}  # oldest send first: all requests have the same limit
        # How long the loop had not looked before its latest look, if it was long: a reply may have lain there all
        # that time.
        self.unseen_s = 0.0
        self._later: list[tuple[float, int, Connection]] = []
        self._sequence = itertools.count()
        # The bytes of a head -> size of the whole reply, kind, whether the connection stays. Heads repeat within a
        # second or longer.
        self._known: dict[bytes, tuple[int, int, bool]] = {}

    # -- a slot's way out

    def due(self, connection: Connection) -> None:
        """A slot of the connection has fallen due: send it if the connection is free, connect for it if that is
        closed, else it waits.
        """
        if connection.state == IDLE and not connection.has_slot:
            self._take(connection)
            self._send(connection)
        elif connection.state == CLOSED and not connection.has_slot:
            self._take(connection)
            self.opener.open(connection)

    @property
    def later_s(self) -> float:
        """When the next postponed slot may go out (wrk2's way only), or infinity."""
        return self._later[0][0] if self._later else math.inf

    def postponed(self, now_s: float) -> None:
        """Send what was postponed until now."""
        while self._later and self._later[0][0] <= now_s:
            _, _, connection = heapq.heappop(self._later)
            if connection.has_slot and connection.state == IDLE:
                self._send(connection)
            elif connection.has_slot and connection.state == CLOSED:
                self.opener.open(connection)

    def _take(self, connection: Connection) -> None:
        connection.intended_s = self._ledger.take(connection)
        connection.sent_s = math.nan
        connection.has_slot = True

    def _send(self, connection: Connection) -> None:
        request = self._traffic.request
        intended_s, free_s = connection.intended_s, connection.free_s
        connection.sent_s = sent_s = clock()
        if free_s > intended_s:
            # It was busy. If that was mostly because the slot before went out late by our own fault, then so did this.
            waited_s, carried_s = free_s - intended_s, connection.own_late_s
            carried_s = min(carried_s, waited_s) if carried_s >= waited_s / 2 else 0.0
            own_late_s = max(sent_s - free_s, carried_s)
        else:
            own_late_s = sent_s - intended_s
        connection.own_late_s = own_late_s
        connection.excused_s = sent_s - own_late_s
        try:
            written = connection.write(request)
        except WANT:
            written = 0
        except OSError as error:
            self._broken(connection, write_failure(error))
            return
        self.busy[connection] = None
        if written == len(request):
            connection.state = AWAITING
        else:
            connection.state, connection.to_write = WRITING, request[written:]
            self._epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)

    def write_on(self, connection: Connection) -> None:
        """The socket takes bytes again: send the rest of the request."""
        try:
            written = connection.write(connection.to_write)
        except WANT:
            return
        except OSError as error:
            self._broken(connection, write_failure(error))
            return
        connection.to_write = connection.to_write[written:]
        if not connection.to_write:
            connection.state = AWAITING
            self._epoll.modify(connection.fd, select.EPOLLIN)

    # -- its reply's way in

    def read(self, connection: Connection) -> None:
        """A connection that awaits a reply is readable."""
        try:
            data = connection.read(READ_BYTES)
        except WANT:
            return
        except OSError as error:
            self._cut_short(connection, error)
            return
        end_s = clock()
        if connection.reader is None:
            known = self._known.get(data[: data.find(b"\r\n\r\n") + 4])
            if known is not None and known[0] == len(data):
                self._whole(connection, end_s, known[1], len(data), stays=known[2])
                return
            connection.reader = ReplyReader(head_request=self._traffic.head_request)
        if not data:
            self._cut_short(connection, None)
            return
        connection.received += len(data)
        try:
            reply = connection.reader.feed(data)
        except BadReplyError as error:
            self._broken(connection, Verdict("bad_reply", error.code))
            return
        if reply is not None:
            if connection.received == len(data) and reply.head.framing is Framing.LENGTH and not reply.excess_bytes:
                self._learn(data, reply)
            self._replied(connection, end_s, reply)

    def _replied(self, connection: Connection, end_s: float, reply: Reply) -> None:
        if reply.excess_bytes:
            # Bytes after the end: the next reply could not be told from them.
            self._broken(connection, Verdict("bad_reply", "excess"))
            return
        kind = self._kinds.of_reply(reply.head, self._checked(reply))
        self._whole(connection, end_s, kind, connection.received, stays=reply.head.keep_alive)

    def _checked(self, reply: Reply) -> str | None:
        expected = self._traffic.expect_bytes
        return None if expected is None or reply.body_bytes == expected else "wrong_reply"

    def _learn(self, data: bytes, reply: Reply) -> None:
        """Remember the head of a reply that came in one piece: the next one like it needs no parsing."""
        end = data.find(b"\r\n\r\n") + 4
        if end + reply.body_bytes != len(data):
            return  # an interim reply stood before it
        if len(self._known) >= KNOWN_HEADS:
            self._known.clear()
        self._known[data[:end]] = (
            len(data),
            self._kinds.of_reply(reply.head, self._checked(reply)),
            reply.head.keep_alive,
        )

    def _whole(self, connection: Connection, end_s: float, kind: int, size: int, *, stays: bool) -> None:
        self._recorder.rows.extend((connection.intended_s, connection.excused_s, connection.sent_s, end_s, kind, size))
        del self.busy[connection]
        connection.reader = None
        connection.received = 0
        connection.served += 1
        connection.free_s = end_s - self.unseen_s
        connection.has_slot = False
        connection.state = IDLE
        if stays and not connection.to_write:
            self._go_on(connection)
        else:
            self._recorder.connection(end_s, Recorder.CLOSED_BY_US)
            self._shut(connection)
            self._reopen(connection)

    def _cut_short(self, connection: Connection, error: OSError | None) -> None:
        """The peer ended the connection under a request."""
        reader = connection.reader
        if error is None and reader is not None:
            reply = reader.end_of_file()
            if reply is not None:
                self._replied(connection, clock(), reply)
                return
        begun = reader is not None and reader.begun
        self._recorder.connection(clock(), Recorder.PEER_CLOSED_BUSY)
        self._broken(connection, read_failure(error, reply_begun=begun, used_before=connection.served > 0))

    # -- endings without a reply

    def expire(self, now_s: float) -> None:
        """End what has waited longer than the limit for its reply."""
        limit_s = self._traffic.timeout_s
        while limit_s is not None and self.busy:
            oldest = next(iter(self.busy))
            if now_s - oldest.sent_s < limit_s:
                return
            self._recorder.connection(now_s, Recorder.CLOSED_BY_US)
            self._broken(oldest, Verdict("read_timeout", "ETIMEDOUT"))

    def idle_ready(self, connection: Connection) -> None:
        """An idle connection is readable: the peer closed it, sent a TLS message, or speaks unasked."""
        try:
            data = connection.read(READ_BYTES)
        except WANT:
            return
        except OSError:
            data = b""
        self._recorder.connection(clock(), Recorder.CLOSED_BY_US if data else Recorder.PEER_CLOSED_IDLE)
        self._shut(connection)
        self._reopen(connection)

    def _broken(self, connection: Connection, verdict: Verdict) -> None:
        """The slot on the connection fails, and the connection with it."""
        self.busy.pop(connection, None)
        self._shut(connection)
        self._failed(connection, verdict)
        self._reopen(connection)

    def _failed(self, connection: Connection, verdict: Verdict) -> None:
        """Write a slot's failure down; wrk2's way keeps the slot for another attempt."""
        end_s = clock()
        repeat = self._traffic.wrk2
        kind = self._kinds.of_verdict(verdict, repeat=repeat)
        self._recorder.rows.extend(
            (connection.intended_s, connection.excused_s, connection.sent_s, end_s, kind, connection.received)
        )
        connection.received = 0
        connection.free_s = end_s
        connection.has_slot = repeat

    def _open_failed(self, connection: Connection, verdict: Verdict) -> None:
        if connection.has_slot:
            self._failed(connection, verdict)
        if connection.has_slot:
            self._postpone(connection)
        elif self._ledger.owes(connection):
            # What fell due during the attempt makes its own. Not from here: refusals would nest as deep as slots are
            # owed.
            heapq.heappush(self._later, (clock(), next(self._sequence), connection))
            self._take(connection)

    # -- what a connection does next

    def _opened(self, connection: Connection, opened: Opened) -> None:
        self._recorder.opening(opened.end_s, opened.connect_s, opened.tls_s)
        connection.state = IDLE
        connection.free_s = opened.end_s
        if connection.has_slot:
            self._send(connection)
        else:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """The connection is free: send what it owes, or wait for its next slot."""
        if self._ledger.owes(connection):
            catching_up = self._traffic.wrk2 and not math.isnan(connection.sent_s)
            last_s = connection.sent_s
            self._take(connection)
            if catching_up and last_s + self._ledger.period_s / 2 > clock():
                self._postpone(connection, last_s)
            else:
                self._send(connection)

    def _postpone(self, connection: Connection, last_s: float | None = None) -> None:
        """Not before half a period after the last attempt: catching up goes at twice the rate at most."""
        at_s = (clock() if last_s is None else last_s) + self._ledger.period_s / 2
        connection.free_s = at_s  # until then it waits by the rule, not by our own fault
        heapq.heappush(self._later, (at_s, next(self._sequence), connection))

    def _reopen(self, connection: Connection) -> None:
        """A connection was lost: open it anew, at once if a slot is owed and in its turn otherwise."""
        if connection.has_slot:
            self._postpone(connection)
        elif self._ledger.owes(connection):
            self._take(connection)
            self.opener.open(connection)
        elif not connection.retiring:
            self.opener.queue(connection)

    def let_go(self, connection: Connection) -> None:
        """Close a connection for good, unless a slot still needs it."""
        if connection.has_slot or self._ledger.owes(connection):
            return
        self.opener.forget(connection)
        if connection.sock is not None:
            self._recorder.connection(clock(), Recorder.CLOSED_BY_US)
        self._shut(connection)
        connection.state = GONE

    def abandon(self, connection: Connection) -> None:
        """Close a connection whatever it carries."""
        self.opener.forget(connection)
        self.busy.pop(connection, None)
        connection.has_slot = False
        connection.debts.clear()
        self._shut(connection)
        connection.state = GONE

    def _shut(self, connection: Connection) -> None:
        self._by_fd.pop(connection.fd, None)
        connection.drop()
        connection.state = CLOSED
