"""One connection: its socket, its place in the schedule, and the slot that it carries. The steps of opening it are
here; when, is the opener's.
"""

import math
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from gevent.monkey import get_original

from locustfiles.engine._address import Address
from locustfiles.engine._reply import ReplyReader
from locustfiles.engine._schedule import Epoch

CLOSED: Final = 0  # no socket; the next slot, or the opener, makes an attempt
CONNECTING: Final = 1
HANDSHAKING: Final = 2
IDLE: Final = 3
WRITING: Final = 4  # part of a request is still to be sent
AWAITING: Final = 5  # a request is out, its reply is not whole
GONE: Final = 6  # given up for good

# gevent replaces socket.socket; the pump waits in an epoll set of its own and needs the plain one.
_PlainSocket: Final[type[socket.socket]] = get_original("socket", "socket")


@dataclass(slots=True)
class Debt:
    """Slots of an earlier epoch that a connection still owes: its turns from `turn` on, `left` of them."""

    epoch: Epoch
    number: int
    turn: int
    left: int


class Connection:
    """State is changed by the pump and the opener only; the slot travels with the connection and never with its file
    descriptor.
    """

    __slots__ = (
        "address",
        "closing",
        "connected_s",
        "debts",
        "excused_s",
        "fd",
        "free_s",
        "has_slot",
        "intended_s",
        "opening_since_s",
        "own_late_s",
        "position",
        "read",
        "reader",
        "received",
        "retiring",
        "sent_s",
        "served",
        "sock",
        "state",
        "stream",
        "to_write",
        "turn",
        "write",
    )  # fmt: skip

    def __init__(self, address: Address) -> None:
        self.address = address
        self.sock: socket.socket | None = None
        self.stream: Any = None  # the TLS object under a TLS connection, else the socket
        self.read: Any = None
        self.write: Any = None
        self.fd = -1
        self.state = CLOSED
        self.reader: ReplyReader | None = None
        self.to_write = b""
        self.position = -1
        self.turn = 0
        self.debts: list[Debt] = []
        self.has_slot = False
        self.intended_s = math.nan
        self.sent_s = math.nan
        self.free_s = -math.inf
        self.excused_s = -math.inf  # until then the slot on it could not be sent, through no fault of ours
        self.own_late_s = 0.0  # how late the latest slot was sent by our own fault
        self.opening_since_s = math.nan
        self.connected_s = math.nan
        self.served = 0
        self.received = 0
        self.retiring = False

    def begin(self) -> bool:
        """Make a socket and start to connect; returns whether it stands already. Raises OSError."""
        family, target = self.address
        sock = _PlainSocket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.sock, self.fd = sock, sock.fileno()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream, self.read, self.write = sock, sock.recv, sock.send
        self.served = 0
        try:
            sock.connect(target)
        except BlockingIOError:
            return False
        return True

    def established(self) -> None:
        """Ask the kernel how a connect ended. Raises OSError if it failed."""
        assert self.sock is not None
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, "connect")

    def start_tls(self, context: ssl.SSLContext, server_name: str) -> None:
        """Put a TLS client over the connected socket.

        `_wrap_socket` makes the bare TLS object of the standard library. Its public wrapper cannot be used: under
        gevent that is a class which waits in gevent's own loop, and the plain one refuses a patched context. Host
        name check and SNI are done inside this object all the same.
        """
        self.stream = context._wrap_socket(self.sock, server_side=False, server_hostname=server_name)  # type: ignore[attr-defined]
        self.read, self.write = self.stream.read, self.stream.write

    def drop(self) -> None:
        """Close the socket, if there is one; the slot stays."""
        self.stream = self.read = self.write = self.reader = None
        self.to_write = b""
        self.fd = -1
        if self.sock is not None:
            self.sock.close()
            self.sock = None
