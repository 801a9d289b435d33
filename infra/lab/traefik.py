"""Traefik, changed through its file provider: it watches the file and swaps its handlers inside the process.

The Kubernetes providers end in the same swap. Listeners and their connections are not touched.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import yaml

from infra.lab.gateway import APPLY_TIMEOUT_S, Gateway, Moments, Routing, Site, rewrite_pattern, write_atomically
from infra.lab.probe import ask, await_that
from infra.lab.processes import Child

__all__ = ["TraefikGateway", "render_dynamic", "render_static"]

_API_EVERY_S = 0.01


def render_static(site: Site) -> str:
    """Return the configuration that Traefik reads once."""
    return yaml.safe_dump(
        {
            "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
            "log": {"level": "WARN"},
            "api": {"insecure": True, "dashboard": False},
            "entryPoints": {
                "websecure": {"address": f"127.0.0.1:{site.https_port}", "http": {"tls": {}}},
                "web": {"address": f"127.0.0.1:{site.http_port}"},
                "traefik": {"address": f"127.0.0.1:{site.admin_port}"},
            },
            "providers": {"file": {"filename": str(dynamic_file(site)), "watch": True}},
        },
        sort_keys=False,
    )


def render_dynamic(site: Site, routing: Routing) -> str:
    """Return the configuration that Traefik watches."""
    middlewares: dict[str, object] = {
        "gateway": {"headers": {"customResponseHeaders": {"X-Swarm-Gateway": "traefik-0"}}}
    }
    if routing.cors:
        middlewares["cors"] = {
            "headers": {
                "accessControlAllowOriginList": ["*"],
                "accessControlAllowMethods": ["GET", "POST"],
                "addVaryHeader": True,
            }
        }
    if routing.rewrite is not None:
        middlewares["rewrite"] = {
            "replacePathRegex": {
                "regex": rewrite_pattern(routing.rewrite),
                "replacement": f"{routing.rewrite.to_path}$1",
            }
        }
    router = {"rule": "PathPrefix(`/`)", "service": "backend", "middlewares": list(middlewares)}
    servers = [{"url": f"http://{endpoint.address}:{endpoint.port}"} for endpoint in routing.endpoints]
    certificate = {"certFile": str(site.certificate.certificate), "keyFile": str(site.certificate.key)}
    return yaml.safe_dump(
        {
            "http": {
                "routers": {
                    "https": {"entryPoints": ["websecure"], "tls": {}, **router},
                    "http": {"entryPoints": ["web"], **router},
                },
                "middlewares": middlewares,
                "services": {"backend": {"loadBalancer": {"servers": servers}}},
            },
            "tls": {
                "options": {"default": {"minVersion": "VersionTLS12", "alpnProtocols": ["http/1.1"]}},
                "stores": {"default": {"defaultCertificate": certificate}},
            },
        },
        sort_keys=False,
    )


def dynamic_file(site: Site) -> Path:
    """Return the file that Traefik watches, alone in a folder: it watches the folder."""
    return site.folder / "traefik" / "dynamic.yaml"


class TraefikGateway(Gateway):
    """One Traefik process."""

    name = "traefik"

    def start(self, routing: Routing) -> None:
        """Write both configurations and start Traefik."""
        dynamic_file(self._site).parent.mkdir(exist_ok=True)
        write_atomically(dynamic_file(self._site), render_dynamic(self._site, routing))
        static = self._site.folder / "traefik.yaml"
        write_atomically(static, render_static(self._site))
        self._child = Child(
            self.name,
            [self._program, f"--configFile={static}"],
            self._site.folder / "traefik.log",
            {"GOMAXPROCS": str(self._site.workers)},
        )

    def apply(self, routing: Routing) -> Moments:
        """Replace the watched file and wait until Traefik's API shows its content."""
        write_atomically(dynamic_file(self._site), render_dynamic(self._site, routing))
        accepted_at_s = time.monotonic()
        applied_at_s = await_that(
            lambda: self._in_force(routing),
            self.child,
            "traefik takes the new configuration",
            timeout_s=APPLY_TIMEOUT_S,
            every_s=_API_EVERY_S,
        )
        return Moments(accepted_at_s, applied_at_s)

    def example(self, site: Site, routing: Routing) -> str:
        """Return the configuration of an imagined site."""
        return render_static(site) + render_dynamic(site, routing)

    def _in_force(self, routing: Routing) -> bool:
        told = ask(self._site.admin_port, "/api/rawdata")
        return told is not None and shows(json.loads(told), yaml.safe_load(render_dynamic(self._site, routing)))


def shows(told: object, written: object) -> bool:
    """Return whether what Traefik's API tells contains the routers' middlewares and the servers that were written."""
    return _essence(told, "@file") == _essence(written, "", section="http")


def _essence(data: object, suffix: str, *, section: str | None = None) -> object:
    assert isinstance(data, dict)
    http = data[section] if section else data
    routers, services, middlewares = (http.get(key, {}) for key in ("routers", "services", "middlewares"))
    service = services.get(f"backend{suffix}", {}).get("loadBalancer", {}).get("servers", [])
    rewrite = middlewares.get(f"rewrite{suffix}", {}).get("replacePathRegex", {})
    return (
        [name.removesuffix(suffix) for name in routers.get(f"https{suffix}", {}).get("middlewares", [])],
        [server["url"] for server in service],
        (rewrite.get("regex"), rewrite.get("replacement")),
    )
