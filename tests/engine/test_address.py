"""Where the load goes: hosts, --resolve, and what may be loaded unasked."""

import socket

import pytest

from locustfiles.engine._address import Host, Resolve, addresses_of, may_be_loaded, parse_host, parse_resolve


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://ingress.example.test", Host(True, "ingress.example.test", 443, "ingress.example.test")),
        ("http://ingress.example.test", Host(False, "ingress.example.test", 80, "ingress.example.test")),
        ("https://shop.test/", Host(True, "shop.test", 443, "shop.test")),
        ("https://shop.test:443", Host(True, "shop.test", 443, "shop.test")),
        ("https://shop.test:80", Host(True, "shop.test", 80, "shop.test:80")),
        ("http://shop.test:8080", Host(False, "shop.test", 8080, "shop.test:8080")),
        ("HTTPS://Shop.Test:8443", Host(True, "shop.test", 8443, "shop.test:8443")),
        ("https://127.0.0.1:40001", Host(True, "127.0.0.1", 40001, "127.0.0.1:40001")),
        ("https://[::1]", Host(True, "::1", 443, "[::1]")),
        ("http://[fd00::7]:8080", Host(False, "fd00::7", 8080, "[fd00::7]:8080")),
        ("https://user:secret@shop.test", Host(True, "shop.test", 443, "shop.test")),
        ("https://user:p@ss@shop.test:8443", Host(True, "shop.test", 8443, "shop.test:8443")),
        ("https://xn--bcher-kva.test", Host(True, "xn--bcher-kva.test", 443, "xn--bcher-kva.test")),
        ("https://web_1.svc", Host(True, "web_1.svc", 443, "web_1.svc")),
    ],
)
def test_a_host_is_read(text: str, host: Host) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "none given"),
        ("", "none given"),
        ("shop.test", "with its scheme, like https://shop.test"),
        ("shop.test:8443", "with its scheme"),
        ("ftp://shop.test", "with its scheme, like https://shop.test"),
        ("https://", "with its scheme"),
        ("https://:443", "with its scheme"),
        ("https://shop.test/api", "the path goes into --path"),
        ("https://shop.test?a=b", "the path goes into --path"),
        ("https://shop.test#a", "the path goes into --path"),
        ("https://shop.test:0", "ports 1 to 65535"),
        ("https://shop.test:65536", "port from 1 to 65535"),
        ("https://shop.test:https", "port from 1 to 65535"),
        ("https://shop.test:-1", "port from 1 to 65535"),
        ("https://[::1", "allowed a URL"),
        ("https://[zz]", "allowed a URL"),
        ("https://a b.test", "allowed letters, digits"),
        ("https://b\xfccher.test", "xn--"),
        ("https://a\tb'c.test", "allowed letters, digits"),
        ("https://user:s3cret@shop.test/api", "given 'shop.test/api'"),
    ],
)
def test_what_is_no_host_is_refused_in_one_line(text: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=r"^--host: ") as caught:
        parse_host(text)
    assert type(caught.value) is ValueError
    message = str(caught.value)
    assert why in message
    assert "\n" not in message
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("text", "resolve"),
    [
        ("shop.test:443:10.0.0.7", Resolve("shop.test", 443, "10.0.0.7")),
        ("Shop.Test:8443:127.0.0.1", Resolve("shop.test", 8443, "127.0.0.1")),
        ("shop.test:443:::1", Resolve("shop.test", 443, "::1")),
        ("shop.test:443:[fd00::7]", Resolve("shop.test", 443, "fd00::7")),
    ],
)
def test_a_resolve_is_read(text: str, resolve: Resolve) -> None:
    assert parse_resolve(text) == resolve


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "shop.test",
            "shop.test:443",
            "shop.test:443:",
            "shop.test:x:10.0.0.7",
            ":443:10.0.0.7",
            "shop.test:443:other",
        ),
        *(
            "shop.test:443:10.0.0.256",
            "shop.test:443:10.0.0",
            "shop.test:443:::::",
            "sh op:443:10.0.0.7",
            "a:1:1.2.3.4\n",
        ),
    ],
)
def test_what_is_no_resolve_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--resolve: given ") as caught:
        parse_resolve(text)
    assert "\n" not in str(caught.value)


def test_an_address_needs_no_resolver() -> None:
    assert addresses_of(parse_host("http://127.0.0.1:81"), []) == ((socket.AF_INET, ("127.0.0.1", 81)),)
    assert addresses_of(parse_host("http://[::1]:81"), []) == ((socket.AF_INET6, ("::1", 81)),)


def test_resolves_stand_in_for_the_resolver_in_their_order_and_once() -> None:
    resolves = [
        parse_resolve(text)
        for text in (
            "shop.test:443:10.0.0.2",
            "shop.test:443:10.0.0.1",
            "shop.test:80:10.0.0.3",
            "other.test:443:10.0.0.4",
            "shop.test:443:10.0.0.2",
        )
    ]
    assert addresses_of(parse_host("https://shop.test"), resolves) == (
        (socket.AF_INET, ("10.0.0.2", 443)),
        (socket.AF_INET, ("10.0.0.1", 443)),
    )


def test_a_name_that_nobody_knows_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"^--host: cannot resolve 'nobody\.invalid': .*--resolve nobody\.invalid:443:"
    ) as caught:
        addresses_of(parse_host("https://nobody.invalid"), [])
    assert "\n" not in str(caught.value)


HOST = parse_host("https://shop.test:8443")


def goes_to(*addresses: str) -> list[tuple[int, tuple[str, int]]]:
    return [(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, 8443)) for address in addresses]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1"),
        *("100.64.0.0", "100.127.255.255", "::1", "fd00::7", "fe80::1", "fe80::1%eth0", "::ffff:10.0.0.1"),
    ],
)
def test_what_is_inside_may_be_loaded(address: str) -> None:
    assert may_be_loaded(HOST, goes_to(address), [])


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "193.0.0.1", "11.0.0.1"),
        *("2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
    ],
)
def test_what_is_outside_may_not(address: str) -> None:
    assert not may_be_loaded(HOST, goes_to(address), [])


def test_one_address_outside_is_enough() -> None:
    assert not may_be_loaded(HOST, goes_to("10.0.0.1", "8.8.8.8"), [])


def test_a_name_that_looks_like_a_clusters_is_judged_by_its_addresses() -> None:
    host = parse_host("https://web.shop.svc.cluster.local")
    assert may_be_loaded(host, goes_to("10.0.0.1"), [])
    assert not may_be_loaded(host, goes_to("8.8.8.8"), [])


@pytest.mark.parametrize(
    ("allowed", "may"),
    [
        (["shop.test"], True),
        (["shop.test:8443"], True),
        (["other.test", "shop.test"], True),
        (["shop.test:443"], False),
        (["test"], False),
        (["https://shop.test:8443"], False),
        ([""], False),
        (["8.8.8.8"], False),
    ],
)
def test_a_host_outside_must_be_named(allowed: list[str], may: bool) -> None:
    assert may_be_loaded(HOST, goes_to("8.8.8.8"), allowed) is may
