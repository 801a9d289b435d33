import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.targets.units import (
    HIGHEST_RATE_PER_S,
    LONGEST_DURATION_S,
    format_count,
    format_duration,
    format_rate,
    parse_count,
    parse_duration_s,
    parse_rate_per_s,
    parse_switch,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30.0),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1m30s", 90.0),
        ("1.5s", 1.5),
        ("0.1s", 0.1),
        (" 12s ", 12.0),
        ("1s5ms", 1.005),
        ("720h", LONGEST_DURATION_S),
    ],
)
def test_a_duration_is_read_exactly(written: str, seconds: float) -> None:
    assert parse_duration_s(written) == seconds


@pytest.mark.parametrize(
    ("given_value", "problem"),
    [
        (30, "given 30, a duration without unit"),
        ("30", "given '30', a duration without unit"),
        (0.5, "given 0.5, a duration without unit"),
        ("-30", "a duration without unit"),
        ("-3s", "given '-3s', allowed a duration such as"),
        ("0s", "given '0s', allowed a duration above zero"),
        ("5ms3s", "given '5ms3s', allowed a duration such as"),
        ("721h", "allowed at most 2592000s"),
        ("soon", "given 'soon', allowed a duration such as"),
        ("", "given nothing"),
        (None, "given nothing"),
        (True, "given True"),
        ([30], "given [30]"),
        ("9" * 5000 + "s", "..."),
        ("infs", "given 'infs'"),
        ("1e3s", "given '1e3s'"),
        ("٣s", "given '٣s'"),
    ],
)
def test_what_is_no_duration_is_refused_in_one_line(given_value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^given ") as refused:
        parse_duration_s(given_value)
    assert problem in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 200


def test_zero_is_a_duration_where_it_is_asked_for() -> None:
    assert parse_duration_s("0s", zero=True) == 0.0


@given(st.floats(min_value=1e-9, max_value=LONGEST_DURATION_S))
def test_a_written_duration_reads_back_to_the_same_number(seconds: float) -> None:
    seconds = round(seconds, 9) or 1e-9
    assert parse_duration_s(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "written"), [(12, "12s"), (0.5, "500ms"), (2.25, "2.25s"), (0.0001, "0.0001s"), (0, "0s")]
)
def test_a_duration_is_written_the_way_people_do(seconds: float, written: str) -> None:
    assert format_duration(seconds) == written


@pytest.mark.parametrize(
    ("written", "rate"), [("30000/s", 30_000.0), (30_000, 30_000.0), ("0.5", 0.5), (0.5, 0.5), ("7/s", 7.0)]
)
def test_a_rate_is_per_second(written: object, rate: float) -> None:
    assert parse_rate_per_s(written) == rate


@pytest.mark.parametrize(
    "written",
    ["0", 0, "-1", -5, "fast", "3000/m", "nan", "inf", float("nan"), float("inf"), True, None, "1e3", "99999999", "٣"],
)
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^given .*allowed requests per second above 0, up to 10000000: 3000/s$"):
        parse_rate_per_s(written)


@given(st.floats(min_value=1e-6, max_value=HIGHEST_RATE_PER_S))
def test_a_written_rate_reads_back_to_the_same_number(rate: float) -> None:
    rate = round(rate, 6) or 1e-6
    assert parse_rate_per_s(format_rate(rate)) == rate


@given(st.integers(min_value=1, max_value=1_000_000))
def test_a_count_reads_back(count: int) -> None:
    assert parse_count(str(count)) == parse_count(count) == count


@pytest.mark.parametrize("written", [0, "0", -1, "-1", 5.0, "5.0", True, "many", None, 1_000_001, "1_000", [5]])
def test_what_is_no_count_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^given .*, allowed a whole number from 1 to 1000000$"):
        parse_count(written)


@pytest.mark.parametrize(("written", "on"), [(True, True), (False, False), ("on", True), ("off", False)])
def test_yaml_reads_on_and_off_as_booleans_and_both_are_taken(written: object, on: bool) -> None:
    assert parse_switch(written) is on


@pytest.mark.parametrize("written", ["yes", 1, 0, None, "ON!"])
def test_what_is_no_switch_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="allowed on or off"):
        parse_switch(written)


@pytest.mark.parametrize(("count", "written"), [(30_000, "30,000"), (1000.0, "1,000"), (0.5, "0.5"), (12, "12")])
def test_a_count_is_shown_in_groups_of_three(count: float, written: str) -> None:
    assert format_count(count) == written
