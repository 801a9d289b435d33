"""The configurations as text: each table row is a directive that docs/lab.md promises, or that a change must bring."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from infra.lab.backend import render_backend, reply_locations
from infra.lab.direct import render_direct
from infra.lab.envoy_text import render_bootstrap, render_endpoints, render_routes
from infra.lab.gateway import Endpoint, Routing, example_routing, example_site, rewrite_pattern
from infra.lab.haproxy import render_haproxy, slot_commands
from infra.lab.nginx import render_nginx
from infra.lab.spec import LabSpec
from infra.lab.traefik import render_dynamic, render_static, shows
from infra.targets.state import Rewrite

SPEC = LabSpec("nginx", replicas=2, workers=3)
SITE = example_site(SPEC, open_files=20_000)
PLAIN = example_routing(SPEC)
CHANGED = Routing(PLAIN.endpoints[:1], cors=True, rewrite=Rewrite("/api", "/v2"))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


NGINX = [
    # (directive, in the plain configuration, in the changed one)
    ("worker_processes 3;", True, True),
    ("worker_connections 10000;", True, True),
    ("keepalive_requests 100000000;", True, True),
    ("random two least_conn;", True, True),
    ("server 127.0.1.1:80 max_fails=1 fail_timeout=10s max_conns=0;", True, True),
    ("server 127.0.1.2:80 max_fails=1 fail_timeout=10s max_conns=0;", True, False),
    ("keepalive 100;", True, True),
    ('proxy_http_version 1.1; proxy_set_header Connection "";', True, True),
    ("proxy_next_upstream error timeout;", True, True),
    ("access_log off;", True, True),
    ("listen 127.0.0.1:443 ssl;", True, True),
    ("listen unix:/lab/nginx-version.sock; return 200 7;", True, True),
    ("add_header X-Swarm-Gateway nginx-0 always;", True, True),
    ("add_header Access-Control-Allow-Origin * always;", False, True),
    ("location = /api {", False, True),
    ("location /api/ {", False, True),
    ("proxy_pass http://backend/v2;", False, True),
    ("proxy_pass http://backend/v2/;", False, True),
    ("master_process off;", False, False),
    ("http2", False, False),
]


@pytest.mark.parametrize(("directive", "plain", "changed"), NGINX)
def test_nginx(directive: str, plain: bool, changed: bool) -> None:
    assert (directive in squeezed(render_nginx(SITE, PLAIN, 7))) is plain
    assert (directive in squeezed(render_nginx(SITE, CHANGED, 7))) is changed


HAPROXY = [
    ("nbthread 3", True, True),
    ("maxconn 9800", True, True),  # 2 x 9800 + 400 is the file limit
    ("stats socket /lab/haproxy-runtime.sock mode 600 level admin expose-fd listeners", True, True),
    ("timeout connect 5s", True, True),
    ("timeout http-keep-alive 1m", True, True),
    ("balance roundrobin", True, True),
    ("default-server check", True, True),
    ("ssl crt /lab/server.bundle.pem alpn http/1.1", True, True),
    ("server SRV_2 127.0.1.2:80 enabled", True, False),
    ("server SRV_2 127.0.0.1:1 disabled", False, True),
    ("server SRV_42 127.0.0.1:1 disabled", True, True),
    ("server SRV_43 ", False, False),
    ("http-request set-var(txn.cors_origin) req.hdr(origin)", False, True),
    ("http-response set-header Access-Control-Allow-Origin * if { var(txn.cors_origin) -m found }", False, True),
    (r"http-request replace-path ^/api(/.*)?$ /v2\1", False, True),
]


@pytest.mark.parametrize(("directive", "plain", "changed"), HAPROXY)
def test_haproxy(directive: str, plain: bool, changed: bool) -> None:
    assert (directive in squeezed(render_haproxy(SITE, PLAIN))) is plain
    assert (directive in squeezed(render_haproxy(SITE, CHANGED))) is changed


@pytest.mark.parametrize(
    ("connections", "open_files", "maxconn"),
    [(1000, 262_144, 10_000), (1000, 2_600, 1_100), (20_000, 262_144, 20_000), (20_000, 40_600, 20_000)],
)
def test_haproxy_stays_within_its_file_limit_and_holds_the_connections(
    connections: int, open_files: int, maxconn: int
) -> None:
    site = example_site(LabSpec("haproxy", connections=connections), open_files)
    assert f"maxconn {maxconn}\n" in render_haproxy(site, PLAIN)
    assert connections <= maxconn
    assert 2 * maxconn + 25 <= open_files


def endpoints(*replicas: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(replica, f"127.0.1.{replica}", 80) for replica in replicas)


@pytest.mark.parametrize(
    ("before", "after", "commands"),
    [
        (endpoints(1), endpoints(1), []),
        (
            endpoints(1),
            endpoints(1, 2),
            ["set server backend/SRV_2 addr 127.0.1.2 port 80", "set server backend/SRV_2 state ready"],
        ),
        (
            endpoints(1, 2, 3),
            endpoints(1),
            [
                *("set server backend/SRV_2 addr 127.0.0.1 port 1", "set server backend/SRV_2 state maint"),
                *("set server backend/SRV_3 addr 127.0.0.1 port 1", "set server backend/SRV_3 state maint"),
            ],
        ),
    ],
)
def test_haproxy_slots(before: tuple[Endpoint, ...], after: tuple[Endpoint, ...], commands: list[str]) -> None:
    assert slot_commands(before, after) == commands


def resource(text: str, version: str) -> Any:
    response = json.loads(text)
    assert response["version_info"] == version
    (only,) = response["resources"]
    return only


def test_envoy_endpoints() -> None:
    (locality,) = resource(render_endpoints(PLAIN, 4), "4")["endpoints"]
    sockets = [endpoint["endpoint"]["address"]["socket_address"] for endpoint in locality["lb_endpoints"]]
    assert sockets == [{"address": "127.0.1.1", "port_value": 80}, {"address": "127.0.1.2", "port_value": 80}]


def test_envoy_routes() -> None:
    (plain,) = resource(render_routes(PLAIN, 1), "1")["virtual_hosts"]
    assert plain["routes"] == [{"match": {"prefix": "/"}, "route": {"cluster": "backend"}}]
    assert "typed_per_filter_config" not in plain
    (changed,) = resource(render_routes(CHANGED, 2), "2")["virtual_hosts"]
    assert changed["routes"] == [
        {"match": {"path_separated_prefix": "/api"}, "route": {"cluster": "backend", "prefix_rewrite": "/v2"}},
        *plain["routes"],
    ]
    policy = changed["typed_per_filter_config"]["envoy.filters.http.cors"]
    assert policy["allow_origin_string_match"] == [{"exact": "*"}]


def test_envoy_bootstrap() -> None:
    bootstrap = json.loads(render_bootstrap(SITE))
    assert bootstrap["admin"]["address"]["pipe"] == {"path": "/lab/envoy-admin.sock", "mode": 0o600}
    http, https = bootstrap["static_resources"]["listeners"]
    assert "transport_socket" not in http["filter_chains"][0]
    tls = https["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
    assert tls["alpn_protocols"] == ["http/1.1"]
    assert tls["tls_params"]["tls_minimum_protocol_version"] == "TLSv1_2"
    names = [
        each["name"].rpartition(".")[2]
        for each in https["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    ]
    assert names == ["compressor", "grpc_web", "grpc_stats", "cors", "local_ratelimit", "lua", "rbac", "router"]
    (cluster,) = bootstrap["static_resources"]["clusters"]
    assert (cluster["type"], cluster["connect_timeout"], cluster["lb_policy"]) == ("EDS", "2s", "ROUND_ROBIN")


@pytest.mark.parametrize(("connections", "breaker"), [(1000, 1024), (5000, 5000)])
def test_envoys_breaker_is_its_default_unless_more_connections_must_fit(connections: int, breaker: int) -> None:
    site = example_site(LabSpec("envoy", connections=connections), 20_000)
    (cluster,) = json.loads(render_bootstrap(site))["static_resources"]["clusters"]
    (threshold,) = cluster["circuit_breakers"]["thresholds"]
    assert set(threshold.values()) == {breaker}


def test_traefik_static() -> None:
    static = yaml.safe_load(render_static(SITE))
    addresses = {name: point["address"] for name, point in static["entryPoints"].items()}
    assert addresses == {"websecure": "127.0.0.1:443", "web": "127.0.0.1:80", "traefik": "127.0.0.1:8080"}
    assert static["providers"] == {"file": {"filename": "/lab/traefik/dynamic.yaml", "watch": True}}  # 2 s throttle
    assert static["global"] == {"checkNewVersion": False, "sendAnonymousUsage": False}


def test_traefik_dynamic() -> None:
    plain = yaml.safe_load(render_dynamic(SITE, PLAIN))
    assert plain["http"]["routers"]["https"]["middlewares"] == ["gateway"]
    assert plain["tls"]["options"]["default"] == {"minVersion": "VersionTLS12", "alpnProtocols": ["http/1.1"]}
    changed = yaml.safe_load(render_dynamic(SITE, CHANGED))["http"]
    assert changed["routers"]["http"]["middlewares"] == ["gateway", "cors", "rewrite"]
    assert changed["middlewares"]["cors"]["headers"]["accessControlAllowOriginList"] == ["*"]
    assert changed["middlewares"]["rewrite"]["replacePathRegex"] == {"regex": "^/api(/.*)?$", "replacement": "/v2$1"}
    assert changed["services"]["backend"]["loadBalancer"]["servers"] == [{"url": "http://127.0.1.1:80"}]


def raw(routing: Routing) -> dict[str, Any]:
    """What Traefik's API would tell of a routing."""
    http = yaml.safe_load(render_dynamic(SITE, routing))["http"]
    told = {kind: {f"{name}@file": each for name, each in http[kind].items()} for kind in http}
    for router in told["routers"].values():
        router["middlewares"] = [f"{name}@file" for name in router["middlewares"]]
    return told


@pytest.mark.parametrize(
    ("told", "written", "shown"),
    [
        (PLAIN, PLAIN, True),
        (CHANGED, CHANGED, True),
        (PLAIN, CHANGED, False),
        (Routing(PLAIN.endpoints, cors=True, rewrite=None), PLAIN, False),
        (PLAIN, Routing(PLAIN.endpoints[:1], cors=False, rewrite=None), False),
        (CHANGED, Routing(CHANGED.endpoints, cors=True, rewrite=Rewrite("/api", "/v3")), False),
    ],
)
def test_what_traefik_tells_is_compared_with_what_was_written(told: Routing, written: Routing, shown: bool) -> None:
    assert shows(raw(told), yaml.safe_load(render_dynamic(SITE, written))) is shown


def test_before_traefik_has_read_anything_nothing_shows() -> None:
    assert shows({"routers": {}, "services": {}}, yaml.safe_load(render_dynamic(SITE, PLAIN))) is False


@pytest.mark.parametrize(
    ("path", "rest"),
    [("/api", ""), ("/api/x", "/x"), ("/api/", "/"), ("/apix", None), ("/x/api", None), ("/aXi", None)],
)
def test_the_pattern_of_a_rewrite(path: str, rest: str | None) -> None:
    match = re.match(rewrite_pattern(Rewrite("/api", "/v2")), path)
    assert (match and (match[1] or "")) == rest


def test_the_pattern_takes_no_character_of_a_path_for_syntax() -> None:
    assert re.match(rewrite_pattern(Rewrite("/a.b", "/v2")), "/a.b/c")
    assert not re.match(rewrite_pattern(Rewrite("/a.b", "/v2")), "/aXb/c")


@pytest.mark.parametrize("directive", ["master_process off;", "listen 127.0.1.9:81;", "worker_connections 1600;"])
def test_a_backend(directive: str) -> None:
    assert directive in render_backend(Endpoint(9, "127.0.1.9", 81), connections=1000)


@pytest.mark.parametrize("replica", [1, 16, 200])
def test_a_reply_is_about_one_kilobyte(replica: int) -> None:
    text = re.search(r'return 200 "(.*)";', reply_locations(replica))
    assert text is not None
    values = {
        "$server_addr:$server_port": "127.0.1.5:20000",
        "$hostname": "localhost",
        "$time_iso8601": "2026-11-30T12:00:00+00:00",
        "$request_uri": "/",
        "$request_id": "0" * 32,
    }
    body = text[1].replace("\\n", "\n")
    for name, value in values.items():
        assert name in body
        body = body.replace(name, value)
    assert "$" not in body
    assert 1000 <= len(body) <= 1048


@pytest.mark.parametrize(("workers", "master"), [(1, "off"), (2, "on")])
def test_direct_has_a_master_only_for_several_workers(workers: int, master: str) -> None:
    text = squeezed(render_direct(example_site(LabSpec("direct", workers=workers), 20_000)))
    assert f"master_process {master};" in text
    assert f"worker_processes {workers};" in text
    assert "add_header X-Swarm-Gateway direct-0 always;" in text
