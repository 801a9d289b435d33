"""Where the load goes: the host as given, the addresses behind it, and whether it may be loaded at all."""

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gevent.monkey import get_original

Address = tuple[int, tuple[str, int]]
"""A socket family, and what connect() takes."""


_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_.])?")


@dataclass(frozen=True, slots=True)
class Host:
    """A target host. `authority` is what the Host field says; user information is dropped and never kept."""

    tls: bool
    name: str
    port: int
    authority: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """One --resolve HOST:PORT:ADDRESS: connect to `address` when `name`:`port` is asked for."""

    name: str
    port: int
    address: str


def parse_host(text: str | None) -> Host:
    """`https://name[:port]`. Raises ValueError with one line."""
    if not text:
        raise ValueError("--host: none given: say where the load goes, like --host https://ingress.example.test")
    shown = text.rsplit("@", 1)[-1]
    try:
        parts = urlsplit(text)
        name, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"--host: given {shown!r}, allowed a URL with a port from 1 to 65535: {error}") from None
    if parts.scheme not in ("http", "https") or not name:
        raise ValueError(
            f"--host: given {shown!r}, allowed a URL with its scheme, "
            f"like https://{shown.split('//')[-1] or 'ingress.example.test'}"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"--host: given {shown!r}, allowed scheme, name and port only: the path goes into --path")
    if not _NAME.fullmatch(name) and not _is_address(name):
        raise ValueError(
            f"--host: given {shown!r}, allowed letters, digits, dots and hyphens in a name (or its xn-- form)"
        )
    if port == 0:
        raise ValueError(f"--host: given {shown!r}, allowed ports 1 to 65535")
    tls = parts.scheme == "https"
    authority = f"[{name}]" if ":" in name else name
    usual = 443 if tls else 80
    return Host(tls, name, port or usual, authority if port in (None, usual) else f"{authority}:{port}")


def parse_resolve(text: str) -> Resolve:
    """HOST:PORT:ADDRESS, as curl takes it. Raises ValueError with one line."""
    match = re.fullmatch(r"([^:\s]+):(\d{1,5}):(\[?[0-9a-fA-F:.]+\]?)", text)
    if match is None:
        raise ValueError(
            f"--resolve: given {text!r}, allowed HOST:PORT:ADDRESS, like ingress.example.test:443:10.0.0.7"
        )
    address = match[3].strip("[]")
    if not _is_address(address):
        raise ValueError(f"--resolve: given {text!r}, {address!r} is no IP address")
    if not 1 <= int(match[2]) <= 65_535:
        raise ValueError(f"--resolve: given {text!r}, allowed ports 1 to 65535")
    return Resolve(match[1].lower(), int(match[2]), address)


def addresses_of(host: Host, resolves: Sequence[Resolve]) -> tuple[Address, ...]:
    """All addresses of a host, each once, in the resolver's order; asked once per run. Raises ValueError with one
    line.
    """
    given = [entry.address for entry in resolves if (entry.name, entry.port) == (host.name, host.port)]
    names = given or [host.name]
    found: dict[Address, None] = {}
    for name in names:
        try:
            # The plain resolver: gevent's goes through its thread pool, which a process that is about to fork must
            # not start.
            answers = get_original("socket", "getaddrinfo")(name, host.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ValueError(
                f"--host: cannot resolve {name!r}: {error.strerror}: "
                f"check the name, or give --resolve {name}:{host.port}:ADDRESS"
            ) from None
        for family, _, _, _, sockaddr in answers:
            found[(int(family), (str(sockaddr[0]), int(sockaddr[1])))] = None
    return tuple(found)


def may_be_loaded(host: Host, addresses: Sequence[Address], allowed: Sequence[str]) -> bool:
    """Whether a load may go there unasked: loopback, private ranges and cluster names; anything else must be in
    `allowed`.

    Both ways of being safe look at the addresses too: a cluster-like name that leads outside is not safe.
    """
    if host.name in allowed or host.authority in allowed:
        return True
    return all(_is_inside(sockaddr[0]) for _, sockaddr in addresses)


def _is_inside(text: str) -> bool:
    address = ipaddress.ip_address(text.split("%")[0])
    shared = ipaddress.ip_network(
        "100.64.0.0/10"
    )  # carriers' and clouds' inner networks: not global, yet not is_private either
    return (
        address.is_loopback
        or address.is_private
        or address.is_link_local
        or (address.version == 4 and address in shared)
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
