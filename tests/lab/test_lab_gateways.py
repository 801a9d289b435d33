"""Every gateway for real: what it serves, and that each change shows in its replies."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest
from lab_replies import backends, eventually, get

from infra.lab import Lab, LabSpec
from infra.targets import Rewrite, State, Target, load_target, open_target
from infra.targets.steps import Cors, RewritePath, Scale

pytestmark = pytest.mark.integration

ORIGINAL = State(replicas=2, cors=False, rewrite=None)
API_TO_V2 = Rewrite("/api", "/v2")
# The prefix is replaced, only at the beginning, and only at the border of a path element.
REWRITTEN = {
    "/api/item?id=1": "/v2/item?id=1",
    "/api": "/v2",
    "/api/": "/v2/",
    "/apix": "/apix",
    "/other/api/item": "/other/api/item",
}


@pytest.fixture(scope="module", params=["nginx", "haproxy", "envoy", "traefik"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab.start(LabSpec(request.param, replicas=2)) as lab:
        yield lab


@pytest.fixture(scope="module")
def target(lab: Lab) -> Iterator[Target]:
    target = open_target(load_target(lab.target_path))
    yield target
    target.close()


def name_of(target: Target) -> str:
    gateway = target.facts()["gateway"]
    assert isinstance(gateway, dict)
    return str(gateway["name"])


def test_it_serves_https_verified_against_the_labs_own_authority(lab: Lab, target: Target) -> None:
    reply = get(lab, "/some/path?and=query")
    assert reply.status == 200
    assert (reply.tls, reply.alpn) == ("TLSv1.3", "http/1.1")
    assert reply.backend in ("1", "2")
    assert reply.path == "/some/path?and=query"
    assert reply.headers["x-swarm-gateway"] == f"{name_of(target)}-0"
    assert not reply.cors
    assert 900 <= len(reply.body) <= 1100
    assert b"URI: /some/path?and=query\n" in reply.body
    assert b"Server address: 127.0.1." in reply.body


def test_it_serves_the_same_over_tls_1_2_by_name_and_over_plain_http(lab: Lab) -> None:
    assert get(lab, most=ssl.TLSVersion.TLSv1_2).tls == "TLSv1.2"
    assert get(lab, url=lab.url.replace("127.0.0.1", "localhost")).status == 200
    plain = get(lab, url=lab.http_url)
    assert (plain.status, plain.tls) == (200, None)
    assert plain.headers["x-swarm-gateway"] == get(lab).headers["x-swarm-gateway"]


def test_every_change_shows_in_replies_and_is_put_back(lab: Lab, target: Target) -> None:
    assert target.state() == ORIGINAL
    before = {used.name: used for used in target.usage()}

    scaled = target.apply(Scale(4))
    assert scaled.state == State(replicas=4, cors=False, rewrite=None)
    assert scaled.accepted_at_s <= scaled.applied_at_s
    assert eventually(lambda: backends(lab) == {"1", "2", "3", "4"})

    # Each time until it is so: an nginx that reloads accepts connections in its old workers, too, for 0.1 s.
    target.apply(Cors(on=True))
    target.apply(RewritePath(API_TO_V2))
    for url in (lab.url, lab.http_url):
        assert eventually(lambda url=url: get(lab, url=url).cors)  # type: ignore[misc]
        for asked in REWRITTEN:
            assert eventually(lambda url=url, asked=asked: get(lab, asked, url=url).path == REWRITTEN[asked]), asked  # type: ignore[misc]

    again = target.apply(Cors(on=True))
    assert again.noop
    assert again.accepted_at_s == again.applied_at_s

    assert target.put_back(ORIGINAL) == ["cors: on to off", "rewrite: /api -> /v2 to off", "replicas: 4 to 2"]
    assert target.state() == ORIGINAL
    assert eventually(lambda: backends(lab) == {"1", "2"})
    assert eventually(lambda: get(lab, "/api/item").path == "/api/item")
    assert eventually(lambda: not get(lab).cors)
    assert target.put_back(ORIGINAL) == []

    after = {used.name: used for used in target.usage()}
    gateway = f"{name_of(target)}-0"
    assert set(before) == {gateway, "backend-1", "backend-2"}
    assert set(after) == {*before, "backend-3", "backend-4"}
    used_s = {
        name: used.cpu_user_s + used.cpu_system_s - sum((was.cpu_user_s, was.cpu_system_s) if was else (0, 0))
        for name, used in after.items()
        for was in (before.get(name),)
    }
    assert used_s[gateway] > 0
    assert after[gateway].rss_bytes > 1_000_000
    assert (after["backend-4"].rss_bytes, after["backend-4"].role) == (0, "backend")
    assert used_s["backend-4"] > 0


def test_facts_name_the_gateway_and_the_address_that_is_loaded(lab: Lab, target: Target) -> None:
    facts = target.facts()
    assert facts == lab.facts
    assert facts["kind"] == "lab"
    assert facts["addresses"] == [lab.url.removeprefix("https://")]
    gateway = facts["gateway"]
    assert isinstance(gateway, dict)
    assert gateway["version"] == lab.gateway_version
    assert gateway["workers"] == 1
    assert lab.gateway_version.count(".") == 2
