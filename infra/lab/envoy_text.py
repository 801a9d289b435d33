"""Envoy's bootstrap and its discovery responses, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from infra.lab.gateway import Routing, Site

__all__ = [
    "ENDPOINTS_VERSION",
    "ROUTES_VERSION",
    "admin_socket",
    "endpoints_file",
    "render_bootstrap",
    "render_endpoints",
    "render_routes",
    "routes_file",
]

ENDPOINTS_VERSION = "cluster.backend.version_text"
# Preceded by the name of the listener that subscribed first; the other one shares the subscription.
ROUTES_VERSION = ".rds.routes.version_text"

# Envoy's default for each of a cluster's circuit breakers; on a cluster one raises it for more connections.
_BREAKER = 1024
_EXTENSIONS = "type.googleapis.com/envoy.extensions"

Json = Mapping[str, object]


def endpoints_file(site: Site) -> Path:
    """Return the file of the endpoint discovery response."""
    return site.folder / "envoy-endpoints.json"


def routes_file(site: Site) -> Path:
    """Return the file of the route discovery response."""
    return site.folder / "envoy-routes.json"


def admin_socket(site: Site) -> Path:
    """Return Envoy's admin socket."""
    return site.folder / "envoy-admin.sock"


def render_endpoints(routing: Routing, version: int) -> str:
    """Return the endpoint discovery response of this version."""
    endpoints = [{"endpoint": {"address": _address(endpoint.address, endpoint.port)}} for endpoint in routing.endpoints]
    return _response(
        version,
        {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "backend",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    )


def render_routes(routing: Routing, version: int) -> str:
    """Return the route discovery response of this version. CORS is a property of the virtual host, as in Contour."""
    routes: list[Json] = [{"match": {"prefix": "/"}, "route": {"cluster": "backend"}}]
    if routing.rewrite is not None:
        rewritten = {"cluster": "backend", "prefix_rewrite": routing.rewrite.to_path}
        routes.insert(0, {"match": {"path_separated_prefix": routing.rewrite.from_path}, "route": rewritten})
    host: dict[str, object] = {
        "name": "all",
        "domains": ["*"],
        "routes": routes,
        "response_headers_to_add": [{"header": {"key": "x-swarm-gateway", "value": "envoy-0"}}],
    }
    if routing.cors:
        policy = {
            "@type": f"{_EXTENSIONS}.filters.http.cors.v3.CorsPolicy",
            "allow_origin_string_match": [{"exact": "*"}],
            "allow_methods": "GET,POST",
        }
        host["typed_per_filter_config"] = {"envoy.filters.http.cors": policy}
    return _response(
        version,
        {
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "routes",
            "virtual_hosts": [host],
        },
    )


def render_bootstrap(site: Site) -> str:
    """Return the bootstrap: two listeners and a cluster, whose routes and endpoints are discovered."""
    certificate = {
        "certificate_chain": {"filename": str(site.certificate.certificate)},
        "private_key": {"filename": str(site.certificate.key)},
    }
    tls: Json = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
                "tls_certificates": [certificate],
                "alpn_protocols": ["http/1.1"],
            },
        },
    }
    inspector = {
        "name": "envoy.filters.listener.tls_inspector",
        "typed_config": {"@type": f"{_EXTENSIONS}.filters.listener.tls_inspector.v3.TlsInspector"},
    }
    https = _listener(site, "ingress_https", site.https_port, {"transport_socket": tls})
    bootstrap = {
        "node": {"id": "envoy-0", "cluster": "lab"},
        "admin": {"address": {"pipe": {"path": str(admin_socket(site)), "mode": 0o600}}},
        "static_resources": {
            "listeners": [
                _listener(site, "ingress_http", site.http_port, {}),
                {**https, "listener_filters": [inspector]},
            ],
            "clusters": [_cluster(site)],
        },
    }
    return json.dumps(bootstrap, indent=1)


def _cluster(site: Site) -> Json:
    most = max(_BREAKER, site.connections)
    return {
        "name": "backend",
        "type": "EDS",
        "connect_timeout": "2s",
        "lb_policy": "ROUND_ROBIN",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "eds_cluster_config": {"eds_config": _source(endpoints_file(site))},
        "circuit_breakers": {
            "thresholds": [{"max_connections": most, "max_pending_requests": most, "max_requests": most}]
        },
    }


def _listener(site: Site, name: str, port: int, chain: Json) -> Json:
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "HTTP1",
        "rds": {"route_config_name": "routes", "config_source": _source(routes_file(site))},
        "http_filters": _http_filters(),
        "common_http_protocol_options": {"idle_timeout": "60s"},
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "preserve_external_request_id": True,
    }
    return {
        "name": name,
        "address": _address("127.0.0.1", port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}], **chain}
        ],
    }


def _http_filters() -> list[Json]:
    """Return the filters that Contour puts into every listener, used or not: a request passes through all of them."""
    gzip = {"name": "gzip", "typed_config": {"@type": f"{_EXTENSIONS}.compression.gzip.compressor.v3.Gzip"}}
    filters: dict[str, tuple[str, Json]] = {
        "compressor": ("compressor.v3.Compressor", {"compressor_library": gzip}),
        "grpc_web": ("grpc_web.v3.GrpcWeb", {}),
        "grpc_stats": ("grpc_stats.v3.FilterConfig", {"emit_filter_state": True, "enable_upstream_stats": True}),
        "cors": ("cors.v3.Cors", {}),
        "local_ratelimit": ("local_ratelimit.v3.LocalRateLimit", {"stat_prefix": "http"}),
        "lua": ("lua.v3.Lua", {"default_source_code": {"inline_string": "-- routes may bring a script; none does"}}),
        "rbac": ("rbac.v3.RBAC", {}),
        "router": ("router.v3.Router", {}),
    }
    return [
        {
            "name": f"envoy.filters.http.{name}",
            "typed_config": {"@type": f"{_EXTENSIONS}.filters.http.{kind}", **settings},
        }
        for name, (kind, settings) in filters.items()
    ]


def _source(path: Path) -> Json:
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}


def _address(address: str, port: int) -> Json:
    return {"socket_address": {"address": address, "port_value": port}}


def _response(version: int, resource: Json) -> str:
    return json.dumps({"version_info": str(version), "resources": [resource]}, indent=1)
