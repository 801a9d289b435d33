"""Figures in words: the headline of a report, the table on the terminal, and numbers as people read them."""

import io
from pathlib import Path

import pytest
import synthetic
from rich.console import Console

from analysis import RunSummary, open_run, render
from analysis.report._title import left_out, title
from analysis.words import ABSENT, decimal, listed, megabytes, ms, plural, printable, rate, share


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), measured_s=8)


def summaries(runs: list[Path]) -> list[RunSummary]:
    return [open_run(run).summary() for run in runs]


def test_title_names_what_failed_and_whose_p99_rose_most(campaign: list[Path]) -> None:
    all_runs = summaries(campaign)
    errors = {one.gateway: one.errors for one in all_runs if one.variant == "dynamic"}
    assert errors["haproxy"] == 0
    assert errors["traefik"] > errors["nginx"] > errors["envoy"] > 0
    before, after = (one.response.quantiles["p99"].value_us or 0 for one in all_runs if one.gateway == "nginx")
    if all_runs[1].variant == "dynamic":
        before, after = after, before
    assert title(all_runs) == (
        f"Endpoint churn at 3,000 requests/s: {errors['traefik']} requests failed on Traefik, "
        f"{errors['nginx']} on NGINX, "
        f"{errors['envoy']} on Envoy, none on HAProxy; "
        f"p99 rose from {ms(before / 1000)} to {ms(after / 1000)} ms on NGINX, the most"
    )
    assert left_out(all_runs) == ""


def test_title_of_one_gateway_that_nothing_happened_to(tmp_path: Path) -> None:
    calm = [
        synthetic.write_run(tmp_path / "static", synthetic.Plan(gateway="direct")),
        synthetic.write_run(tmp_path / "dynamic", synthetic.Plan(gateway="direct", changes_at_s=(3.5,))),
    ]
    assert title(summaries(calm)) == (
        "Endpoint churn at 3,000 requests/s: no request failed on direct; p99 rose by less than 10 %"
    )


def test_title_of_runs_that_are_no_pair(campaign: list[Path], tmp_path: Path) -> None:
    static = [one for one in summaries(campaign) if one.variant == "static"]
    slowest = max(static, key=lambda one: one.response.quantiles["p99"].value_us or 0)
    assert title(static) == (
        "nginx-2020-static: direct, NGINX, HAProxy, Envoy and Traefik at 3,000 requests/s: p99 at most "
        f"{ms((slowest.response.quantiles['p99'].value_us or 0) / 1000)} ms (Traefik), no request failed"
    )
    few = synthetic.write_run(tmp_path / "few", synthetic.Plan(rate_per_s=10, measured_s=2))
    assert title(summaries([few])) == "nginx-2020: NGINX at 10 requests/s: no request failed"


def test_title_compares_only_runs_of_one_rate(campaign: list[Path], tmp_path: Path) -> None:
    slower = synthetic.write_run(tmp_path / "run", synthetic.Plan(gateway="envoy", rate_per_s=100, changes_at_s=(3.0,)))
    static = [path for path in campaign if "static-envoy" in path.name]
    nginx = [path for path in campaign if "-nginx-0" in path.name]
    assert title(summaries([*static, slower, *nginx])).startswith(
        "nginx-2020-static, nginx-2020 and nginx-2020-dynamic:"
    )


def terminal(summaries: list[RunSummary], width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render(summaries))
    return out.getvalue()


def test_the_terminal_table_fits_and_holds_the_figures(campaign: list[Path]) -> None:
    all_runs = summaries(campaign)
    text = terminal(all_runs)
    assert max(len(line) for line in text.splitlines()) <= 100
    line = next(line for line in text.splitlines() if line.startswith("NGINX") and "dynamic" in line)
    one = next(one for one in all_runs if (one.gateway, one.variant) == ("nginx", "dynamic"))
    quantiles = [ms((one.response.quantiles[name].value_us or 0) / 1000) for name in ("p50", "p99")]
    assert line.split()[:7] == ["NGINX", "dynamic", "3,000", "3,000", *quantiles, line.split()[6]]
    assert line.split()[-1] == "valid"
    assert str(one.errors) in line.split()


def test_the_terminal_says_what_is_wrong(tmp_path: Path) -> None:
    plan = synthetic.Plan(measured_s=2, manifest={"valid": False, "invalid_reasons": ["\x1b[31mlate_own 4 %", "more"]})
    text = terminal(summaries([synthetic.write_run(tmp_path / "run", plan)]))
    assert "invalid: NGINX static: ?[31mlate_own 4 % (and 1 more in the report)" in text
    assert "\x1b" not in text


def test_a_hostile_run_in_the_terminal(tmp_path: Path) -> None:
    text = terminal(summaries([synthetic.write_hostile_run(tmp_path / "run")]))
    assert "</script><img s…" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ABSENT),
        (0.0, "0.00"),
        (0.421, "0.42"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (1852.4, "1,852"),
    ],
)
def test_milliseconds(value: float | None, text: str) -> None:
    assert ms(value) == text


def test_words() -> None:
    assert [rate(value) for value in (None, 12.0, 12.34, 3000.4)] == [ABSENT, "12", "12.3", "3,000"]
    assert [share(value) for value in (None, 0.0, 0.00021, 0.013, 0.312)] == [ABSENT, "0 %", "0.021 %", "1.3 %", "31 %"]
    assert [decimal(value) for value in (None, 3.0, 3.25, 1234.5)] == [ABSENT, "3", "3.2", "1,234"]
    assert [megabytes(value) for value in (None, 41_400_000)] == [ABSENT, "41"]
    assert [listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [plural(number, "change") for number in (1, 1200)] == ["1 change", "1,200 changes"]
    assert printable("a\x1bb" + "c" * 9, 6) == "a?bcc…"
