"""What the lab needs to know of a gateway, and what a gateway is told."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from infra.lab.certificate import Certificate
from infra.lab.processes import Child
from infra.lab.spec import LabSpec
from infra.targets.state import Rewrite

__all__ = [
    "APPLY_TIMEOUT_S",
    "START_TIMEOUT_S",
    "Endpoint",
    "Gateway",
    "Moments",
    "Routing",
    "Site",
    "example_routing",
    "example_site",
    "rewrite_pattern",
    "write_atomically",
]

START_TIMEOUT_S = 10.0
# A gateway that is saturated on the one core it has answers its admin socket late; a dead one is noticed anyway.
APPLY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Endpoint:
    """Where one backend listens, in plain HTTP."""

    replica: int
    address: str
    port: int


@dataclass(frozen=True)
class Routing:
    """All that churn changes about a gateway."""

    endpoints: tuple[Endpoint, ...]
    cors: bool
    rewrite: Rewrite | None


@dataclass(frozen=True)
class Site:
    """All that stays as it is while a gateway is up. `open_files` is the limit that its processes inherit."""

    folder: Path
    https_port: int
    http_port: int
    admin_port: int
    certificate: Certificate
    workers: int
    connections: int
    max_replicas: int
    open_files: int


@dataclass(frozen=True)
class Moments:
    """When a gateway took a change, and when its control plane said that it is in force (time.monotonic, seconds)."""

    accepted_at_s: float
    applied_at_s: float


class Gateway(ABC):
    """A gateway of the lab: one program, started once, changed while it runs. Its methods raise LabError."""

    name: ClassVar[str]

    def __init__(self, program: Path, version: str, site: Site) -> None:
        self.version = version
        self._program = program
        self._site = site
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """Its process; the master, where there are workers."""
        assert self._child is not None, "start comes first"
        return self._child

    @abstractmethod
    def start(self, routing: Routing) -> None:
        """Start it; return when its process runs. That it serves is for the caller to see."""

    @abstractmethod
    def apply(self, routing: Routing) -> Moments:
        """Change it as its controller would; return when it confirms."""

    @abstractmethod
    def example(self, site: Site, routing: Routing) -> str:
        """Return its configuration for an imagined site: alike for alike labs, whatever ports they got."""


def example_site(spec: LabSpec, open_files: int) -> Site:
    """Return a site with ports and paths that no lab has, for `example`."""
    folder = Path("/lab")
    certificate = Certificate(*(folder / name for name in ("ca.pem", "server.pem", "server.key", "server.bundle.pem")))
    return Site(folder, 443, 80, 8080, certificate, spec.workers, spec.connections, spec.max_replicas, open_files)


def example_routing(spec: LabSpec) -> Routing:
    """Return the routing at the start of a lab, to backends at ports that no lab has."""
    endpoints = tuple(Endpoint(replica, f"127.0.1.{replica}", 80) for replica in range(1, spec.replicas + 1))
    return Routing(endpoints, cors=False, rewrite=None)


def rewrite_pattern(rewrite: Rewrite) -> str:
    """Return the regular expression that captures what follows the prefix: `^/api(/.*)?$`, so not `/apix`."""
    return f"^{re.escape(rewrite.from_path)}(/.*)?$"


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step: who watches it never reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)  # noqa: PTH105  # the one call whose atomicity POSIX promises, said by its own name
