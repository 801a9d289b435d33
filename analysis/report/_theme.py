"""Colours, dashes and markers. Figures name colours by token (`@nginx`); the page puts in those of its theme."""

from __future__ import annotations

from dataclasses import dataclass

# Okabe and Ito's colours, told apart with any colour vision; brightened for a dark ground.
_GATEWAYS = {
    "direct": ("#6f7277", "#a3a8b0"),
    "nginx": ("#009e73", "#34c79e"),
    "haproxy": ("#0072b2", "#5bb4ec"),
    "envoy": ("#b5538a", "#e59cc4"),
    "traefik": ("#d55e00", "#ff9147"),
}
_OTHERS = (("#a87900", "#edbe4a"), ("#3d8fc4", "#8fd0f7"), ("#5b4fa8", "#aea4f0"), ("#444444", "#d0d0d0"))
_DASHES = {"direct": "dot", "nginx": "solid", "haproxy": "dash", "envoy": "dashdot", "traefik": "longdash"}
_MARKERS = {
    "direct": "circle-open",
    "nginx": "circle",
    "haproxy": "square",
    "envoy": "diamond",
    "traefik": "triangle-up",
}

_OUTCOMES = {
    "http_3xx": ("#8a8f98", "#8a8f98"),
    "http_4xx": ("#e0a800", "#f0c94a"),
    "http_5xx": ("#c2410c", "#fb8a4c"),
    "read_timeout": ("#6d28d9", "#b794f6"),
    "connect_timeout": ("#6d28d9", "#b794f6"),
    "refused": ("#1d4e89", "#7fb2ec"),
    "reset": ("#9f1239", "#f4749a"),
    "truncated": ("#be5a83", "#f0a6c5"),
}
_OTHER_FAILURE = ("#4b5563", "#c0c6d0")


@dataclass(frozen=True)
class Look:
    """How one gateway is drawn, everywhere alike."""

    token: str
    dash: str
    marker: str


def looks(gateways: list[str]) -> dict[str, Look]:
    """Look of each gateway: fixed for those of the lab, by order of appearance for others."""
    strangers = [gateway for gateway in dict.fromkeys(gateways) if gateway not in _GATEWAYS]
    result = {gateway: Look(f"@{gateway}", _DASHES[gateway], _MARKERS[gateway]) for gateway in _GATEWAYS}
    for number, gateway in enumerate(strangers):
        kind = number % len(_OTHERS)
        result[gateway] = Look(f"@other{kind}", ("solid", "dash", "dot", "dashdot")[number % 4], "cross")
    return result


def outcome_token(outcome: str) -> str:
    """Colour token of an outcome class."""
    return f"@{outcome}" if outcome in _OUTCOMES else "@failure"


def tokens() -> dict[str, tuple[str, str]]:
    """Light and dark colour of every token."""
    others = {f"other{kind}": pair for kind, pair in enumerate(_OTHERS)}
    ink = {"ink": ("#15181d", "#e8eaed"), "muted": ("#626a75", "#98a1ad"), "grid": ("#e6e8ec", "#2a2f37")}
    ground = {"ground": ("#ffffff", "#14171c"), "shade": ("rgba(98,106,117,0.09)", "rgba(152,161,173,0.12)")}
    change = {"change": ("rgba(21,24,29,0.38)", "rgba(232,234,237,0.42)")}
    return {**_GATEWAYS, **others, **_OUTCOMES, "failure": _OTHER_FAILURE, **ink, **ground, **change}
