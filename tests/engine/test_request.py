"""The bytes of a request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locustfiles.engine._request import METHODS, parse_header, request_bytes


def test_a_request_byte_for_byte() -> None:
    assert request_bytes("GET", "/a?b=c", "shop.test:8443", [("X-One", "1")]) == (
        b"GET /a?b=c HTTP/1.1\r\n"
        b"Host: shop.test:8443\r\n"
        b"User-Agent: ingress-swarm\r\n"
        b"Accept: */*\r\n"
        b"Origin: https://origin.ingress-swarm.test\r\n"
        b"X-One: 1\r\n"
        b"\r\n"
    )


@pytest.mark.parametrize("method", METHODS)
def test_only_methods_with_a_body_say_that_theirs_is_empty(method: str) -> None:
    raw = request_bytes(method, "/", "h", [])
    assert raw.startswith(f"{method} / HTTP/1.1\r\n".encode())
    assert (b"Content-Length: 0\r\n" in raw) == (method in ("POST", "PUT", "PATCH"))


def test_a_header_takes_the_place_of_ours_in_any_case() -> None:
    raw = request_bytes(
        "GET", "/", "h", [("hOST", "other.test"), ("origin", "https://mine.test"), ("X", "1"), ("x", "2")]
    )
    assert raw == (
        b"GET / HTTP/1.1\r\nhOST: other.test\r\nUser-Agent: ingress-swarm\r\nAccept: */*\r\n"
        b"origin: https://mine.test\r\nx: 2\r\n\r\n"
    )


@pytest.mark.parametrize("method", ["", "get", "TRACE", "CONNECT", "GET /x", "GET\r\n"])
def test_other_methods_are_refused(method: str) -> None:
    with pytest.raises(ValueError, match=r"^--method: given .*, allowed GET, HEAD, POST") as caught:
        request_bytes(method, "/", "h", [])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path", ["", "api", "https://h/", "/a b", "/a#b", "/a\r\nX: y", "/a\n", "/\x7f", "/\xfc", "/a\0", "*"]
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"^--path: given .*, allowed a path from / on") as caught:
        request_bytes("GET", path, "h", [])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "CONNECTION"])
def test_what_the_profile_sets_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^--header: {name} is set by the profile itself"):
        request_bytes("GET", "/", "h", [(name, "x")])


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("X-A: b", ("X-A", "b")),
        ("X-A:b:c", ("X-A", "b:c")),
        ("X-A: \t b c \t", ("X-A", "b c")),
        ("X-A:", ("X-A", "")),
        ("X-A: \xfc", ("X-A", "\xfc")),
    ],
)
def test_a_header_is_read(text: str, header: tuple[str, str]) -> None:
    assert parse_header(text) == header


@pytest.mark.parametrize(
    "text",
    [
        "",
        "X-A",
        ": b",
        "X A: b",
        "X-A : b",
        "X-A: b\r\nEvil: c",
        "X-A: b\nEvil: c",
        "X-A: \0",
        "X-\xfc: b",
        "X-A: \u20ac",
    ],
)
def test_what_is_no_header_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--header: ") as caught:
        parse_header(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["Authorization Bearer s3cret", "Cookie=s3cret", "Author ization: s3cret", "Cookie: s3cret\0"]
)
def test_a_mistyped_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--header: ") as caught:
        parse_header(text)
    assert "s3cret" not in str(caught.value)


def built(method: str, path: str, header: str) -> bytes | str:
    """The request, or why it is none."""
    try:
        return request_bytes(method, path, "shop.test", [parse_header(header)])
    except ValueError as error:
        return str(error)


@settings(deadline=None)
@given(st.sampled_from(METHODS), st.text(max_size=20), st.text(max_size=20))
def test_nothing_that_is_given_can_end_the_head_early(method: str, path: str, header: str) -> None:
    made = built(method, "/" + path, header)
    if isinstance(made, str):
        assert made.startswith("--")
        return
    lines = made.split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    assert b"" not in lines[:-2]
    assert all(b"\r" not in line and b"\n" not in line and b"\0" not in line for line in lines)
    assert lines[0] == f"{method} /{path} HTTP/1.1".encode()
