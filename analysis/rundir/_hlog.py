"""Reads a histogram log in the order of its seconds, holding an index of the file and one line of it at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from analysis.rundir._errors import RunDirError
from analysis.rundir._hdr import Indices
from analysis.rundir._layout import HISTOGRAMS, MAX_TEXT_CHARS, METRICS
from analysis.rundir._payload import MAX_PAYLOAD_CHARS, PayloadError, decode_payload
from analysis.rundir._rows import FieldError, lines, second_number

_MAX_LINE_BYTES = MAX_PAYLOAD_CHARS + 8 * MAX_TEXT_CHARS
_MAX_TAGS = 10_000
_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """Samples of one name and metric in one second: ascending indices and their counts. May be one part of several."""

    second: int
    name: str
    metric: str
    indices: Indices
    counts: Indices


def read_histograms(folder: Path, notes: list[str]) -> Iterator[Interval]:
    """All intervals by ascending second, whatever the order of the lines (workers report when they can).

    The first pass over the file finds where each second's lines stand, the second one decodes them. Raises RunDirError
    naming file and line.
    """
    path = folder / HISTOGRAMS
    seconds, offsets, numbers, tag_ids = array("q"), array("q"), array("q"), array("q")
    tags: dict[bytes, int] = {}
    for number, offset, line in lines(path, _MAX_LINE_BYTES, notes):
        if line.startswith((b"#", b'"')):
            continue
        try:
            tag, second = _key(line)
        except FieldError as error:
            raise RunDirError(f"{path}:{number}: {error}") from error
        if len(tags) == _MAX_TAGS and tag not in tags:
            raise RunDirError(f"{path}:{number}: more than {_MAX_TAGS} names")
        tag_ids.append(tags.setdefault(tag, len(tags)))
        seconds.append(second)
        offsets.append(offset)
        numbers.append(number)
    if not seconds:
        return
    names = [_name_and_metric(tag) for tag in tags]
    with path.open("rb") as file:
        for at in np.argsort(np.frombuffer(seconds, dtype=np.int64), kind="stable").tolist():
            file.seek(offsets[at])
            payload = file.readline(_MAX_LINE_BYTES + 1).rstrip(b"\n").rpartition(b",")[2]
            try:
                indices, counts = decode_payload(payload)
            except PayloadError as error:
                raise RunDirError(f"{path}:{numbers[at]}: {error}") from error
            name, metric = names[tag_ids[at]]
            yield Interval(seconds[at], name, metric, indices, counts)


def _key(line: bytes) -> tuple[bytes, int]:
    cells = line.split(b",")
    if len(cells) != _FIELDS or not cells[0].startswith(b"Tag="):
        raise FieldError("not a histogram line: Tag=name/metric,start,length,max,payload")
    if cells[0].rpartition(b"/")[2].decode("ascii", "replace") not in METRICS:
        raise FieldError(f"its tag does not end in one of {', '.join(METRICS)}")
    whole, _, fraction = cells[1].decode("ascii", "replace").partition(".")
    if fraction.strip("0"):
        raise FieldError("its interval does not start on a whole second")
    return cells[0][4:], second_number(whole)


def _name_and_metric(tag: bytes) -> tuple[str, str]:
    name, _, metric = tag.decode("ascii", "replace").rpartition("/")
    return unquote(name, errors="replace")[:MAX_TEXT_CHARS], metric
