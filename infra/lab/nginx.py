"""nginx, changed as NGINX's own ingress controller (OSS) changes it: every change is a new file and a reload."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from infra.lab.gateway import APPLY_TIMEOUT_S, Gateway, Moments, Routing, Site, write_atomically
from infra.lab.limits import files_needed
from infra.lab.nginx_text import user_directive, worker_connections
from infra.lab.probe import ask_unix, await_that
from infra.lab.processes import Child

__all__ = ["NginxGateway", "render_nginx"]

# Fine enough for applied_at_s, and a hundred tiny requests a second while a change is under way are no load.
_VERSION_EVERY_S = 0.01


def render_nginx(site: Site, routing: Routing, generation: int) -> str:
    """Return the configuration that the controller would generate for the routing, as its version `generation`."""
    servers = "".join(
        f"        server {endpoint.address}:{endpoint.port} max_fails=1 fail_timeout=10s max_conns=0;\n"
        for endpoint in routing.endpoints
    )
    cors = "        add_header Access-Control-Allow-Origin * always;\n" if routing.cors else ""
    return f"""\
{user_directive()}
worker_processes {site.workers};
daemon off;
error_log stderr notice;
pid nginx.pid;
events {{
    worker_connections {worker_connections(files_needed(site.connections), site.open_files)};
}}
http {{
    access_log off;
    sendfile on;
    keepalive_timeout 75s;
    keepalive_requests 100000000;
    ssl_protocols TLSv1.2 TLSv1.3;
    upstream backend {{
        zone backend 256k;
        random two least_conn;
{servers}        keepalive 100;
    }}
    server {{
        listen 127.0.0.1:{site.http_port};
        listen 127.0.0.1:{site.https_port} ssl;
        ssl_certificate {site.certificate.certificate};
        ssl_certificate_key {site.certificate.key};
        server_name _;
        server_tokens on;
        add_header X-Swarm-Gateway nginx-0 always;
{cors}{_locations(routing)}    }}
    server {{
        listen unix:{version_socket(site)};
        return 200 {generation};
    }}
}}
"""


def version_socket(site: Site) -> Path:
    """Return the socket on which workers tell the version of the configuration that they serve."""
    return site.folder / "nginx-version.sock"


def _locations(routing: Routing) -> str:
    text = _location("/", "")
    if routing.rewrite is not None:
        source, target = routing.rewrite.from_path, routing.rewrite.to_path
        text += _location(f"= {source}", target) + _location(f"{source}/", f"{target}/")
    return text


def _location(match: str, replacement: str) -> str:
    return f"""\
        location {match} {{
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_connect_timeout 60s;
            proxy_read_timeout 60s;
            proxy_send_timeout 60s;
            client_max_body_size 1m;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header X-Forwarded-Port $server_port;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_buffering on;
            proxy_next_upstream error timeout;
            proxy_next_upstream_timeout 0s;
            proxy_next_upstream_tries 0;
            proxy_pass http://backend{replacement};
        }}
"""


class NginxGateway(Gateway):
    """A master and its workers. Reloads by SIGHUP; the new workers tell on a Unix socket that they serve."""

    name = "nginx"

    def __init__(self, program: Path, version: str, site: Site) -> None:
        super().__init__(program, version, site)
        self._generation = 1
        self._config = site.folder / "nginx.conf"

    def start(self, routing: Routing) -> None:
        """Write the configuration and start the master."""
        write_atomically(self._config, render_nginx(self._site, routing, self._generation))
        self._child = Child(
            self.name,
            [self._program, "-p", self._site.folder, "-e", "stderr", "-c", self._config],
            self._site.folder / "nginx.log",
        )

    def apply(self, routing: Routing) -> Moments:
        """Write the configuration, reload, and wait until workers of the new generation answer."""
        self._generation += 1
        write_atomically(self._config, render_nginx(self._site, routing, self._generation))
        self.child.send(signal.SIGHUP)
        accepted_at_s = time.monotonic()
        applied_at_s = await_that(
            lambda: ask_unix(version_socket(self._site), "/") == str(self._generation),
            self.child,
            "nginx serves the new configuration",
            timeout_s=APPLY_TIMEOUT_S,
            every_s=_VERSION_EVERY_S,
        )
        return Moments(accepted_at_s, applied_at_s)

    def example(self, site: Site, routing: Routing) -> str:
        """Return the configuration of an imagined site."""
        return render_nginx(site, routing, 1)
