"""The options common to all profiles: one word each in the flag, the environment, the web form and a scenario;
validated here, and only here.

The web form passes whatever was typed, so values are text until `Settings.read` makes sense of them, at the start of
each test.
"""

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from infra.targets.units import parse_count, parse_duration_s, parse_rate_per_s
from locustfiles.engine._address import Host, Resolve, parse_host, parse_resolve
from locustfiles.engine._request import METHODS, parse_header, request_bytes

T = TypeVar("T")

_SECRET: Final = re.compile(r"auth|cookie|token|secret|password|api-?key|session", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AbortRule:
    """Stop the run when more than `errors_share` of the ended slots fail, `for_s` seconds on end."""

    errors_share: float
    for_s: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked to do, all of it checked. Durations in seconds; None: without limit, or not given."""

    host: Host
    rate_per_s: float
    path: str
    method: str
    headers: tuple[tuple[str, str], ...]
    timeout_s: float | None
    insecure: bool
    ca_pem: str | None
    resolves: tuple[Resolve, ...]
    churn: Path | None
    target: Path | None
    warmup_s: int
    duration_s: float | None
    drain_s: float
    run_dir: Path | None
    no_run_dir: bool
    meta: dict[str, Any]
    wrk2: bool
    expect_bytes: int | None
    spins: bool
    may_load: tuple[str, ...]
    max_rate_per_s: float | None
    abort_on: AbortRule | None

    @property
    def name(self) -> str:
        """How the request is called in statistics and in the run directory."""
        return f"{self.method} {self.path.split('?')[0]}"

    def request(self) -> bytes:
        """The bytes that every slot sends."""
        return request_bytes(self.method, self.path, self.host.authority, self.headers)

    def shown(self) -> dict[str, Any]:
        """The options for the manifest, secrets left out."""
        return {
            "host": f"{'https' if self.host.tls else 'http'}://{self.host.authority}",
            "rate_per_s": self.rate_per_s,
            "path": self.path,
            "method": self.method,
            "headers": {name: "(redacted)" if is_secret(name) else value for name, value in self.headers},
            "timeout_s": self.timeout_s,
            "insecure": self.insecure,
            "own_ca": self.ca_pem is not None,
            "resolve": [f"{entry.name}:{entry.port}:{entry.address}" for entry in self.resolves],
            "warmup_s": self.warmup_s,
            "duration_s": self.duration_s,
            "drain_s": self.drain_s,
            "wrk2": self.wrk2,
            "expect_bytes": self.expect_bytes,
            "idle": "spin" if self.spins else "sleep",
            "max_rate_per_s": self.max_rate_per_s,
        }

    @classmethod
    def read(cls, options: Namespace, host: str | None) -> "Settings":
        """Check everything that was given. Raises ValueError with one line."""
        timeout = _text(options.timeout)
        timeout_s = None if timeout == "none" else _of("--timeout", parse_duration_s, timeout)
        duration = _text(options.duration)
        settings = cls(
            host=parse_host(host),
            rate_per_s=_of("--rate", parse_rate_per_s, options.rate),
            path=_text(options.path),
            method=_text(options.method).upper(),
            headers=tuple(parse_header(entry) for entry in _list(options.header)),
            timeout_s=None if options.wrk2 else timeout_s,
            insecure=bool(options.insecure),
            ca_pem=_read_file("--ca", options.ca),
            resolves=tuple(parse_resolve(entry) for entry in _list(options.resolve)),
            churn=_path(options.churn),
            target=_path(options.target),
            warmup_s=_of("--warmup", _whole_seconds, options.warmup),
            duration_s=_of("--duration", parse_duration_s, duration) if duration else None,
            drain_s=_of("--drain", parse_duration_s, options.drain),
            run_dir=_path(options.run_dir),
            no_run_dir=bool(options.no_run_dir),
            meta=_meta(options.run_meta),
            wrk2=bool(options.wrk2),
            expect_bytes=_of(
                "--expect-bytes", lambda text: parse_count(text, minimum=0, maximum=1 << 30), options.expect_bytes
            )
            if _text(options.expect_bytes)
            else None,
            spins=_of("--idle", _spins, options.idle),
            may_load=tuple(_list(options.i_may_load)),
            max_rate_per_s=_of("--max-rate", parse_rate_per_s, options.max_rate) if _text(options.max_rate) else None,
            abort_on=_abort_rule(_text(options.abort_on)),
        )
        settings.request()
        if settings.churn is not None and settings.target is None:
            raise ValueError("--churn: a plan needs something to change: give --target FILE too")
        if settings.max_rate_per_s is not None and settings.rate_per_s > settings.max_rate_per_s:
            raise ValueError(
                f"--rate: given {settings.rate_per_s:g}/s, allowed up to --max-rate {settings.max_rate_per_s:g}/s"
            )
        return settings


def is_secret(header: str) -> bool:
    """Whether the value of a header of this name is left out of everything that is written down."""
    return _SECRET.search(header) is not None


def add_options(parser: ArgumentParser) -> None:
    """Add the common options to Locust's parser, and make its defaults safe: its UI and ZeroMQ listen on loopback
    unless told otherwise.
    """
    group = parser.add_argument_group("Ingress-swarm options", "Common to all profiles; durations like 500ms, 30s, 2m")

    def add(flag: str, default: Any, help_text: str, *, on_form: bool = True, **more: Any) -> None:
        variable = "INGRESS_SWARM_" + flag.strip("-").upper().replace("-", "_")
        action = group.add_argument(flag, default=default, help=help_text, env_var=variable, **more)
        # Locust's own add_argument would set this; a group has only the plain one.
        action.include_in_web_ui = on_form  # type: ignore[attr-defined]
        action.is_secret = action.is_required = action.is_multiple = False  # type: ignore[attr-defined]

    add(
        "--rate", "100/s", "Requests per second of all users together, on a fixed schedule; each user is one connection"
    )
    add("--path", "/", "Path to request, with its query")
    add("--method", "GET", f"One of {', '.join(METHODS)}")
    add("--header", [], "A header 'Name: value'; may be given several times", action="append")
    add("--timeout", "60s", "How long a reply may take from the sending on; 'none': for ever")
    add("--insecure", default=False, help_text="Do not verify the server's certificate", action="store_true")
    add("--ca", "", "File of CA certificates to trust instead of the system's", on_form=False)
    add(
        "--resolve",
        [],
        "HOST:PORT:ADDRESS: connect to ADDRESS for HOST, as curl does; may be given several times",
        action="append",
    )
    add("--churn", "", "File with the churn plan: what to change while the load runs", on_form=False)
    add("--target", "", "File that says what the churn plan changes", on_form=False)
    add("--warmup", "5s", "Recorded and marked, but left out of summaries; whole seconds")
    add("--duration", "", "Measured time after the warm-up; empty: until stopped")
    add("--drain", "10s", "How long to wait at the end for replies that are on their way")
    add("--run-dir", "", "Folder for this run's results (default: runs/<start>-<name>-<random>)", on_form=False)
    add("--no-run-dir", default=False, help_text="Keep no results", action="store_true", on_form=False)
    add("--run-meta", "", "JSON file with name, labels, campaign and scenario for the manifest", on_form=False)
    add(
        "--wrk2",
        default=False,
        help_text="Repeat failed requests, catch up at twice the rate at most, no timeout: as wrk2 does",
        action="store_true",
    )
    add(
        "--idle",
        "sleep",
        "What a worker does while no slot is due: 'sleep', or 'spin': look for work without pause, which takes its "
        "core whole and is far more punctual on a virtual machine",
    )
    add("--expect-bytes", "", "Length that each body must have; another one is a wrong_reply")
    add(
        "--i-may-load",
        [],
        "A host outside loopback, private ranges and the cluster that you are allowed to load",
        action="append",
        on_form=False,
    )
    add("--max-rate", "", "Refuse any rate above this", on_form=False)
    add("--abort-on", "", "Stop the run and put the target back, like 'errors > 50%% for 10s'", on_form=False)
    add("--worker-cpus", "", "Cores for the processes that make load, like 0 or 0,2", on_form=False)
    parser.set_defaults(web_host="127.0.0.1", master_bind_host="127.0.0.1")


def parse_cpus(text: str, available: frozenset[int]) -> frozenset[int]:
    """`0` or `0,2`. Raises ValueError with one line."""
    if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", text):
        raise ValueError(f"--worker-cpus: given {text!r}, allowed core numbers like 0 or 0,2")
    cpus = frozenset(int(number) for number in text.split(","))
    if not cpus <= available:
        raise ValueError(f"--worker-cpus: given {text}, allowed here {','.join(map(str, sorted(available)))}")
    return cpus


def _of(flag: str, parse: Callable[[Any], T], value: object) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _list(value: object) -> list[str]:
    """A list, or the one line that a web form makes of it."""
    entries = value if isinstance(value, list) else _text(value).split("\n")
    return [text for text in map(_text, entries) if text]


def _path(value: object) -> Path | None:
    text = _text(value)
    return Path(text) if text else None


def _read_file(flag: str, value: object) -> str | None:
    path = _path(value)
    if path is None:
        return None
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{flag}: cannot read {path}: {getattr(error, 'strerror', None) or 'it is no PEM file'}"
        ) from None


def _whole_seconds(value: object) -> int:
    seconds = parse_duration_s(value, zero=True)
    if seconds != int(seconds):
        raise ValueError(f"given {value}, allowed whole seconds: summaries are kept by the second")
    return int(seconds)


def _spins(value: object) -> bool:
    if _text(value) not in ("sleep", "spin"):
        raise ValueError(f"given {value!r}, allowed sleep or spin")
    return _text(value) == "spin"


def _meta(value: object) -> dict[str, Any]:
    path = _path(value)
    if path is None:
        return {}
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--run-meta: cannot read {path}: {error}") from None
    if not isinstance(meta, dict):
        raise ValueError(f"--run-meta: {path} holds no JSON object")  # noqa: TRY004  # a user's mistake, not a caller's
    return meta


def _abort_rule(text: str) -> AbortRule | None:
    if not text:
        return None
    match = re.fullmatch(r"errors\s*>\s*(\d+(?:\.\d+)?)\s*%\s+for\s+(\S+)", text)
    if match is None:
        raise ValueError(
            f"--abort-on: given {text!r}, allowed 'errors > PERCENT% for DURATION', like 'errors > 50% for 10s'"
        )
    if float(match[1]) >= 100:
        raise ValueError(f"--abort-on: given {match[1]}%, allowed below 100%: more than all cannot fail")
    return AbortRule(float(match[1]) / 100, max(1, round(_of("--abort-on", parse_duration_s, match[2]))))
