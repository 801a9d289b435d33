"""What the lab's tests share: single requests, waiting for what comes true, and looking for processes."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from infra.lab import Lab
from infra.lab.processes import process_table

ORIGIN = "http://shop.example.test"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes
    tls: str | None
    alpn: str | None

    @property
    def backend(self) -> str:
        return self.headers["x-swarm-backend"]

    @property
    def path(self) -> str:
        return self.headers["x-swarm-path"]

    @property
    def cors(self) -> bool:
        return "access-control-allow-origin" in self.headers


def get(lab: Lab, path: str = "/", *, url: str | None = None, most: ssl.TLSVersion | None = None) -> Reply:
    """Make one request on a connection of its own, verified against the lab's authority."""
    parts = urlsplit(url or lab.url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=str(lab.ca_path))
        context.set_alpn_protocols(["h2", "http/1.1"])
        if most is not None:
            context.maximum_version = most
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=5, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    try:
        connection.request("GET", path, headers={"Origin": ORIGIN})
        sock = connection.sock
        tls = (sock.version(), sock.selected_alpn_protocol()) if isinstance(sock, ssl.SSLSocket) else (None, None)
        reply = connection.getresponse()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, headers, reply.read(), *tls)
    finally:
        connection.close()


def backends(lab: Lab, replies: int = 24) -> set[str]:
    """Return which replicas answer."""
    return {get(lab).backend for _ in range(replies)}


def eventually(holds: Callable[[], bool], within_s: float = 6.0) -> bool:
    """Return whether something comes true in time."""
    limit_s = time.monotonic() + within_s
    while time.monotonic() < limit_s:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def session(number: int) -> list[int]:
    """Return the live processes of a session."""
    return [stat.pid for stat in process_table().values() if stat.session == number and stat.state not in "ZX"]


def watchdogs(folder: Path) -> list[int]:
    """Return the live watchdogs of the lab in a folder."""
    found = []
    for stat in process_table().values():
        try:
            words = Path(f"/proc/{stat.pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"infra.lab.watchdog" in words and str(folder).encode() in words:
            found.append(stat.pid)
    return found
