"""Reads scenarios: the built-in ones by name, anyone's by file. All of it is checked, and errors name the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from infra.scenarios.scenario import Options, Published, Scenario, ScenarioError
from infra.targets.located import YamlError, line_of, nearest, read_located
from infra.targets.plan import Plan, PlanError, parse_plan
from infra.targets.units import parse_count, parse_duration_s, parse_rate_per_s

__all__ = ["PROFILES", "load_scenario", "parse_scenario", "parse_timeout", "parse_warmup_s", "scenario_names"]

PROFILES = ("constant_rate",)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PATH = re.compile(r"/[\x21-\x22\x24-\x7e]{0,2000}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e]*")
_METRIC = re.compile(r"[a-z][a-z0-9_.]{0,40}")
_PERCENTILE = re.compile(r"p\d{2}(\.\d{1,6})?|max|mean")

_KEYS = ("name", "about", "profile", "rate", "connections", "duration", "warmup", "scheme", "path", "options", "churn")
_LATER_KEYS = ("gates", "published")
_REQUIRED = ("name", "profile", "rate", "connections", "duration")

_Value = TypeVar("_Value")


def scenario_names() -> tuple[str, ...]:
    """Return the names of the built-in scenarios, in order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_scenario(name: str) -> Scenario:
    """Return a built-in scenario by name, or the one in a file if `name` is a path or ends in .yaml or .yml.

    Raises ScenarioError: an unknown name (with the nearest known one), or a file that is none.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name)
        return parse_scenario(_read(path), str(path))
    names = scenario_names()
    if name not in names:
        raise ScenarioError(
            f"scenario: given {name!r}, allowed {', '.join(names)} or a file such as ./mine.yaml{nearest(name, names)}"
        )
    path = _FOLDER / f"{name}.yaml"
    return replace(parse_scenario(_read(path), path.name), built_in=True)


def parse_scenario(data: object, where: str) -> Scenario:
    """Return the scenario in a mapping, from YAML (`located` data gives errors a line) or JSON.

    `where` names the file in messages. Raises ScenarioError.
    """
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{where}: given no mapping, allowed a scenario: keys {', '.join(_KEYS + _LATER_KEYS)}")
    fields = _Fields(data, where)
    fields.known(_KEYS + _LATER_KEYS)
    for key in _REQUIRED:
        if key not in data:
            raise ScenarioError(f"{where}: {key}: missing; a scenario needs {', '.join(_REQUIRED)}")
    churn = _plan(data["churn"], where) if data.get("churn") is not None else None
    path = fields.read("path", _matching(_PATH, "a path from / on, without spaces and #"), "/")
    scenario = Scenario(
        name=fields.read("name", _matching(_NAME, "lower-case letters, digits and . _ -, at most 64"), ""),
        about=fields.read("about", _text, ""),
        profile=fields.read("profile", _one_of(PROFILES), ""),
        rate_per_s=fields.read("rate", parse_rate_per_s, 0.0),
        connections=fields.read("connections", parse_count, 0),
        duration_s=fields.read("duration", parse_duration_s, 0.0),
        warmup_s=fields.read("warmup", parse_warmup_s, 5.0),
        scheme=fields.read("scheme", _one_of(("https", "http")), "https"),
        path=path,
        options=_options(data["options"], where) if data.get("options") is not None else Options(),
        churn=churn,
        gates=fields.read("gates", _texts, ()),
        published=_published(data["published"], where) if data.get("published") is not None else None,
    )
    unseen = [
        rewrite.from_path for rewrite in (churn.rewrites if churn else ()) if not _lies_below(path, rewrite.from_path)
    ]
    if unseen:
        raise fields.error(
            "path", f"given {path}, but the churn plan rewrites {unseen[0]}, which this load would never show"
        )
    return scenario


class _Fields:
    """Reads the values of one mapping; puts file, line and key before what a reader says about a value."""

    def __init__(self, data: Mapping[str, object], where: str, under: str = "") -> None:
        self._data, self._where, self._under = data, where, under

    def known(self, keys: tuple[str, ...]) -> None:
        """Refuse a key that is not among these, and suggest the nearest."""
        for key in self._data:
            if key not in keys:
                raise self.error(str(key), f"unknown key, allowed {', '.join(keys)}{nearest(key, keys)}")

    def read(self, key: str, reader: Callable[[object], _Value], default: _Value) -> _Value:
        """Return what the reader makes of a value, or the default where the key is absent."""
        if key not in self._data:
            return default
        try:
            return reader(self._data[key])
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def error(self, key: str, problem: str) -> ScenarioError:
        """Return the error for a key: `file:line: key: problem`."""
        line = line_of(self._data, key)
        return ScenarioError(f"{self._where}{f':{line}' if line else ''}: {self._under}{key}: {problem}")


def _read(path: Path) -> object:
    try:
        return read_located(path)
    except YamlError as error:
        raise ScenarioError(str(error)) from error


def _plan(data: object, where: str) -> Plan:
    try:
        return parse_plan(data, where)
    except PlanError as error:
        raise ScenarioError(str(error)) from error


def _options(data: object, where: str) -> Options:
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{where}: options: given {data!r}, allowed a mapping such as {{wrk2: true}}")
    fields = _Fields(data, where, "options: ")
    fields.known(("method", "header", "timeout", "wrk2"))
    return Options(
        method=fields.read("method", _one_of(METHODS), "GET"),
        headers=fields.read("header", _headers, ()),
        timeout=fields.read("timeout", parse_timeout, None),
        wrk2=fields.read("wrk2", _boolean, False),  # noqa: FBT003 - the default of a value that is true or false
    )


def _published(data: object, where: str) -> Published:
    if not isinstance(data, Mapping) or not isinstance(data.get("rows"), list):
        raise ScenarioError(
            f"{where}: published: given no rows, allowed {{source: ..., rows: [{{gateway: ..., p99: 32s}}]}}"
        )
    fields = _Fields(data, where, "published: ")
    fields.known(("source", "note", "rows"))
    rows = tuple(_row(row, where) for row in data["rows"])
    return Published(source=fields.read("source", _text, ""), note=fields.read("note", _text, ""), rows=rows)


def _row(row: object, where: str) -> Mapping[str, object]:
    if not isinstance(row, Mapping) or not isinstance(row.get("gateway"), str):
        raise ScenarioError(f"{where}: published: rows: given {row!r}, allowed {{gateway: NAME, METRIC: FIGURE}}")
    fields = _Fields(row, where, "published: rows: ")
    for key, value in row.items():
        if not _METRIC.fullmatch(key):
            raise fields.error(key, "no metric, allowed small letters, digits, dots and underscores")
        if _PERCENTILE.fullmatch(key):
            fields.read(key, parse_duration_s, 0.0)
        elif key != "gateway" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise fields.error(key, f"given {value!r}, allowed a number")
    return dict(row)


def parse_timeout(value: object) -> str:
    """Return a timeout as flags spell it: a duration, or `none` for no limit; raise ValueError for anything else."""
    text = str(value).strip()
    if text != "none":
        try:
            parse_duration_s(value)
        except ValueError as error:
            raise ValueError(f"{error}; or none") from error
    return text


def parse_warmup_s(value: object) -> float:
    """Return the seconds of a warm-up, zero allowed; raise ValueError for parts of a second."""
    seconds = parse_duration_s(value, zero=True)
    if seconds != int(seconds):
        raise ValueError(f"given {value!r}, allowed whole seconds, such as 5s")
    return seconds


def _matching(pattern: re.Pattern[str], allowed: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"given {value!r}, allowed {allowed}")
        return value

    return read


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"given {value!r}, allowed {', '.join(words)}{nearest(value, words)}")
        return str(value)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"given {value!r}, allowed text")  # noqa: TRY004 - the reader of a value raises one kind
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"given {value!r}, allowed a list")  # noqa: TRY004
    return tuple(_text(entry) for entry in value)


def _headers(value: object) -> tuple[str, ...]:
    headers = _texts([value] if isinstance(value, str) else value)
    for header in headers:
        if not _HEADER.fullmatch(header):
            raise ValueError(f"given {header.split(':')[0]!r}, allowed 'Name: value'")
    return headers


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"given {value!r}, allowed true or false")  # noqa: TRY004
    return value


def _lies_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix.rstrip('/')}/", f"{prefix}?"))
