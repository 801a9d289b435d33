"""Single requests to what the lab has started: to see that it serves, and to ask its admin sockets."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from infra.lab.ports import PortTakenError
from infra.lab.processes import Child
from infra.lab.spec import LabError

__all__ = ["ask", "ask_unix", "await_that", "serves"]

_TIMEOUT_S = 5.0
_SLOWEST_S = 0.05
_TAKEN = ("address in use", "address already in use")  # as musl and glibc put EADDRINUSE


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))


def ask_unix(path: Path, target: str) -> str | None:
    """Return the body of a 200 reply from a Unix socket, or None if there is no such reply yet."""
    return _body(_UnixConnection(path), target)


def ask(port: int, target: str) -> str | None:
    """Return the body of a 200 reply from a port on 127.0.0.1, or None if there is no such reply yet."""
    return _body(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S), target)


def serves(address: str, port: int, ca: Path | None) -> bool:
    """Return whether a request gets a backend's reply; with `ca`, over TLS verified against it."""
    connection: http.client.HTTPConnection
    if ca is None:
        connection = http.client.HTTPConnection(address, port, timeout=_TIMEOUT_S)
    else:
        context = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(address, port, timeout=_TIMEOUT_S, context=context)
    try:
        connection.request("GET", "/")
        reply = connection.getresponse()
        reply.read()
        return reply.status == 200 and reply.getheader("X-Swarm-Backend") is not None
    except (OSError, http.client.HTTPException):
        # A certificate that is not the lab's counts, too: Traefik shows one of its own until it has read its routes.
        return False
    finally:
        connection.close()


def await_that(holds: Callable[[], bool], child: Child, what: str, *, timeout_s: float, every_s: float) -> float:
    """Wait until `holds()`; return the moment (time.monotonic, seconds) at which it did.

    The first looks are `every_s` apart, later ones further: a long wait must not load the gateway with questions.
    Raises LabError if `child` ends or time runs out; PortTakenError if it ended because it could not bind.
    """
    limit_s = time.monotonic() + timeout_s
    while not holds():
        if child.wait(0):
            words = child.ending()
            taken = any(sign in words.lower() for sign in _TAKEN)
            raise (PortTakenError if taken else LabError)(words)
        if time.monotonic() > limit_s:
            raise LabError(f"{what} not after {timeout_s:g} s: {child.ending()}")
        time.sleep(every_s)
        every_s = min(every_s * 1.2, max(every_s, _SLOWEST_S))
    return time.monotonic()


def _body(connection: http.client.HTTPConnection, target: str) -> str | None:
    try:
        connection.request("GET", target)
        reply = connection.getresponse()
        body = reply.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if reply.status == 200 else None
