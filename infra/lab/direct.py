"""No gateway: one backend that terminates TLS itself. The baseline that every gateway's figures are read against."""

from __future__ import annotations

from infra.lab.backend import reply_locations
from infra.lab.gateway import Gateway, Moments, Routing, Site, write_atomically
from infra.lab.limits import backend_connections
from infra.lab.nginx_text import user_directive, worker_connections
from infra.lab.processes import Child
from infra.lab.spec import DIRECT, LabError

__all__ = ["DirectLane", "render_direct"]


def render_direct(site: Site) -> str:
    """Return the configuration of the backend that the load goes to."""
    return f"""\
{user_directive()}
worker_processes {site.workers};
master_process {"on" if site.workers > 1 else "off"};
daemon off;
error_log stderr warn;
pid direct.pid;
events {{
    worker_connections {worker_connections(backend_connections(site.connections), site.open_files)};
}}
http {{
    access_log off;
    keepalive_timeout 3600s;
    keepalive_requests 100000000;
    ssl_protocols TLSv1.2 TLSv1.3;
    server {{
        listen 127.0.0.1:{site.http_port};
        listen 127.0.0.1:{site.https_port} ssl;
        ssl_certificate {site.certificate.certificate};
        ssl_certificate_key {site.certificate.key};
        add_header X-Swarm-Gateway direct-0 always;
{reply_locations(1)}
    }}
}}
"""


class DirectLane(Gateway):
    """A backend in the gateway's place. It cannot be changed."""

    name = DIRECT

    def start(self, routing: Routing) -> None:  # noqa: ARG002  # part of the interface; nothing is routed here
        """Start the backend; it needs no routing."""
        config = self._site.folder / "direct.conf"
        write_atomically(config, render_direct(self._site))
        self._child = Child(
            self.name,
            [self._program, "-p", self._site.folder, "-e", "stderr", "-c", config],
            self._site.folder / "direct.log",
        )

    def apply(self, routing: Routing) -> Moments:  # noqa: ARG002  # part of the interface; nothing is routed here
        """Refuse: there is nothing in between that could be changed."""
        raise LabError("direct: there is no gateway to change, and one backend: leave the churn plan out")

    def example(self, site: Site, routing: Routing) -> str:  # noqa: ARG002  # part of the interface; nothing is routed here
        """Return the configuration of an imagined site."""
        return render_direct(site)
