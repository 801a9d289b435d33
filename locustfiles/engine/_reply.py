"""A small strict reader of HTTP/1 replies. It finds where a reply ends and what its head says; bodies are counted,
never kept.

Memory is bounded whatever the peer sends: a head by HEAD_LIMIT, a line of the chunked framing by LINE_LIMIT, and a
body by a number, not by its bytes. Anything that leaves the end of a reply in doubt is an error, because the next
reply on the connection would be misread.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEAD_LIMIT: Final = 65_536
LINE_LIMIT: Final = 4_096
INTERIM_LIMIT: Final = 16
BODY_LIMIT: Final = 1 << 30

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\Z")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\Z")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}\Z")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z")


class BadReplyError(Exception):
    """The bytes are no HTTP/1 reply that can be told apart from the next one; `code` is a short word for the report."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Framing(Enum):
    """How the end of a body is known."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Head:
    """What the load needs to know of a reply's head. `length` is the body's bytes with Framing.LENGTH, else 0."""

    status: int
    framing: Framing
    length: int
    keep_alive: bool
    gateway: str
    backend: str
    path: str
    cors: bool


def parse_head(raw: bytes, *, head_request: bool) -> Head:
    """Parse a head without its closing blank line.

    `head_request`: the request was a HEAD, so no body follows. Raises BadReplyError.
    """
    lines = raw.split(b"\r\n")
    match = _STATUS_LINE.match(lines[0])
    if match is None:
        raise BadReplyError("status_line")
    minor, status = match[1], int(match[2])
    fields: dict[bytes, bytes] = {}
    for line in lines[1:]:
        field = _FIELD.match(line)
        if field is None:
            raise BadReplyError("header")
        name, value = field[1].lower(), field[2].rstrip(b" \t")
        if name == b"content-length" and fields.get(name, value) != value:
            raise BadReplyError("content_length")
        if name in (b"connection", b"transfer-encoding") and name in fields:
            value = fields[name] + b"," + value
        fields[name] = value
    framing, length = _framing(status, minor, fields, head_request=head_request)
    return Head(
        status=status,
        framing=framing,
        length=length,
        keep_alive=framing is not Framing.CLOSE and _keep_alive(minor, fields.get(b"connection", b"")),
        gateway=_text(fields.get(b"x-swarm-gateway", b"")),
        backend=_text(fields.get(b"x-swarm-backend", b"")),
        path=_text(fields.get(b"x-swarm-path", b"")),
        cors=b"access-control-allow-origin" in fields,
    )


def _framing(status: int, minor: bytes, fields: dict[bytes, bytes], *, head_request: bool) -> tuple[Framing, int]:
    """The order of RFC 9112, section 6.3, with both length and coding refused instead of preferring one."""
    coding, given = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if given is not None and not _DIGITS.match(given):
        raise BadReplyError("content_length")
    if coding is not None and (given is not None or minor == b"0"):
        raise BadReplyError("framing")
    if head_request or status < 200 or status in (204, 304):
        return Framing.LENGTH, 0
    if coding is not None:
        codings = [part.strip() for part in coding.lower().split(b",")]
        if codings[-1] != b"chunked" or codings.count(b"chunked") > 1:
            raise BadReplyError("transfer_encoding")
        return Framing.CHUNKED, 0
    if given is None:
        return Framing.CLOSE, 0
    if int(given) > BODY_LIMIT:
        raise BadReplyError("body_limit")
    return Framing.LENGTH, int(given)


def _keep_alive(minor: bytes, connection: bytes) -> bool:
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"close" not in options and (minor == b"1" or b"keep-alive" in options)


def _text(value: bytes) -> str:
    return value[:256].decode("latin-1")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply: its head, the bytes of its body, and how many bytes came after its end (a peer that sends
    unasked).
    """

    head: Head
    body_bytes: int
    excess_bytes: int


class _At(Enum):
    HEAD = 0
    BODY = 1
    CHUNK_SIZE = 2
    CHUNK_END = 3
    TRAILER = 4
    UNTIL_CLOSE = 5
    DONE = 6


class ReplyReader:
    """Reads one reply, in any pieces: `feed` until it returns a Reply, or `end_of_file` when the peer closes."""

    def __init__(self, *, head_request: bool) -> None:
        self._head_request = head_request
        self._at = _At.HEAD
        self._pending = b""
        self._head: Head | None = None
        self._left = 0
        self._body_bytes = 0
        self._interims = 0
        self._trailer_bytes = 0

    @property
    def begun(self) -> bool:
        """Whether a byte of the reply has come."""
        return self._at is not _At.HEAD or bool(self._pending) or self._interims > 0

    def feed(self, data: bytes) -> Reply | None:
        """Take the next bytes; returns the reply once it is whole, else None. Raises BadReplyError."""
        seen = len(self._pending)
        data, self._pending = self._pending + data, b""
        place: int | None = 0
        while place is not None:
            if self._at is _At.DONE:
                return self._whole(len(data) - place)
            if self._at is _At.HEAD:
                place = self._read_head(data, place, max(place, seen - 3))
            elif self._at is _At.BODY:
                place = self._read_body(data, place)
            elif self._at is _At.UNTIL_CLOSE:
                self._count(len(data) - place)
                return None
            else:
                place = self._read_line(data, place)
        return None

    def end_of_file(self) -> Reply | None:
        """The peer closed: the reply if that is how it ends, else None, and it was cut short."""
        return self._whole(0) if self._at is _At.UNTIL_CLOSE else None

    def _whole(self, excess_bytes: int) -> Reply:
        assert self._head is not None
        return Reply(self._head, self._body_bytes, excess_bytes)

    def _count(self, count: int) -> None:
        self._body_bytes += count
        if self._body_bytes > BODY_LIMIT:
            raise BadReplyError("body_limit")

    # Each of these reads one part from `place` on; it returns the place behind it, or None if more bytes are needed.

    def _read_head(self, data: bytes, place: int, look_from: int) -> int | None:
        end = data.find(b"\r\n\r\n", look_from)
        size = len(data) - place
        # Part of the blank line may be there already.
        if end - place > HEAD_LIMIT or (end < 0 and size > HEAD_LIMIT + 3):
            raise BadReplyError("head_limit")
        if end < 0:
            # Said at once: a peer that speaks something else may never send a blank line.
            if not b"HTTP/1.".startswith(data[place : place + 7]):
                raise BadReplyError("status_line")
            if _BARE_LF.search(data, look_from):
                raise BadReplyError("header")
            self._pending = data[place:]
            return None
        head = parse_head(data[place:end], head_request=self._head_request)
        if head.status < 200:
            self._interims += 1
            if head.status == 101 or self._interims > INTERIM_LIMIT:
                raise BadReplyError("interim")
        else:
            self._head, self._left = head, head.length
            self._at = _AFTER_HEAD[head.framing]
        return end + 4

    def _read_body(self, data: bytes, place: int) -> int | None:
        taken = min(self._left, len(data) - place)
        self._left -= taken
        self._count(taken)
        if self._left:
            return None
        assert self._head is not None
        self._at = _At.CHUNK_END if self._head.framing is Framing.CHUNKED else _At.DONE
        return place + taken

    def _read_line(self, data: bytes, place: int) -> int | None:
        """One line of the chunked framing: a size, the end of a chunk, or a trailer field."""
        end = data.find(b"\r\n", place)
        if end - place > LINE_LIMIT or (end < 0 and len(data) - place > LINE_LIMIT + 1):
            raise BadReplyError("chunk")
        if end < 0:
            self._pending = data[place:]
            return None
        line = data[place:end]
        if self._at is _At.CHUNK_SIZE:
            match = _CHUNK_SIZE.match(line)
            if match is None:
                raise BadReplyError("chunk")
            self._left = int(match[1], 16)
            self._at = _At.BODY if self._left else _At.TRAILER
        elif self._at is _At.CHUNK_END:
            if line:
                raise BadReplyError("chunk")
            self._at = _At.CHUNK_SIZE
        elif line:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > HEAD_LIMIT or not _FIELD.match(line):
                raise BadReplyError("trailer")
        else:
            self._at = _At.DONE
        return end + 2


_AFTER_HEAD: Final = {
    Framing.LENGTH: _At.BODY,
    Framing.CHUNKED: _At.CHUNK_SIZE,
    Framing.CLOSE: _At.UNTIL_CLOSE,
}
