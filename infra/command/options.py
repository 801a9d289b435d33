"""The options that several commands share, and the kinds of value they take: read as in plans and scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from infra.command.engine import Load
from infra.lab import GATEWAYS
from infra.lab.spec import MOST_REPLICAS
from infra.scenarios import Scenario, parse_timeout, parse_warmup_s
from infra.targets.located import nearest
from infra.targets.units import parse_count, parse_duration_s, parse_rate_per_s

__all__ = [
    "COUNT",
    "DURATION",
    "FACTOR",
    "GATEWAY_NAMES",
    "RATE",
    "REPLICAS",
    "Requests",
    "load_of",
    "load_options",
    "out_option",
    "requests_of",
]

_Command = TypeVar("_Command", bound=Callable[..., object])
_LARGEST_FACTOR = 1000.0


class _Value(click.ParamType[object]):
    """A kind of value that one of our readers checks; its ValueError becomes click's one line."""

    def __init__(self, name: str, reader: Callable[[str], object]) -> None:
        self.name = name
        self._reader = reader

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value  # a default, which is checked already
        try:
            return self._reader(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= _LARGEST_FACTOR:
        raise ValueError(f"given {text!r}, allowed a factor above 0 and up to {_LARGEST_FACTOR:.0f}, such as 0.2")
    return factor


def _gateways(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in GATEWAYS:
            raise ValueError(
                f"given {name!r}, allowed {', '.join(GATEWAYS)}, with commas between{nearest(name, GATEWAYS)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"given {text!r}, allowed each gateway once; --repeat N runs all of them N times")
    return names


COUNT = _Value("number", parse_count)
DURATION = _Value("duration", parse_duration_s)
FACTOR = _Value("factor", _factor)
GATEWAY_NAMES = _Value("names", _gateways)
REPLICAS = _Value("number", lambda text: parse_count(text, maximum=MOST_REPLICAS))
RATE = _Value("rate", parse_rate_per_s)
_TIMEOUT = _Value("duration", parse_timeout)
_WARMUP = _Value("duration", parse_warmup_s)


@dataclass(frozen=True)
class Requests:
    """What the command line says about the requests of a scenario; None was not given."""

    path: str | None
    method: str | None
    headers: tuple[str, ...]
    timeout: str | None
    wrk2: bool | None

    def on(self, scenario: Scenario) -> Scenario:
        """Return the scenario with what was given in place of its own."""
        options = scenario.options
        return replace(
            scenario,
            path=scenario.path if self.path is None else self.path,
            options=replace(
                options,
                method=options.method if self.method is None else self.method,
                headers=self.headers or options.headers,
                timeout=options.timeout if self.timeout is None else self.timeout,
                wrk2=options.wrk2 if self.wrk2 is None else self.wrk2,
            ),
        )


def requests_of(given: Mapping[str, Any]) -> Requests:
    """Return what `load_options` gathered about the requests."""
    return Requests(given["path"], given["method"], given["header"], given["timeout"], given["wrk2"])


def load_of(given: Mapping[str, Any]) -> Load:
    """Return what `load_options` gathered about the load as a whole."""
    return Load(
        insecure=bool(given["insecure"]),
        ca=given["ca"],
        resolve=given["resolve"],
        drain_s=given["drain"],
        processes=given["processes"],
        i_may_load=given["i_may_load"],
        max_rate_per_s=given["max_rate"],
        abort_on=given["abort_on"],
        idle=given["idle"],
    )


def out_option(command: _Command) -> _Command:
    """Add --out, the folder of runs."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=Path("runs"),
        show_default=True,
        help="Folder that the run directories and the report go into.",
    )(command)


def load_options(command: _Command) -> _Command:
    """Add the options of the load itself, spelled as plain `locust -f locustfiles/constant_rate.py` spells them."""
    options = [
        _load("--rate", type=RATE, help="Requests per second over all connections, such as 3000/s."),
        _load("--connections", type=COUNT, help="Connections held open; each is one user of Locust."),
        _load("--duration", type=DURATION, help="How long to measure, such as 30s; the warm-up comes before it."),
        _load("--warmup", type=_WARMUP, help="Load that is recorded but left out of summaries."),
        _load("--path", help="Path of every request."),
        _load("--method", help="Method of every request."),
        _load("--header", multiple=True, help="'Name: value' for every request; may be repeated."),
        _load("--timeout", type=_TIMEOUT, help="Longest wait for a reply, counted from the send, or none."),
        _load("--wrk2/--no-wrk2", default=None, help="wrk2's rules: failed slots are repeated, no timeout."),
        _load("--insecure", is_flag=True, help="Do not verify the certificate."),
        _load("--ca", type=click.Path(path_type=Path), help="File of certificates to trust."),
        _load("--resolve", multiple=True, help="HOST:PORT:ADDRESS: connect there instead; may be repeated."),
        _load("--drain", type=DURATION, help="Longest wait for outstanding replies at the end."),
        click.option("--processes", type=COUNT, help="Worker processes that make the load."),
        _load("--i-may-load", multiple=True, metavar="HOST", help="A host outside private networks that you may load."),
        _load("--max-rate", type=RATE, help="Refuse any rate above this."),
        _load(
            "--idle",
            type=click.Choice(["sleep", "spin"]),
            help="What a worker does between slots; default spin, which needs a core for itself.",
        ),
        _load("--abort-on", metavar="RULE", help="End the run when this holds: 'errors > 50% for 10s'."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _load(flag: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """Return an option that may come from the environment too, by the word that plain locust uses."""
    word = flag.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(flag, envvar=f"INGRESS_SWARM_{word}", **attributes)
