"""Free ports on loopback addresses."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

from infra.lab.spec import LabError

__all__ = ["PortTakenError", "free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
_ATTEMPTS = 200


class PortTakenError(LabError):
    """Someone else took a port between our look and the gateway's bind: try again with another."""


def free_port(addresses: Sequence[str] = ("127.0.0.1",)) -> int:
    """Return a port on which nobody listens, the same on all `addresses`; raise LabError if none is found.

    It lies outside the range from which the kernel gives ports to outgoing connections. Port 0 would give one inside
    it, and a load generator that opens thousands of connections takes such a port before the gateway binds it.
    """
    low, high = _outside(_RANGE.read_text(encoding="ascii"))
    for _ in range(_ATTEMPTS):
        port = random.randint(low, high)  # noqa: S311  # two labs must not choose alike; nothing is secret
        if all(_is_free(address, port) for address in addresses):
            return port
    raise LabError(f"ports: none free between {low} and {high} on {addresses[0]}: end other labs or servers")


def _outside(kernel_range: str) -> tuple[int, int]:
    first, last = (int(number) for number in kernel_range.split())
    if first - _LOWEST >= 1000:
        return _LOWEST, first - 1
    if 65_535 - last >= 1000:
        return last + 1, 65_535
    return _LOWEST, 65_535


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the gateways bind: connections in TIME_WAIT are no hindrance, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
