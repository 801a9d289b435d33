"""A server of bad and good manners for the pump's tests: one port for each behaviour, real sockets, a process of its
own.

`python engine_server.py PEM` prints {behaviour: port} and serves until its standard input ends. The pump's process is
patched by gevent, so threads there would be none; here they are.
"""

import itertools
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

BODY = b"x" * 100
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-Swarm-Backend: 1\r\nX-Swarm-Gateway: gw\r\n"
WHOLE = HEAD + b"\r\n" + BODY
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32;a=b\r\n" + b"y" * 50 + b"\r\n32\r\n" + b"z" * 50
CHUNKS += b"\r\n0\r\nTrailer: x\r\n\r\n"

Behaviour = Callable[[socket.socket, int], None]
"""Serves one connection, which is the n-th (from 0) of its port; the caller closes it."""


def requests(connection: socket.socket) -> bool:
    """Wait for a whole head; False when the peer has closed."""
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        more = connection.recv(65_536)
        if not more:
            return False
        got += more
    return True


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def replies(*pieces: bytes, pause_s: float = 0.0, close: bool = False, times: int = 1 << 30) -> Behaviour:
    """Answer each request with the pieces; close after each, or after so many requests."""

    def serve(connection: socket.socket, number: int) -> None:
        del number
        for _ in range(times):
            if not requests(connection):
                return
            for piece in pieces:
                connection.sendall(piece)
                if pause_s:
                    time.sleep(pause_s)
            if close:
                return

    return serve


def bytewise(raw: bytes) -> list[bytes]:
    return [raw[place : place + 1] for place in range(len(raw))]


def breaks(before: bytes, *, good: int = 0) -> Behaviour:
    """After so many good replies: send this much of one, then reset the connection."""

    def serve(connection: socket.socket, number: int) -> None:
        replies(WHOLE, times=good)(connection, number)
        if requests(connection):
            connection.sendall(before)
            if before:
                time.sleep(0.02)  # what was sent must be read before the reset throws it away
            reset(connection)

    return serve


def resets_at_first(times: int) -> Behaviour:
    """The first connections break; later ones are served well."""

    def serve(connection: socket.socket, number: int) -> None:
        (breaks(b"") if number < times else replies(WHOLE))(connection, number)

    return serve


def then(first: bytes, *pieces: bytes) -> Behaviour:
    """The first reply in one piece, the others in these."""

    def serve(connection: socket.socket, number: int) -> None:
        replies(first, times=1)(connection, number)
        replies(*pieces, pause_s=0.002)(connection, number)

    return serve


def statuses(connection: socket.socket, number: int) -> None:
    del number
    for status in (301, 404, 503, 200, 204):
        if not requests(connection):
            return
        connection.sendall(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())


def silent(connection: socket.socket, number: int) -> None:
    del number
    while connection.recv(65_536):
        pass


def closes_idle(connection: socket.socket, number: int) -> None:
    del number
    if requests(connection):
        connection.sendall(WHOLE)
        time.sleep(0.01)


def speaks_unasked(connection: socket.socket, number: int) -> None:
    del number
    if requests(connection):
        connection.sendall(WHOLE)
        time.sleep(0.01)
        connection.sendall(WHOLE)
        connection.recv(1)


def slow_first(connection: socket.socket, number: int) -> None:
    """One long wait, so that slots pile up behind it; then as fast as can be."""
    if requests(connection):
        time.sleep(0.1)
        connection.sendall(WHOLE)
        replies(WHOLE)(connection, number)


def drains_slowly(connection: socket.socket, number: int) -> None:
    """Take in a request of many megabytes, slowly at first."""
    del number
    tail = b""
    while True:
        time.sleep(0.001)
        more = connection.recv(1 << 18)
        if not more:
            return
        tail = (tail + more)[-4:]
        if tail == b"END!":
            connection.sendall(WHOLE)
            tail = b""


def answers_early(connection: socket.socket, number: int) -> None:
    """Reply before the request is whole, and read no further."""
    del number
    connection.recv(4_096)
    connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    time.sleep(0.5)


def closes_in_the_handshake(connection: socket.socket, number: int) -> None:
    del number
    connection.recv(65_536)


BEHAVIOURS: dict[str, Behaviour] = {
    "keep_alive": replies(WHOLE),
    "close_each": replies(HEAD + b"Connection: close\r\n\r\n" + BODY, close=True),
    "says_close": replies(HEAD + b"Connection: close\r\n\r\n" + BODY),
    "http10": replies(b"HTTP/1.0 200 OK\r\n\r\n" + BODY, close=True),
    "close_delimited": replies(b"HTTP/1.1 200 OK\r\n\r\n", BODY, pause_s=0.005, close=True),
    "reset": breaks(b""),
    "reset_reused": breaks(b"", good=1),
    "eof": replies(close=True),
    "eof_reused": replies(WHOLE, times=2),
    "truncated": replies(HEAD + b"\r\nabc", close=True),
    "truncated_reset": breaks(HEAD + b"\r\nabc"),
    "garbage": replies(b"SSH-2.0-OpenSSH_9.9\r\n"),
    "bad_length": replies(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    "switching": replies(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
    "excess": replies(WHOLE + b"HTTP/1.1 200 OK\r\n"),
    "silent": silent,
    "closes_idle": closes_idle,
    "speaks_unasked": speaks_unasked,
    "interim": replies(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", WHOLE, pause_s=0.002),
    "interim_at_once": replies(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE),
    "chunked": replies(CHUNKS),
    "chunked_bytewise": replies(*bytewise(CHUNKS)),
    "drip": replies(*bytewise(HEAD + b"\r\n"), BODY, pause_s=0.0005),
    "head": replies(HEAD + b"\r\n"),
    "no_content": replies(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "whole_then_split": then(WHOLE, WHOLE[:120], WHOLE[120:]),
    "whole_then_excess": then(WHOLE, WHOLE + b"x"),
    "statuses": statuses,
    "slow": replies(b"", WHOLE, pause_s=0.015),
    "slow_first": slow_first,
    "drains_slowly": drains_slowly,
    "answers_early": answers_early,
    "closes_in_the_handshake": closes_in_the_handshake,
    "resets_3": resets_at_first(3),
}
# Name of a port with TLS: what it does, and whether it says goodbye (close_notify) before it closes.
OVER_TLS = {
    "tls_keep_alive": ("keep_alive", False),
    "tls_close_each": ("close_each", False),
    "tls_http10": ("http10", True),
    "tls_http10_without_goodbye": ("http10", False),
    "tls_truncated": ("truncated", False),
    "tls_closes_idle": ("closes_idle", True),
    "tls_closes_idle_without_goodbye": ("closes_idle", False),
    "tls_reset": ("reset", False),
    "tls_eof_reused": ("eof_reused", True),
    "tls_chunked_bytewise": ("chunked_bytewise", False),
    "tls_drains_slowly": ("drains_slowly", False),
}


def plainly(behaviour: Behaviour) -> Behaviour:
    def serve(plain: socket.socket, number: int) -> None:
        with plain:
            behaviour(plain, number)

    return serve


def secured(behaviour: Behaviour, context: ssl.SSLContext, *, goodbye: bool) -> Behaviour:
    def serve(plain: socket.socket, number: int) -> None:
        with plain, context.wrap_socket(plain, server_side=True) as connection:
            behaviour(connection, number)
            if goodbye:
                connection.settimeout(0.1)
                connection.unwrap()

    return serve


def serve_port(listener: socket.socket, behaviour: Behaviour) -> None:
    for number in itertools.count():
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, behaviour, number), daemon=True).start()


def serve(connection: socket.socket, behaviour: Behaviour, number: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):  # the peer may go away at any moment: that is what half of the tests are about
        behaviour(connection, number)


def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    services = {name: plainly(behaviour) for name, behaviour in BEHAVIOURS.items()}
    for name, (behaviour, goodbye) in OVER_TLS.items():
        services[name] = secured(BEHAVIOURS[behaviour], context, goodbye=goodbye)
    ports: dict[str, int] = {}
    for name, service in services.items():
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        ports[name] = listener.getsockname()[1]
        threading.Thread(target=serve_port, args=(listener, service), daemon=True).start()
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
