"""YAML that remembers where it came from, so that an error names the file, the line and the key.

`load_located` gives plain dicts, lists and scalars; the dicts and lists also know the line of each of their items.
Code that checks data asks `line_of`, which answers None for plain data, so that the same checks serve both.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from pathlib import Path

import yaml

__all__ = ["Located", "YamlError", "line_of", "load_located", "nearest", "read_located"]

_LARGEST_FILE_BYTES = 1_000_000


class YamlError(Exception):
    """A text is no YAML that we read; the message is `file:line: what is wrong` in one line."""


class LocatedMap(dict[str, object]):
    """A mapping that knows the line of each key."""

    lines: dict[object, int]


class LocatedList(list[object]):
    """A sequence that knows the line of each item."""

    lines: dict[object, int]


Located = LocatedMap | LocatedList


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without aliases (a small text could otherwise grow to any size) and without double keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read: write it out", mark)
        return super().compose_node(parent, index)


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> LocatedMap:
    found = LocatedMap()
    found.lines = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key_node.start_mark)
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"{key}: given twice", key_node.start_mark)
        # Only text can be a key of ours; `on:` and `7:` are kept by their spelling and refused as unknown keys later.
        name = key if isinstance(key, str) else str(key_node.value)
        found[name] = loader.construct_object(value_node, deep=True)
        found.lines[name] = key_node.start_mark.line + 1
    return found


def _construct_list(loader: _Loader, node: yaml.SequenceNode) -> LocatedList:
    found = LocatedList(loader.construct_object(child, deep=True) for child in node.value)
    found.lines = {index: child.start_mark.line + 1 for index, child in enumerate(node.value)}
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _construct_list)


def load_located(text: str, where: str) -> object:
    """Read one YAML document; raise YamlError, which names `where` and the line, if it is none."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise YamlError(f"{where}{line}: {error.problem or 'not YAML'}") from error
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # a control character; 2026-99-99; a very deep nesting
        raise YamlError(f"{where}: not YAML: {str(error).splitlines()[0]}") from error


def read_located(path: Path) -> object:
    """Read one YAML file; raise YamlError if it cannot be read, is no text, too large, or no YAML."""
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise YamlError(f"{path}: larger than {_LARGEST_FILE_BYTES // 1000} kB: this is no plan or scenario")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise YamlError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise YamlError(f"{path}: is no UTF-8 text") from error
    return load_located(text, str(path))


def line_of(data: object, key: object) -> int | None:
    """Return the line of a key or an index, or None if the data did not come from a file."""
    return data.lines.get(key) if isinstance(data, LocatedMap | LocatedList) else None


def nearest(word: object, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the known word that is spelled most like this one, or nothing."""
    close = difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
