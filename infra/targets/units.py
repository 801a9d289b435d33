"""How people write durations, rates and counts, read in one place: flags, plans, scenarios and the web form agree.

Every reader takes what a YAML file or a command line gives (text or a number) and raises ValueError with one line,
`given X, allowed Y`; the caller puts the name of the field before it.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

__all__ = [
    "LONGEST_DURATION_S",
    "HIGHEST_RATE_PER_S",
    "format_count",
    "format_duration",
    "format_rate",
    "parse_count",
    "parse_duration_s",
    "parse_rate_per_s",
    "parse_switch",
]

LONGEST_DURATION_S = 30 * 86_400.0
HIGHEST_RATE_PER_S = 10_000_000.0

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_DURATION = re.compile(rf"(?:({_NUMBER})h)?(?:({_NUMBER})m(?!s))?(?:({_NUMBER})s)?(?:({_NUMBER})ms)?")
_RATE = re.compile(rf"({_NUMBER})(?:/s)?")
_COUNT = re.compile(r"[+-]?[0-9]{1,15}")
_SECONDS_OF_UNIT = (Decimal(3600), Decimal(60), Decimal(1), Decimal("0.001"))
_EXAMPLES = "such as 500ms, 30s, 2m or 1h30m"


def parse_duration_s(value: object, *, zero: bool = False) -> float:
    """Return the seconds in `30s`, `500ms`, `2m`, `1h` or `1m30s`.

    A number without a unit is refused: 30 could be seconds or milliseconds, and a wrong guess would be a wrong test.
    Zero is refused unless `zero` is set. Raises ValueError.
    """
    text = _text_of(value)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        if re.fullmatch(rf"[+-]?{_NUMBER}", text):
            raise ValueError(
                f"given {_shown(value)}, a duration without unit, allowed a number with ms, s, m or h, {_EXAMPLES}"
            )
        raise ValueError(f"given {_shown(value)}, allowed a duration {_EXAMPLES}")
    parts = zip(match.groups(), _SECONDS_OF_UNIT, strict=True)
    seconds = float(sum((Decimal(number) * unit for number, unit in parts if number is not None), Decimal(0)))
    if seconds == 0 and not zero:
        raise ValueError(f"given {_shown(value)}, allowed a duration above zero, {_EXAMPLES}")
    if seconds > LONGEST_DURATION_S:
        raise ValueError(f"given {_shown(value)}, allowed at most {format_duration(LONGEST_DURATION_S)}")
    return seconds


def parse_rate_per_s(value: object) -> float:
    """Return the requests per second in `30000/s`, `30000` or `0.5`; raise ValueError if it is no rate above zero."""
    match = _RATE.fullmatch(_text_of(value))
    rate_per_s = float(match.group(1)) if match else 0.0
    if not 0 < rate_per_s <= HIGHEST_RATE_PER_S:
        raise ValueError(
            f"given {_shown(value)}, allowed requests per second above 0, up to {HIGHEST_RATE_PER_S:.0f}: 3000/s"
        )
    return rate_per_s


def parse_count(value: object, *, minimum: int = 1, maximum: int = 1_000_000) -> int:
    """Return a whole number from `minimum` to `maximum`; raise ValueError for anything else, also for 5.0 and true."""
    text = _text_of(value)
    count = int(text) if _COUNT.fullmatch(text) else minimum - 1
    if not minimum <= count <= maximum:
        raise ValueError(f"given {_shown(value)}, allowed a whole number from {minimum} to {maximum}")
    return count


def parse_switch(value: object) -> bool:
    """Return whether `on` or `off` was written; YAML 1.1 reads both as booleans already. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if value in ("on", "off"):
        return value == "on"
    raise ValueError(f"given {_shown(value)}, allowed on or off")


def format_duration(seconds: float) -> str:
    """Return a duration that `parse_duration_s` reads back to the same number: `12s`, `500ms`, `2.25s`."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"given {seconds}, allowed a finite number of seconds from zero")
    exact = Decimal(repr(seconds))
    if exact != exact.to_integral_value() and exact < 1 and exact * 1000 == (exact * 1000).to_integral_value():
        return f"{int(exact * 1000)}ms"
    return f"{_plain(exact)}s"


def format_rate(rate_per_s: float) -> str:
    """Return a rate that `parse_rate_per_s` reads back to the same number: `30000/s`."""
    return f"{_plain(Decimal(repr(float(rate_per_s))))}/s"


def format_count(count: float) -> str:
    """Return a number for a person, in groups of three: `30,000`."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text_of(value: object) -> str:
    """Return what was written, as text; a boolean or a list is no number, so it becomes text that no pattern takes."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return _plain(Decimal(repr(value))) if value != int(value) else f"{int(value)}.0"
    return ""


def _shown(value: object) -> str:
    """Return the value for a message, cut where a mistake pasted a whole file in."""
    shown = "nothing" if value is None or value == "" else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
