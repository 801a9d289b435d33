from dataclasses import replace
from pathlib import Path

import pytest

from infra.scenarios import Options, ScenarioError, load_scenario, parse_scenario, scenario_names
from infra.targets.plan import Loop, Scale, Wait

MINE = """\
name: mine
profile: constant_rate
rate: 100/s
connections: 10
duration: 30s
"""


def refused(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(str(path))
    assert len(str(error.value).splitlines()) == 1
    return str(error.value).removeprefix(str(path))


def test_study_1_is_built_in_at_the_size_it_was_published_with() -> None:
    dynamic = load_scenario("nginx-2020-dynamic")
    assert (dynamic.rate_per_s, dynamic.connections, dynamic.duration_s, dynamic.warmup_s) == (
        30_000.0,
        1000,
        180.0,
        15.0,
    )
    assert (dynamic.profile, dynamic.scheme, dynamic.path, dynamic.options) == (
        "constant_rate",
        "https",
        "/",
        Options(wrk2=True),
    )
    assert dynamic.churn is not None
    assert dynamic.churn.steps == (Loop((Scale(5), Wait(12.0), Scale(7), Wait(10.0))),)
    static = load_scenario("nginx-2020-static")
    assert replace(static, name="", about="", published=None) == replace(
        dynamic.without_churn(), name="", about="", published=None
    )
    assert static.built_in


def test_the_published_figures_are_those_of_the_study() -> None:
    published = load_scenario("nginx-2020-dynamic").published
    assert published is not None
    rows = {row["gateway"]: row for row in published.rows}
    counts = {name: (row["connect_errors"], row["timeouts"], row["read_errors"]) for name, row in rows.items()}
    assert counts == {
        "nginx-oss-1.8.0": (33365, 309, 4650),
        "ingress-nginx-0.34.1": (0, 8809, 0),
        "nginx-plus-1.8.0": (0, 0, 0),
    }
    assert (rows["nginx-oss-1.8.0"]["p99"], rows["nginx-oss-1.8.0"]["p99.99"]) == ("32s", "60s")
    assert rows["ingress-nginx-0.34.1"]["p99"] == "5s"
    assert rows["nginx-plus-1.8.0"]["p99.9999"] == "254ms"


@pytest.mark.parametrize("name", scenario_names())
def test_every_built_in_scenario_reads_back_from_what_a_manifest_keeps(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert replace(parse_scenario(scenario.to_data(), "manifest"), built_in=True) == scenario


def test_a_scenario_of_ones_own_has_defaults(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    mine = load_scenario(str(tmp_path / "mine.yaml"))
    assert (mine.warmup_s, mine.scheme, mine.path, mine.options, mine.churn) == (5.0, "https", "/", Options(), None)
    assert not mine.built_in


def test_options_are_those_of_the_flags(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE + "options: {method: HEAD, header: ['A: b'], timeout: none, wrk2: true}\n")
    options = load_scenario(str(tmp_path / "mine.yaml")).options
    assert options == Options(method="HEAD", headers=("A: b",), timeout="none", wrk2=True)
    assert options.to_data() == {"method": "HEAD", "header": ["A: b"], "timeout": "none", "wrk2": True}


def test_sizes_are_overridden_one_by_one() -> None:
    scenario = load_scenario("nginx-2020-dynamic")
    small = scenario.scaled(
        rate_per_s=100.0, connections=5, duration_s=9.0, warmup_s=0.0, wait_scale=0.5, longest_wait_s=5.5
    )
    assert (small.rate_per_s, small.connections, small.duration_s, small.warmup_s) == (100.0, 5, 9.0, 0.0)
    assert small.churn is not None
    assert small.churn.steps == (Loop((Scale(5), Wait(5.5), Scale(7), Wait(5.0))),)
    assert scenario.scaled() == scenario


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("nginx-2020-dynamik", "nginx-2020-dynamic"), ("nginx-2020-sttic", "nginx-2020-static")],
)
def test_an_unknown_scenario_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^scenario: given '{name}', allowed .*; did you mean {nearest}\?$"):
        load_scenario(name)


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    with pytest.raises(ScenarioError, match=r"or a file such as \./mine\.yaml$"):
        load_scenario("zzz")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MINE + "rat: 5\n", ":6: rat: unknown key, allowed name, about, profile"),
        (MINE + "conections: 5\n", "; did you mean connections?"),
        (MINE.replace("100/s", "0"), ":3: rate: given 0, allowed requests per second above 0"),
        (MINE.replace("100/s", "-5/s"), ":3: rate: given '-5/s', allowed requests per second above 0"),
        (MINE.replace("connections: 10", "connections: many"), ":4: connections: given 'many', allowed a whole number"),
        (MINE.replace("30s", "30"), ":5: duration: given 30, a duration without unit"),
        (
            MINE.replace("constant_rate", "constant_rat"),
            ":2: profile: given 'constant_rat', allowed constant_rate; did",
        ),
        (MINE.replace("name: mine\n", ""), ": name: missing; a scenario needs name, profile, rate"),
        (MINE.replace("mine", "Mine!"), ":1: name: given 'Mine!', allowed lower-case letters"),
        (MINE + "path: api\n", ":6: path: given 'api', allowed a path from / on"),
        (MINE + "scheme: ftp\n", ":6: scheme: given 'ftp', allowed https, http"),
        (MINE + "warmup: 1.5s\n", ":6: warmup: given '1.5s', allowed whole seconds"),
        (MINE + "warmup: -1s\n", ":6: warmup: given '-1s', allowed a duration"),
        (
            MINE + "options: {wrk: true}\n",
            ":6: options: wrk: unknown key, allowed method, header, timeout, wrk2; did",
        ),
        (MINE + "options: {wrk2: maybe}\n", ":6: options: wrk2: given 'maybe', allowed true or false"),
        (MINE + "options: {timeout: 5}\n", ":6: options: timeout: given 5, a duration without unit"),
        (MINE + "options: {header: nonsense}\n", ":6: options: header: given 'nonsense', allowed 'Name: value'"),
        (MINE + "options: 5\n", ": options: given 5, allowed a mapping"),
        (MINE + "churn:\n  - scale: 0\n", ":7: scale: given 0, allowed a whole number from 1"),
        (MINE + "churn:\n  - loop: [{scale: 2}]\n", ":7: loop: given no wait in it"),
        (
            MINE + "path: /x\nchurn:\n  - rewrite: {from: /api, to: /v2}\n",
            ":6: path: given /x, but the churn plan rewrites /api",
        ),
        (MINE + "gates: p99 < 5ms\n", ":6: gates: given 'p99 < 5ms', allowed a list"),
        (MINE + "published: {rows: [{p99: 3s}]}\n", ": published: rows: given {'p99': '3s'}, allowed {gateway: NAME"),
        (
            MINE + "published: {rows: [{gateway: x, p99: 3}]}\n",
            ":6: published: rows: p99: given 3, a duration",
        ),
        (
            MINE + "published: {rows: [{gateway: x, rps: fast}]}\n",
            ":6: published: rows: rps: given 'fast', allowed",
        ),
        (MINE + "name: twice\n", ":6: name: given twice"),
        ("- 5\n", ": given no mapping, allowed a scenario"),
        ("", ": given no mapping, allowed a scenario"),
        ("{", ":1: "),
    ],
)
def test_what_is_no_scenario_is_refused_with_file_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in refused(tmp_path, text)


@pytest.mark.parametrize("path", ["/api", "/api/shops", "/api?shop=1"])
def test_a_rewrite_that_the_load_meets_is_taken(tmp_path: Path, path: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE + f"path: {path}\nchurn:\n  - rewrite: {{from: /api, to: /v2}}\n")
    assert load_scenario(str(file)).path == path
