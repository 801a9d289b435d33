"""Figures as people read them: shared by the terminal table and the report, so that both say the same."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.latency import Quantile

ABSENT = "\N{EN DASH}"

_MAX_NAME_CHARS = 40

GATEWAYS = {
    "direct": "direct",
    "nginx": "NGINX",
    "haproxy": "HAProxy",
    "envoy": "Envoy",
    "traefik": "Traefik",
}

OUTCOMES = {
    "ok": "2xx",
    "http_3xx": "3xx",
    "http_4xx": "4xx",
    "http_5xx": "5xx",
    "dns": "name not resolved",
    "unreachable": "unreachable",
    "refused": "refused",
    "connect_timeout": "connect timeout",
    "tls": "TLS failed",
    "write": "write failed",
    "reset": "reset",
    "truncated": "cut off",
    "read_timeout": "read timeout",
    "bad_reply": "not HTTP",
    "wrong_reply": "wrong reply",
    "local": "our own fault",
    "unfinished": "unfinished",
    "unsent": "never sent",
}


def gateway_name(gateway: str) -> str:
    """Name of a gateway as its makers write it; one we do not know as it calls itself, at most 40 characters of it."""
    return GATEWAYS.get(gateway) or printable(gateway, _MAX_NAME_CHARS)


def ms(value_ms: float | None) -> str:
    """Milliseconds with three significant digits, never more than two decimals: 0.42, 12.3, 1,852."""
    if value_ms is None:
        return ABSENT
    if value_ms < 9.995:
        return f"{value_ms:.2f}"
    if value_ms < 99.95:
        return f"{value_ms:.1f}"
    return f"{value_ms:,.0f}"


def quantile_ms(figure: Quantile) -> str:
    """Return a quantile in ms, `> X` where it is a bound, a dash where it is absent."""
    if figure.value_us is None:
        return ABSENT
    return f"{'> ' if figure.is_bound else ''}{ms(figure.value_us / 1000)}"


def rate(per_s: float | None) -> str:
    """Return a rate in whole requests per second; one decimal below 100."""
    if per_s is None:
        return ABSENT
    return f"{per_s:,.1f}".removesuffix(".0") if per_s < 99.95 else f"{per_s:,.0f}"


def count(value: int | None) -> str:
    """Return a whole number with thousands separated."""
    return ABSENT if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """Return a share as a percentage with two significant digits where small: 0.021 %, 1.3 %, 31 %."""
    if value is None:
        return ABSENT
    percent = 100 * value
    if percent == 0 or percent >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.2g} %"


def megabytes(value_bytes: int | None) -> str:
    """Return bytes as whole MB (10**6)."""
    return ABSENT if value_bytes is None else f"{value_bytes / 1e6:,.0f}"


def printable(text: str, max_chars: int) -> str:
    """Return a stranger's text for a terminal or a label: no control characters, no longer than `max_chars`."""
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"


def listed(items: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def plural(number: int, noun: str) -> str:
    """Return `1 change`, `2 changes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def decimal(value: float | None) -> str:
    """Return an amount that need not be whole: one decimal below 100, none where it is whole."""
    if value is None:
        return ABSENT
    return f"{value:,.1f}".removesuffix(".0") if abs(value) < 99.95 else f"{value:,.0f}"
