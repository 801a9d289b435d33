"""Envoy, changed as Contour changes it: endpoints by EDS, routes by RDS, no restart and no new listener.

The discovery responses are files that Envoy watches; each new version comes by an atomic rename. What it made of them
is asked at its admin socket.
"""

from __future__ import annotations

import time
from pathlib import Path

from infra.lab import envoy_text
from infra.lab.gateway import APPLY_TIMEOUT_S, Gateway, Moments, Routing, Site, write_atomically
from infra.lab.probe import ask_unix, await_that
from infra.lab.processes import Child

__all__ = ["EnvoyGateway"]

_STATS_EVERY_S = 0.005
_STATS = "/stats?type=TextReadouts&filter=version_text"


class EnvoyGateway(Gateway):
    """One Envoy process."""

    name = "envoy"

    def __init__(self, program: Path, version: str, site: Site) -> None:
        super().__init__(program, version, site)
        self._version = 1
        self._routing: Routing | None = None

    def start(self, routing: Routing) -> None:
        """Write the bootstrap and both discovery responses, and start Envoy."""
        self._routing = routing
        write_atomically(envoy_text.endpoints_file(self._site), envoy_text.render_endpoints(routing, self._version))
        write_atomically(envoy_text.routes_file(self._site), envoy_text.render_routes(routing, self._version))
        bootstrap = self._site.folder / "envoy.json"
        write_atomically(bootstrap, envoy_text.render_bootstrap(self._site))
        self._child = Child(
            self.name,
            [
                *(self._program, "-c", bootstrap, "--concurrency", str(self._site.workers)),
                # Hot restart shares memory by number: two labs would meet in it.
                *("--disable-hot-restart", "--log-level", "warning"),
            ],
            self._site.folder / "envoy.log",
        )

    def apply(self, routing: Routing) -> Moments:
        """Replace the responses that changed and wait until Envoy tells their version as the one in force."""
        before = self._routing
        assert before is not None, "start comes first"
        self._version += 1
        stats = []
        if before.endpoints != routing.endpoints:
            write_atomically(envoy_text.endpoints_file(self._site), envoy_text.render_endpoints(routing, self._version))
            stats.append(envoy_text.ENDPOINTS_VERSION)
        if (before.cors, before.rewrite) != (routing.cors, routing.rewrite):
            write_atomically(envoy_text.routes_file(self._site), envoy_text.render_routes(routing, self._version))
            stats.append(envoy_text.ROUTES_VERSION)
        accepted_at_s = time.monotonic()
        applied_at_s = await_that(
            lambda: self._in_force(stats),
            self.child,
            "envoy takes the new configuration",
            timeout_s=APPLY_TIMEOUT_S,
            every_s=_STATS_EVERY_S,
        )
        self._routing = routing
        return Moments(accepted_at_s, applied_at_s)

    def example(self, site: Site, routing: Routing) -> str:
        """Return the configuration of an imagined site."""
        parts = (
            envoy_text.render_bootstrap(site),
            envoy_text.render_endpoints(routing, 1),
            envoy_text.render_routes(routing, 1),
        )
        return "\n".join(parts)

    def _in_force(self, stats: list[str]) -> bool:
        told = ask_unix(envoy_text.admin_socket(self._site), _STATS) or ""
        for stat in stats:
            versions = [line.partition(": ")[2] for line in told.splitlines() if stat in line]
            if not versions or any(version != f'"{self._version}"' for version in versions):
                return False
        return True
