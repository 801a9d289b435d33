"""The reply reader: the same result however a reply is cut up, and nothing a peer can send breaks it."""

import itertools
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locustfiles.engine._reply import (
    BODY_LIMIT,
    HEAD_LIMIT,
    INTERIM_LIMIT,
    LINE_LIMIT,
    BadReplyError,
    Framing,
    Head,
    Reply,
    ReplyReader,
    parse_head,
)

OK = b"HTTP/1.1 200 OK\r\n"


def head(raw: bytes, *, head_request: bool = False) -> Head:
    return parse_head(raw.removesuffix(b"\r\n"), head_request=head_request)


def read(*pieces: bytes, head_request: bool = False) -> Reply | None:
    """Feed the pieces; only the last one may complete the reply."""
    reader = ReplyReader(head_request=head_request)
    reply = None
    for piece in pieces:
        assert reply is None
        reply = reader.feed(piece)
    return reply


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % len(raw) for place in places} - {0}), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(edges)]


# -- valid replies, made up with what a reader must find in them


@dataclass(frozen=True)
class Made:
    raw: bytes
    framing: Framing
    status: int
    body_bytes: int
    keep_alive: bool
    backend: str
    head_request: bool


tokens = st.text("abcXYZ019-_", min_size=1, max_size=8)
values = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=12).map(str.strip)
blanks = st.sampled_from(["", " ", "\t", "  \t"])
INTERIMS = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 \r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n",
]
bodies = st.one_of(st.binary(max_size=60), st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n", OK, b"HTTP/1.1 100 C\r\n\r\n"]))


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    """The body in chunks of any size, with extensions and trailers."""
    raw, left = b"", body
    while left:
        size = draw(st.integers(1, len(left)))
        number = draw(st.sampled_from([f"{size:x}", f"{size:X}", f"000{size:x}"]))
        extension = draw(st.sampled_from(["", ";name", ' ;name="a value"', "; a=1;b"]))
        raw += f"{number}{extension}\r\n".encode() + left[:size] + b"\r\n"
        left = left[size:]
    trailers = draw(st.lists(st.tuples(tokens, values), max_size=2))
    fields = "".join(f"{name}: {value}\r\n" for name, value in trailers).encode("latin-1")
    return raw + draw(st.sampled_from([b"0", b"000", b"0;last"])) + b"\r\n" + fields + b"\r\n"


@st.composite
def replies(draw: st.DrawFn) -> Made:
    head_request = draw(st.booleans())
    minor = draw(st.sampled_from([1, 1, 1, 0]))
    status = draw(st.sampled_from([200, 201, 204, 206, 301, 304, 404, 418, 500, 503, 599]))
    body = draw(bodies)
    bodiless = head_request or status in (204, 304)
    framing = draw(st.sampled_from([*Framing] if minor else [Framing.LENGTH, Framing.CLOSE]))
    fields = draw(st.lists(st.tuples(tokens.map(lambda name: f"X-{name}"), values), max_size=3))
    backend = draw(st.sampled_from(["", "7", "web-\xe9"]))
    if backend:
        fields.append(("X-Swarm-Backend", backend))
    connection = draw(st.sampled_from([None, "close", "Keep-Alive", "keep-alive, upgrade", "CLOSE , x"]))
    if connection is not None:
        fields.append(("Connection", connection))
    if framing is Framing.LENGTH:
        fields += [("content-LENGTH", str(len(body)))] * draw(st.integers(1, 2))
        payload = body
    elif framing is Framing.CHUNKED:
        fields.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked", "gzip, chunked"]))))
        payload = draw(chunked(body))
    else:
        payload = body
    lines = [f"{name}:{draw(blanks)}{value}{draw(blanks)}\r\n" for name, value in draw(st.permutations(fields))]
    interims = b"".join(draw(st.lists(st.sampled_from(INTERIMS), max_size=3)))
    reason = draw(st.sampled_from([" OK", " Not really (\xfc)", " ", ""]))
    start = f"HTTP/1.{minor} {status}{reason}\r\n"
    raw = interims + (start + "".join(lines)).encode("latin-1") + b"\r\n" + (b"" if bodiless else payload)
    found = Framing.LENGTH if bodiless else framing
    stays = {"close": False, "CLOSE , x": False, None: minor == 1}.get(connection, True)
    return Made(
        raw,
        found,
        status,
        0 if bodiless else len(body),
        stays and found is not Framing.CLOSE,
        backend,
        head_request,
    )


@settings(deadline=None, max_examples=60)
@given(replies(), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_any_split_of_any_valid_reply_gives_the_same(made: Made, places: list[int], bytewise: bool) -> None:
    reader = ReplyReader(head_request=made.head_request)
    pieces = [made.raw[place : place + 1] for place in range(len(made.raw))] if bytewise else cut(made.raw, places)
    got = [reader.feed(piece) for piece in pieces]
    assert got[:-1] == [None] * (len(got) - 1)
    reply = got[-1] if made.framing is not Framing.CLOSE else reader.end_of_file()
    assert reply is not None
    assert (reply.head.status, reply.head.framing) == (made.status, made.framing)
    assert (reply.body_bytes, reply.excess_bytes) == (made.body_bytes, 0)
    assert reply.head.keep_alive == made.keep_alive
    assert reply.head.backend == made.backend
    if made.framing is not Framing.CLOSE:
        assert reply == read(made.raw, head_request=made.head_request)


@settings(deadline=None, max_examples=30)
@given(replies().filter(lambda made: made.framing is not Framing.CLOSE), st.binary(min_size=1, max_size=40))
def test_bytes_after_the_end_are_counted(made: Made, excess: bytes) -> None:
    reply = read(made.raw + excess, head_request=made.head_request)
    assert reply is not None
    assert (reply.body_bytes, reply.excess_bytes) == (made.body_bytes, len(excess))


@settings(deadline=None, max_examples=30)
@given(replies().filter(lambda made: made.framing is not Framing.CLOSE), st.data())
def test_a_reply_that_is_cut_short_is_no_reply(made: Made, data: st.DataObject) -> None:
    reader = ReplyReader(head_request=made.head_request)
    assert reader.feed(made.raw[: data.draw(st.integers(0, len(made.raw) - 1))]) is None
    assert reader.end_of_file() is None


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"X: " + b"a" * (HEAD_LIMIT - len(OK) - 3 - 19) + b"\r\nContent-Length: 0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * (LINE_LIMIT - 2) + b"\r\na\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"x" * (LINE_LIMIT - 3) + b"\r\n\r\n",
    ],
    ids=["head", "chunk extension", "trailer"],
)
def test_a_split_within_the_last_line_end_at_the_limit(raw: bytes) -> None:
    """What is just long enough in one piece is so in two, wherever the cut is."""
    whole = read(raw)
    assert whole is not None
    line_ends = [place + offset for place in range(len(raw)) if raw.startswith(b"\r\n", place) for offset in (0, 1, 2)]
    for place in line_ends:
        assert len(raw) <= place or read(raw[:place], raw[place:]) == whole


# -- heads


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (OK + b"Content-Length: 5", (200, Framing.LENGTH, 5, True)),
        (OK + b"Content-Length: 5\r\nContent-Length: 5", (200, Framing.LENGTH, 5, True)),
        (OK + b"content-length:\t0005 ", (200, Framing.LENGTH, 5, True)),
        (OK + f"Content-Length: {BODY_LIMIT}".encode(), (200, Framing.LENGTH, BODY_LIMIT, True)),
        (OK + b"Transfer-Encoding: chunked", (200, Framing.CHUNKED, 0, True)),
        (OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", (200, Framing.CHUNKED, 0, True)),
        (b"HTTP/1.1 200 OK", (200, Framing.CLOSE, 0, False)),
        (b"HTTP/1.1 200", (200, Framing.CLOSE, 0, False)),
        (OK + b"Content-Length: 5\r\nConnection: close", (200, Framing.LENGTH, 5, False)),
        (OK + b"Content-Length: 5\r\nConnection: x\r\nConnection: Close", (200, Framing.LENGTH, 5, False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5", (200, Framing.LENGTH, 5, False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive", (200, Framing.LENGTH, 5, True)),
        (b"HTTP/1.1 204 No\r\nContent-Length: 5", (204, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked", (304, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 103 Early", (103, Framing.LENGTH, 0, True)),
    ],
)
def test_framing_and_keep_alive(raw: bytes, expected: tuple[int, Framing, int, bool]) -> None:
    found = head(raw)
    assert (found.status, found.framing, found.length, found.keep_alive) == expected


@pytest.mark.parametrize("fields", [b"Content-Length: 5000", b"Transfer-Encoding: chunked", b"X: y"])
def test_a_reply_to_a_head_request_has_no_body(fields: bytes) -> None:
    found = head(OK + fields, head_request=True)
    assert (found.framing, found.length, found.keep_alive) == (Framing.LENGTH, 0, True)
    assert read(OK + fields + b"\r\n\r\n", head_request=True) == Reply(found, 0, 0)


def test_markers_are_read() -> None:
    found = head(
        OK + b"x-swarm-gateway: nginx-0\r\nX-SWARM-BACKEND: 3\r\nX-Swarm-Path: /v2/a\r\n"
        b"Access-Control-Allow-Origin: *\r\nContent-Length: 0"
    )
    assert (found.gateway, found.backend, found.path, found.cors) == ("nginx-0", "3", "/v2/a", True)
    plain = head(OK + b"Content-Length: 0")
    assert (plain.gateway, plain.backend, plain.path, plain.cors) == ("", "", "", False)


def test_a_long_marker_is_cut() -> None:
    assert head(OK + b"X-Swarm-Backend: " + b"a" * 5000).backend == "a" * 256


BAD_HEADS = [
    (b"", "status_line"),
    (b"SSH-2.0-OpenSSH", "status_line"),
    (b"http/1.1 200 OK", "status_line"),
    (b"HTTP/2 200", "status_line"),
    (b"HTTP/1.2 200 OK", "status_line"),
    (b"HTTP/1.1 20 OK", "status_line"),
    (b"HTTP/1.1 2000 OK", "status_line"),
    (b"HTTP/1.1 600 OK", "status_line"),
    (b"HTTP/1.1 099 OK", "status_line"),
    (b"HTTP/1.1  200 OK", "status_line"),
    (b" HTTP/1.1 200 OK", "status_line"),
    (b"HTTP/1.1 200 O\0K", "status_line"),
    (b"HTTP/1.1 200 OK\nX: y", "status_line"),
    (OK + b"X: a\r\n folded", "header"),
    (OK + b"X: a\nY: b", "header"),
    (OK + b"X: a\rY: b", "header"),
    (OK + b"X: a\0b", "header"),
    (OK + b"X\0: a", "header"),
    (OK + b"X : a", "header"),
    (OK + b": a", "header"),
    (OK + b"no colon", "header"),
    (OK + b"X: \x7f", "header"),
    (OK + b"Content-Length: 5\r\nContent-Length: 6", "content_length"),
    (OK + b"Content-Length: 5, 5", "content_length"),
    (OK + b"Content-Length: -5", "content_length"),
    (OK + b"Content-Length: +5", "content_length"),
    (OK + b"Content-Length: 0x5", "content_length"),
    (OK + b"Content-Length: 5 5", "content_length"),
    (OK + b"Content-Length:", "content_length"),
    (OK + b"Content-Length: " + b"9" * 19, "content_length"),
    (OK + b"Content-Length: \xb2", "content_length"),
    (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked", "framing"),
    (OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5", "framing"),
    (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked", "framing"),
    (OK + b"Transfer-Encoding: gzip", "transfer_encoding"),
    (OK + b"Transfer-Encoding: chunked, gzip", "transfer_encoding"),
    (OK + b"Transfer-Encoding: xchunked", "transfer_encoding"),
    (OK + b"Transfer-Encoding:", "transfer_encoding"),
    (OK + f"Content-Length: {BODY_LIMIT + 1}".encode(), "body_limit"),
]


@pytest.mark.parametrize(("raw", "code"), BAD_HEADS)
def test_a_bad_head_is_refused_with_its_code(raw: bytes, code: str) -> None:
    with pytest.raises(BadReplyError) as caught:
        head(raw)
    assert caught.value.code == code
    with pytest.raises(BadReplyError, match=code):
        read(raw + b"\r\n\r\n")


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (CHUNKED + b"-5\r\n", "chunk"),
        (CHUNKED + b"+5\r\n", "chunk"),
        (CHUNKED + b"0x5\r\n", "chunk"),
        (CHUNKED + b"\r\n", "chunk"),
        (CHUNKED + b" 5\r\n", "chunk"),
        (CHUNKED + b"5 5\r\n", "chunk"),
        (CHUNKED + b"g\r\n", "chunk"),
        (CHUNKED + b"5\nabcde\r\n", "chunk"),
        (CHUNKED + b"5;a\0b\r\n", "chunk"),
        (CHUNKED + b"f" * 16 + b"\r\n", "chunk"),
        (CHUNKED + b"2\r\nabc\r\n", "chunk"),
        (CHUNKED + b"1\r\na\r\n1\r\nbc", None),
        (CHUNKED + b"5;" + b"x" * LINE_LIMIT + b"\r\n", "chunk"),
        (CHUNKED + b"0\r\nno colon\r\n\r\n", "trailer"),
        (CHUNKED + b"0\r\n folded: x\r\n\r\n", "trailer"),
        (CHUNKED + b"0\r\n" + b"T: " + b"x" * 2000 + b"\r\n", None),
        (CHUNKED + b"0\r\n" + (b"T: " + b"x" * 2000 + b"\r\n") * 33, "trailer"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "interim"),
        (b"HTTP/1.1 103 Early\r\n\r\n" * INTERIM_LIMIT, None),
        (b"HTTP/1.1 103 Early\r\n\r\n" * (INTERIM_LIMIT + 1), "interim"),
        (OK + b"X: " + b"a" * HEAD_LIMIT, "head_limit"),
        (OK + b"X: " + b"a" * HEAD_LIMIT + b"\r\n\r\n", "head_limit"),
        (OK + b"A: b\r\n" * (HEAD_LIMIT // 6), "head_limit"),
        (b"X", "status_line"),
        (b"HTTP/2", "status_line"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "status_line"),
        (b"HTTP/1", None),
    ],
)
@pytest.mark.parametrize("step", [1 << 20, 1000, 61])
def test_a_bad_reply_is_refused_with_its_code_however_it_comes(raw: bytes, code: str | None, step: int) -> None:
    """`code` None: nothing is wrong so far."""
    pieces = [raw[start : start + step] for start in range(0, len(raw), step)]
    if code is None:
        assert read(*pieces) is None
        return
    with pytest.raises(BadReplyError) as caught:
        read(*pieces)
    assert caught.value.code == code


def test_bytes_that_are_no_http_are_refused_at_once() -> None:
    """A peer that speaks something else may never send a blank line."""
    with pytest.raises(BadReplyError, match="status_line"):
        read(b"220 mail.example.test ESMTP\r\n")


@pytest.mark.parametrize(
    "framing", [b"\r\n", b"Transfer-Encoding: chunked\r\n\r\nfffffff0\r\n"], ids=["close", "chunk"]
)
def test_a_body_that_does_not_end_is_refused_at_the_limit(framing: bytes) -> None:
    reader = ReplyReader(head_request=False)
    reader.feed(OK + framing)
    megabyte = bytes(1 << 20)
    for _ in range(BODY_LIMIT >> 20):
        assert reader.feed(megabyte) is None
    with pytest.raises(BadReplyError, match="body_limit"):
        reader.feed(b"x")


# -- anything at all

FRAGMENTS = [
    OK,
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 204 \r\n",
    b"Content-Length: 7\r\n",
    b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"5\r\nabcde\r\n",
    b"0\r\n",
    b"ffffffffffff\r\n",
    b";x=y",
    b"a" * 5000,
    b"\0",
]
anything = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=40)


CODES = {
    *("status_line", "header", "content_length", "framing", "transfer_encoding"),
    *("head_limit", "body_limit", "interim", "chunk", "trailer"),
}


def ending(pieces: list[bytes], head_request: bool) -> Reply | str | None:
    """The reply that the pieces hold, the code for which they were refused, or None: more is needed."""
    reader = ReplyReader(head_request=head_request)
    try:
        for piece in pieces:
            reply = reader.feed(piece)
            if reply is not None:
                return reply
    except BadReplyError as error:
        return error.code
    return reader.end_of_file()


@settings(deadline=None)
@given(anything, st.booleans())
@example([b"HTTP/1.1 200 OK\r\nX: "] + [b"a" * 5000] * 20, False)
def test_any_bytes_are_a_reply_or_refused(pieces: list[bytes], head_request: bool) -> None:
    ended = ending(pieces, head_request)
    if isinstance(ended, Reply):
        assert 0 <= ended.body_bytes + ended.excess_bytes <= sum(map(len, pieces))
        assert 200 <= ended.head.status < 600
    else:
        assert ended is None or ended in CODES


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (OK, b"X: " + b"a" * 1000 + b"\r\n"),
        (OK + b"X: ", b"a" * 1000),
        (OK + b"\r\n", b"a" * 10_000),
        (OK + b"Content-Length: 1000000000\r\n\r\n", b"a" * 10_000),
        (CHUNKED, b"1000;" + b"x" * 1000 + b"\r\n" + b"a" * 0x1000 + b"\r\n"),
        (CHUNKED + b"1000;", b"x" * 1000),
        (CHUNKED + b"0\r\n", b"T: " + b"x" * 1000 + b"\r\n"),
        (b"", b"HTTP/1.1 103 Early\r\nLink: " + b"x" * 1000 + b"\r\n\r\n"),
    ],
    ids=["fields", "field", "until close", "length", "chunks", "extension", "trailers", "interims"],
)
def test_memory_is_bounded_whatever_the_peer_sends(start: bytes, again: bytes) -> None:
    reader = ReplyReader(head_request=False)
    reader.feed(start)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            reader.feed(again)
        refused = False
    except BadReplyError:
        refused = True
    finally:
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * HEAD_LIMIT
    assert refused or held < 2 * LINE_LIMIT


@pytest.mark.parametrize(
    ("fed", "begun"), [([], False), ([b""], False), ([b"H"], True), ([b"HTTP/1.1 100 C\r\n\r\n"], True), ([OK], True)]
)
def test_a_reply_has_begun_with_its_first_byte(fed: list[bytes], begun: bool) -> None:
    reader = ReplyReader(head_request=False)
    for piece in fed:
        reader.feed(piece)
    assert reader.begun is begun
