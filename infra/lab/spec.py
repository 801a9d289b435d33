"""What one asks of a lab."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

__all__ = ["DIRECT", "GATEWAYS", "ORDERS", "LabError", "LabSpec"]

DIRECT = "direct"
GATEWAYS = ("nginx", "haproxy", "envoy", "traefik", DIRECT)
"""The lanes: four gateways, and a backend that terminates TLS itself (the baseline)."""

ORDERS = ("together", "backend-first", "gateway-first")
"""On a scale-down: which of them hears of it first (see docs/lab.md)."""

MOST_REPLICAS = 200  # one loopback address each: 127.0.1.1 to 127.0.1.200
MOST_WORKERS = 64
MOST_CONNECTIONS = 100_000


class LabError(Exception):
    """The lab cannot be started, or cannot do what was asked; the message is one line for a person."""


@dataclass(frozen=True)
class LabSpec:
    """A gateway, how many backends stand behind it at the start, and how much it must hold.

    - `gateway`: one of GATEWAYS; `direct` always has one backend.
    - `tls`: whether the lab's `url` is its HTTPS listener or its HTTP listener; both are always there.
    - `cpus`: every process of the lab runs on these CPUs only; None leaves it to the kernel.
    - `order`: one of ORDERS.
    - `workers`: threads (or worker processes) of the gateway.
    - `connections`: client connections that must fit; file limits derive from it.
    - `max_replicas`: the most backends it can be scaled to.
    """

    gateway: str
    replicas: int = 5
    tls: bool = True
    cpus: tuple[int, ...] | None = None
    order: str = "together"
    workers: int = 1
    connections: int = 1000
    max_replicas: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be started; raise LabError."""
        _one_of("gateway", self.gateway, GATEWAYS)
        _one_of("order", self.order, ORDERS)
        _number("max_replicas", self.max_replicas, 1, MOST_REPLICAS)
        _number("replicas", self.replicas, 1, self.max_replicas)
        _number("workers", self.workers, 1, MOST_WORKERS)
        _number("connections", self.connections, 1, MOST_CONNECTIONS)
        if not isinstance(self.tls, bool):
            raise LabError(f"tls: given {self.tls!r}, allowed true or false")
        if self.cpus is not None and not (self.cpus and all(type(cpu) is int and cpu >= 0 for cpu in self.cpus)):
            raise LabError(f"cpus: given {self.cpus!r}, allowed CPU numbers from 0")

    def to_json(self) -> dict[str, object]:
        """Return it for the supervisor's pipe."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> LabSpec:
        """Read what to_json wrote; raise LabError for anything else."""
        known = {field.name for field in fields(cls)}
        if set(data) != known:
            raise LabError(f"lab: given {', '.join(sorted(data))}, allowed {', '.join(sorted(known))}")
        values = dict(data)
        cpus = values["cpus"]
        if isinstance(cpus, list):
            values["cpus"] = tuple(cpus)
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks each value


def _one_of(key: str, given: object, allowed: tuple[str, ...]) -> None:
    if given in allowed:
        return
    near = difflib.get_close_matches(str(given), allowed, 1)
    hint = f": did you mean {near[0]}?" if near else ""
    raise LabError(f"{key}: given {given!r}, allowed {', '.join(allowed)}{hint}")


def _number(key: str, given: object, low: int, high: int) -> None:
    if type(given) is not int or not low <= given <= high:
        raise LabError(f"{key}: given {given!r}, allowed a whole number from {low} to {high}")
