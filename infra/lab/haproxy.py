"""HAProxy, changed as haproxytech's ingress controller changes it.

Endpoints go through the Runtime API into server slots that the configuration provides from the start; CORS and rewrite
rules are part of the configuration and need a reload, in which the master starts a new worker.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from infra.lab.gateway import (
    APPLY_TIMEOUT_S,
    Endpoint,
    Gateway,
    Moments,
    Routing,
    Site,
    rewrite_pattern,
    write_atomically,
)
from infra.lab.processes import Child
from infra.lab.spec import LabError

__all__ = ["HaproxyGateway", "render_haproxy"]

# The controller's default for scale-server-slots.
_SLOTS = 42
_CONNECTIONS = 10_000  # as many as nginx gets
# HAProxy counts 2 x maxconn + 25 files, more for checks and listeners, and refuses to start above the limit.
_SPARE_FILES = 400


def render_haproxy(site: Site, routing: Routing) -> str:
    """Return the configuration that the controller would generate for the routing."""
    rules = ""
    if routing.cors:
        rules += (
            "    http-request set-var(txn.cors_origin) req.hdr(origin)\n"
            "    http-response set-header Access-Control-Allow-Origin * if { var(txn.cors_origin) -m found }\n"
        )
    if routing.rewrite is not None:
        rules += f"    http-request replace-path {rewrite_pattern(routing.rewrite)} {routing.rewrite.to_path}\\1\n"
    maxconn = min(max(_CONNECTIONS, site.connections), (site.open_files - _SPARE_FILES) // 2)
    return f"""\
global
    master-worker
    nbthread {site.workers}
    maxconn {maxconn}
    stats socket {runtime_socket(site)} mode 600 level admin expose-fd listeners
    stats timeout 36s
    hard-stop-after 30m
    tune.ssl.default-dh-param 2048
    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets

defaults
    mode http
    option dontlognull
    option http-keep-alive
    timeout http-request 5s
    timeout connect 5s
    timeout queue 5s
    timeout client 50s
    timeout server 50s
    timeout tunnel 1h
    timeout http-keep-alive 1m

frontend https
    bind 127.0.0.1:{site.https_port} name v4 ssl crt {site.certificate.bundle} alpn http/1.1
    http-request set-header X-Forwarded-Proto https
{rules}    http-response set-header X-Swarm-Gateway haproxy-0
    default_backend backend

frontend http
    bind 127.0.0.1:{site.http_port} name v4
{rules}    http-response set-header X-Swarm-Gateway haproxy-0
    default_backend backend

backend backend
    balance roundrobin
    option forwardfor
    default-server check
{_slots(site, routing.endpoints)}"""


def runtime_socket(site: Site) -> Path:
    """Return the socket of the worker's Runtime API."""
    return site.folder / "haproxy-runtime.sock"


def master_socket(site: Site) -> Path:
    """Return the socket of the master."""
    return site.folder / "haproxy-master.sock"


def _slots(site: Site, endpoints: tuple[Endpoint, ...]) -> str:
    lines = ""
    for slot in range(1, max(_SLOTS, site.max_replicas) + 1):
        if slot <= len(endpoints):
            lines += f"    server SRV_{slot} {endpoints[slot - 1].address}:{endpoints[slot - 1].port} enabled\n"
        else:
            lines += f"    server SRV_{slot} 127.0.0.1:1 disabled\n"
    return lines


def slot_commands(before: tuple[Endpoint, ...], after: tuple[Endpoint, ...]) -> list[str]:
    """Return the Runtime API commands that bring the slots from one list of endpoints to another."""
    commands = []
    for slot in range(1, max(len(before), len(after)) + 1):
        if slot > len(before):
            endpoint = after[slot - 1]
            commands.append(f"set server backend/SRV_{slot} addr {endpoint.address} port {endpoint.port}")
            commands.append(f"set server backend/SRV_{slot} state ready")
        elif slot > len(after):
            commands.append(f"set server backend/SRV_{slot} addr 127.0.0.1 port 1")
            commands.append(f"set server backend/SRV_{slot} state maint")
    return commands


class HaproxyGateway(Gateway):
    """A master and its worker."""

    name = "haproxy"

    def __init__(self, program: Path, version: str, site: Site) -> None:
        super().__init__(program, version, site)
        self._config = site.folder / "haproxy.cfg"
        self._routing: Routing | None = None

    def start(self, routing: Routing) -> None:
        """Write the configuration and start the master."""
        self._routing = routing
        write_atomically(self._config, render_haproxy(self._site, routing))
        self._child = Child(
            self.name,
            [self._program, "-W", "-S", f"{master_socket(self._site)},mode,600", "-f", self._config],
            self._site.folder / "haproxy.log",
        )

    def apply(self, routing: Routing) -> Moments:
        """Change endpoints through the Runtime API, all else by a reload. The file is kept true in either case."""
        before = self._routing
        assert before is not None, "start comes first"
        write_atomically(self._config, render_haproxy(self._site, routing))
        self._routing = routing
        accepted_at_s = self._set_slots(slot_commands(before.endpoints, routing.endpoints))
        if (before.cors, before.rewrite) != (routing.cors, routing.rewrite):
            # After the slots: the old worker serves its connections to their end, and not from old endpoints.
            self._reload()
        return Moments(accepted_at_s, time.monotonic())

    def example(self, site: Site, routing: Routing) -> str:
        """Return the configuration of an imagined site."""
        return render_haproxy(site, routing)

    def _set_slots(self, commands: list[str]) -> float:
        """Send Runtime API commands; return the moment at which the first was obeyed, or now if there are none."""
        accepted_at_s = None
        for command in commands:
            reply = _command(runtime_socket(self._site), command)
            accepted_at_s = accepted_at_s or time.monotonic()
            # It tells of a new address in a sentence, and says nothing to all else that it obeys.
            if reply and "changed from" not in reply:
                raise LabError(f"haproxy: runtime command {command!r} refused: {reply}")
        return accepted_at_s or time.monotonic()

    def _reload(self) -> None:
        reply = _command(master_socket(self._site), "reload")
        if not reply.startswith("Success=1"):
            raise LabError(f"haproxy: reload refused: {' | '.join(reply.splitlines()) or self.child.last_words()}")


def _command(path: Path, command: str) -> str:
    """Send one command to a HAProxy socket and return what it replies before it closes the connection."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(APPLY_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(command.encode() + b"\n")
            reply = b""
            while piece := connection.recv(65_536):
                reply += piece
    except OSError as error:
        raise LabError(f"haproxy: {path.name} does not answer: {error.strerror or error}") from error
    return reply.decode(errors="replace").strip()
