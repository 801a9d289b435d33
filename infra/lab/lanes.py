"""Which class stands for which gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infra.lab.direct import DirectLane
from infra.lab.envoy import EnvoyGateway
from infra.lab.gateway import Gateway, Site
from infra.lab.haproxy import HaproxyGateway
from infra.lab.nginx import NginxGateway
from infra.lab.spec import DIRECT
from infra.lab.traefik import TraefikGateway

__all__ = ["gateway_class", "program_name"]

_CLASSES: dict[str, Callable[[Path, str, Site], Gateway]] = {
    "nginx": NginxGateway,
    "haproxy": HaproxyGateway,
    "envoy": EnvoyGateway,
    "traefik": TraefikGateway,
    DIRECT: DirectLane,
}


def gateway_class(name: str) -> Callable[[Path, str, Site], Gateway]:
    """Return what makes a gateway of its program, its version and its site."""
    return _CLASSES[name]


def program_name(name: str) -> str:
    """Return the program that a lane runs."""
    return "nginx" if name == DIRECT else name
