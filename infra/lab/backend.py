"""The backends: one nginx process a replica, each on a loopback address of its own.

One process without a master is what a small pod runs, and it does what most programs do on SIGTERM: it closes all its
connections and exits at once. docs/lab.md says what that means for the numbers.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.lab.gateway import START_TIMEOUT_S, Endpoint, write_atomically
from infra.lab.limits import backend_connections
from infra.lab.nginx_text import user_directive
from infra.lab.ports import free_port
from infra.lab.probe import await_that, serves
from infra.lab.processes import Child, CpuTimes, ProcessStat

__all__ = ["Backends", "endpoint_address", "render_backend", "reply_locations"]

_END_TIMEOUT_S = 2.0
_BODY_BYTES = 1024
_NAMES = (
    ("Server address", "$server_addr:$server_port"),
    ("Server name", "$hostname"),
    ("Date", "$time_iso8601"),
    ("URI", "$request_uri"),
    ("Request ID", "$request_id"),
)
# What the variables become for `GET /`, about: 127.0.1.5:20000, a host name, a date, one slash, 32 digits.
_VALUES_BYTES = 15 + 8 + 25 + 1 + 32


def endpoint_address(replica: int) -> str:
    """Return the loopback address of a replica, counted from 1."""
    return f"127.0.1.{replica}"


def reply_locations(replica: int) -> str:
    """Return the nginx directives that answer every path with about 1 KB of text about the server and the request."""
    lines = "".join(f"{name}: {value}\\n" for name, value in _NAMES)
    written = sum(len(name) + 3 for name, _ in _NAMES) + _VALUES_BYTES
    padding = "".join(f"{number:063d}\\n" for number in range((_BODY_BYTES - written) // 64))
    rest = "." * ((_BODY_BYTES - written) % 64)
    return f"""\
        default_type text/plain;
        add_header X-Swarm-Backend "{replica}" always;
        add_header X-Swarm-Path $request_uri always;
        location / {{
            return 200 "{lines}{padding}{rest}";
        }}"""


def render_backend(endpoint: Endpoint, connections: int) -> str:
    """Return the configuration of one backend."""
    return f"""\
{user_directive()}
daemon off;
master_process off;
pid backend-{endpoint.replica}.pid;
error_log stderr warn;
events {{
    worker_connections {backend_connections(connections)};
}}
http {{
    access_log off;
    keepalive_timeout 3600s;
    keepalive_requests 100000000;
    server {{
        listen {endpoint.address}:{endpoint.port};
{reply_locations(endpoint.replica)}
    }}
}}
"""


class Backends:
    """The replicas of a lab: all on one port, each on its own address."""

    def __init__(self, program: Path, folder: Path, max_replicas: int, connections: int) -> None:
        self._program = program
        self._folder = folder
        self._connections = connections
        self._port = free_port([endpoint_address(replica) for replica in range(1, max_replicas + 1)])
        self._running: dict[int, Child] = {}
        self._leaving: dict[int, Child] = {}
        self._ended: dict[int, CpuTimes] = {}
        # Held while a replica moves from one of these to the next: usage must find it in exactly one of them.
        self._lock = threading.Lock()

    def endpoint(self, replica: int) -> Endpoint:
        """Return where a replica listens, or would."""
        return Endpoint(replica, endpoint_address(replica), self._port)

    @property
    def children(self) -> tuple[Child, ...]:
        """The processes that should be running."""
        return tuple(self._running.values())

    def start(self, replicas: Iterable[int]) -> None:
        """Start replicas together and return when each answers; raise LabError."""
        started = {}
        for replica in replicas:
            config = self._folder / f"backend-{replica}.conf"
            write_atomically(config, render_backend(self.endpoint(replica), self._connections))
            child = Child(
                f"backend {replica}",
                [self._program, "-p", self._folder, "-e", "stderr", "-c", config],
                self._folder / f"backend-{replica}.log",
            )
            started[replica] = child
        with self._lock:
            self._running |= started
        for replica, child in started.items():
            endpoint = self.endpoint(replica)
            await_that(
                lambda endpoint=endpoint: serves(endpoint.address, endpoint.port, None),  # type: ignore[misc]
                child,
                f"backend {replica} answers",
                timeout_s=START_TIMEOUT_S,
                every_s=0.005,
            )

    def terminate(self, replicas: Iterable[int]) -> None:
        """Send SIGTERM to replicas, as a kubelet does, and return at once."""
        for replica in replicas:
            # Moved before the signal: from now on its end is no accident.
            with self._lock:
                child = self._leaving[replica] = self._running.pop(replica)
            child.send(signal.SIGTERM)

    def collect(self) -> None:
        """Wait for the end of terminated replicas; one that stays is killed, as a kubelet does after its grace time."""
        for replica, child in list(self._leaving.items()):
            if not child.wait(_END_TIMEOUT_S):
                child.send(signal.SIGKILL)
                child.wait(_END_TIMEOUT_S)
            with self._lock:
                earlier, last = self._ended.get(replica, CpuTimes()), child.usage({})
                self._ended[replica] = CpuTimes(earlier.user_s + last.user_s, earlier.system_s + last.system_s)
                del self._leaving[replica]
                child.close()

    def usage(self, table: Mapping[int, ProcessStat]) -> dict[int, CpuTimes]:
        """Return what each replica used, over all processes that it ever had."""
        with self._lock:
            used = dict(self._ended)
            for replica, child in [*self._running.items(), *self._leaving.items()]:
                earlier, now = self._ended.get(replica, CpuTimes()), child.usage(table)
                used[replica] = CpuTimes(earlier.user_s + now.user_s, earlier.system_s + now.system_s, now.rss_bytes)
            return used
