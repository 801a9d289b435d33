"""JSON objects, one a line, over a Unix socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["LineError", "LineSocket", "decode_line", "encode_line"]

LONGEST_BYTES = 1 << 20


class LineError(Exception):
    """What came is no line of JSON."""


def encode_line(message: Mapping[str, object]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, allow_nan=False).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, object]:
    """Return the object in a line; raise LineError if there is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_object(line) from error
    if not isinstance(message, dict):
        raise _no_object(line)
    return message


def _no_object(line: bytes) -> LineError:
    return LineError(f"given {line.strip()[:60]!r}, allowed one JSON object on a line")


class LineSocket:
    """A connection that carries one JSON object a line in each direction. Closes itself as a context manager."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")

    @classmethod
    def connect(cls, path: Path, *, timeout_s: float) -> LineSocket:
        """Connect to a Unix socket; every later wait is limited to `timeout_s`. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message; raises OSError."""
        self._connection.sendall(encode_line(message))

    def receive(self) -> dict[str, object] | None:
        """Return the next message, or None at the end; raises LineError and OSError."""
        line = self._reader.readline(LONGEST_BYTES)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise LineError(f"given a line of {len(line)} bytes that does not end, allowed {LONGEST_BYTES}")
        return decode_line(line)

    def __enter__(self) -> LineSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._connection.close()
