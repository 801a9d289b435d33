"""The bytes of a request, made once before the load starts."""

import re
from collections.abc import Sequence
from typing import Final

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_PATH: Final = re.compile(r"/[\x21-\x22\x24-\x7e]*\Z")
_OURS: Final = frozenset({"content-length", "transfer-encoding", "connection"})


def request_bytes(method: str, path: str, host: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """A whole request without a body. `host` is what the Host field says unless `headers` give one.

    Every request carries Origin: without one HAProxy and Envoy add no CORS header, and a change of CORS could not be
    seen. Raises ValueError with one line.
    """
    if method not in METHODS:
        raise ValueError(f"--method: given {method!r}, allowed {', '.join(METHODS)}")
    if not _PATH.match(path):
        raise ValueError(
            f"--path: given {path!r}, allowed a path from / on, without spaces, fragment or control characters"
        )
    fields: dict[str, tuple[str, str]] = {
        "host": ("Host", host),
        "user-agent": ("User-Agent", "ingress-swarm"),
        "accept": ("Accept", "*/*"),
        "origin": ("Origin", "https://origin.ingress-swarm.test"),
    }
    if method in ("POST", "PUT", "PATCH"):
        fields["content-length"] = ("Content-Length", "0")
    for name, value in headers:
        if name.lower() in _OURS:
            raise ValueError(f"--header: {name} is set by the profile itself: leave it out")
        fields[name.lower()] = (name, value)
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.values())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")


def parse_header(text: str) -> tuple[str, str]:
    """`Name: value` as given with --header. Raises ValueError with one line."""
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.match(name):
        begin = re.match(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]*", text)
        # Not the whole of it: what was mistyped may be a secret, and messages end up in logs.
        raise ValueError(f"--header: given {begin[0] if begin else ''!r}..., allowed 'Name: value'")
    value = value.strip(" \t")
    if not _VALUE.match(value):
        raise ValueError(f"--header: the value of {name} has a character that no header may have")
    return name, value
