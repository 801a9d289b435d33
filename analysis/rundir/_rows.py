"""Reads the tables of a run directory line by line, strictly: a row is as the layout says, or an error names it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from analysis.rundir._errors import RunDirError
from analysis.rundir._layout import MAX_TEXT_CHARS, OUTCOMES, TABLES, Row, columns

FIRST_SECOND = -3_600
LAST_SECOND = 1_000_000
"""Eleven days. A second outside is damage, and would size arrays."""

MAX_COUNT = 2**53
_MAX_LINE_BYTES = 64 * 1024
_FILE_OF = {row: name for name, row in TABLES.items()}

R = TypeVar("R", bound=Row)


class FieldError(ValueError):
    """A field that is not what its column holds."""


def lines(path: Path, max_bytes: int, notes: list[str]) -> Iterator[tuple[int, int, bytes]]:
    """Line number, offset and text without line end of each whole line. A missing file has none.

    A last line without its end was cut off by a crash: it is left out, and a sentence is added to `notes`.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirError(f"{path}: {error.strerror}") from error
    with file:
        offset = 0
        number = 0
        while line := file.readline(max_bytes + 1):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) > max_bytes:
                    raise RunDirError(f"{path}:{number}: a line of more than {max_bytes} bytes")
                notes.append(f"{path.name}: its last line ({number}) is cut off and left out")
                return
            yield number, offset, line[:-1]
            offset += len(line)


def read_rows(folder: Path, row: type[R], notes: list[str]) -> Iterator[R]:
    """Rows of one table, in file order. Raises RunDirError naming file and line."""
    path = folder / _FILE_OF[row]
    head = columns(row)
    parsers = _parsers(row)
    for number, _, raw in lines(path, _MAX_LINE_BYTES, notes):
        try:
            cells = _cells(raw, len(head))
            values = cells if number == 1 else [parse(cell) for parse, cell in zip(parsers, cells, strict=True)]
        except FieldError as error:
            raise RunDirError(f"{path}:{number}: {error}") from error
        if number > 1:
            yield row(*values)
        elif tuple(values) != head:
            raise RunDirError(f"{path}:1: the columns are not {','.join(head)}")


def second_number(field: str) -> int:
    """A second of the run. Raises FieldError outside FIRST_SECOND..LAST_SECOND."""
    digits = field[1:] if field.startswith("-") else field
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):
        raise FieldError(f"{_shown(field)} is not a second")
    second = int(field)
    if not FIRST_SECOND <= second <= LAST_SECOND:
        raise FieldError(f"second {second} is outside {FIRST_SECOND}..{LAST_SECOND}")
    return second


def _cells(raw: bytes, expected: int) -> list[Any]:
    try:
        line = raw.decode("utf-8")
        cells = next(csv.reader([line], strict=True)) if '"' in line else line.split(",")
    except UnicodeDecodeError as error:
        raise FieldError("not UTF-8") from error
    except csv.Error as error:
        raise FieldError(f"not CSV ({error})") from error
    if len(cells) != expected:
        raise FieldError(f"{len(cells)} fields, not {expected}")
    return cells


def _parsers(row: type[Row]) -> list[Callable[[str], object]]:
    hints = get_type_hints(row)
    of_type: dict[object, Callable[[str], object]] = {
        int: _count,
        float: _seconds,
        str: _text,
        int | None: _or_absent(_count),
        float | None: _or_absent(_seconds),
    }
    of_column: dict[str, Callable[[str], object]] = {"second": second_number, "outcome": _outcome}
    return [of_column.get(field.name, of_type[hints[field.name]]) for field in fields(row)]


def _outcome(field: str) -> str:
    if field not in OUTCOMES:
        raise FieldError(f"{_shown(field)} is no outcome: known are {', '.join(OUTCOMES)}")
    return field


def _count(field: str) -> int:
    if not (field.isascii() and field.isdigit() and len(field) < 18):
        raise FieldError(f"{_shown(field)} is not a count")
    value = int(field)
    if value > MAX_COUNT:
        raise FieldError(f"{_shown(field)} is too large for a count")
    return value


def _seconds(field: str) -> float:
    try:
        value = float(field)
    except ValueError as error:
        raise FieldError(f"{_shown(field)} is not a number") from error
    if not (math.isfinite(value) and 0 <= value <= MAX_COUNT):
        raise FieldError(f"{_shown(field)} is not a number of seconds")
    return value


def _text(field: str) -> str:
    return field[:MAX_TEXT_CHARS]


def _or_absent(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda field: None if field == "" else parse(field)


def _shown(field: str) -> str:
    return repr(field if len(field) <= 40 else field[:40] + "…")
