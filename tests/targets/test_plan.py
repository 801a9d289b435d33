from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.targets.plan import (
    Change,
    Cors,
    Item,
    Loop,
    Plan,
    PlanError,
    Repeat,
    RewritePath,
    Scale,
    Step,
    Wait,
    from_params,
    load_plan,
    parse_plan,
)
from infra.targets.state import Rewrite

THE_PLAN_OF_FORMATS = """\
churn:
  - repeat: {times: 3, steps: [{scale: 7}, {wait: 30s}, {scale: 5}, {wait: 30s}]}
  - cors: on
  - wait: 30s
  - cors: off
  - rewrite: {from: /api, to: /v2}
  - wait: 30s
  - rewrite: off
  - loop: [{scale: 5}, {wait: 12s}, {scale: 7}, {wait: 10s}]     # until the run ends
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_the_documented_plan_is_walked_in_order_and_without_end(tmp_path: Path) -> None:
    plan = load_plan(written(tmp_path, THE_PLAN_OF_FORMATS))
    thrice: list[Step] = [Scale(7), Wait(30.0), Scale(5), Wait(30.0)] * 3
    routes: list[Step] = [
        Cors(on=True),
        Wait(30.0),
        Cors(on=False),
        RewritePath(Rewrite("/api", "/v2")),
        Wait(30.0),
        RewritePath(None),
    ]
    loop: list[Step] = [Scale(5), Wait(12.0), Scale(7), Wait(10.0)]
    assert list(islice(plan.walk(), 26)) == thrice + routes + loop * 2
    assert plan.changes() == {"scale", "cors", "rewrite"}
    assert (plan.min_replicas, plan.max_replicas) == (5, 7)
    assert plan.rewrites == {Rewrite("/api", "/v2")}


def test_a_plan_without_a_loop_ends() -> None:
    plan = parse_plan([{"scale": 3}, {"wait": "1s"}], "here")
    assert list(plan.walk()) == [Scale(3), Wait(1.0)]
    assert parse_plan([{"cors": True}], "here").min_replicas is None


def test_waits_are_multiplied_wherever_they_stand_and_never_vanish() -> None:
    plan = parse_plan(
        [
            {"wait": "10s"},
            {"repeat": {"times": 2, "steps": [{"wait": "1s"}]}},
            {"loop": [{"scale": 2}, {"wait": "1ms"}]},
        ],
        "here",
    )
    assert plan.scaled(0.25).steps == (Wait(2.5), Repeat(2, (Wait(0.25),)), Loop((Scale(2), Wait(0.001))))
    assert plan.with_waits_up_to(2.0).steps == (Wait(2.0), Repeat(2, (Wait(1.0),)), Loop((Scale(2), Wait(0.001))))
    with pytest.raises(PlanError, match="given the factor 0"):
        plan.scaled(0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- scale: 0", ":1: scale: given 0, allowed a whole number from 1 to 1000"),
        ("- wait: 1s\n- scale: -2", ":2: scale: given -2, allowed a whole number"),
        ("- scale: true", ":1: scale: given True, allowed a whole number"),
        ("- scale: 2.5", ":1: scale: given 2.5, allowed a whole number"),
        ("- wait: 30", ":1: wait: given 30, a duration without unit, allowed a number with ms, s, m or h"),
        ("- wait: 0s", ":1: wait: given '0s', allowed a duration above zero"),
        ("- wait: 1:30", ":1: wait: given 90, a duration without unit"),
        (
            "- scael: 4",
            ":1: scael: unknown step, allowed scale, cors, rewrite, wait, repeat, loop; did you mean scale?",
        ),
        ("- 7: 4", ":1: 7: unknown step, allowed"),
        ("- cors: maybe", ":1: cors: given 'maybe', allowed on or off"),
        ("- rewrite: on", ":1: rewrite: given True, allowed {from: /api, to: /v2} or off"),
        ("- rewrite: {from: api, to: /v2}", ":1: rewrite: from: given 'api', allowed a path"),
        ("- rewrite: {from: /a, to: '/b; return 200'}", ":1: rewrite: to: given '/b; return 200', allowed a path"),
        ("- rewrite: {from: /a}", ":1: rewrite: given {'from': '/a'}, allowed {from: /path, to: /path}"),
        ("- loop: [{scale: 5}, {scale: 7}]", ":1: loop: given no wait in it, so it would never pause"),
        ("- loop: [{wait: 1s}]\n- scale: 4", ":1: loop: it never ends, so it must be the last step"),
        ("- repeat:\n    times: 2\n    steps:\n      - loop: [{wait: 1s}]", ":4: loop: it never ends"),
        ("- repeat:\n    times: 0\n    steps: [{scale: 2}]", ":2: repeat: times: given 0, allowed a whole number"),
        ("- repeat: {times: 10001, steps: [{scale: 2}]}", ":1: repeat: times: given 10001, allowed a whole number"),
        ("- repeat: {times: 2}", ":1: repeat: steps: missing, allowed {times: 3, steps: [...]}"),
        (
            "- repeat: {time: 2, steps: []}",
            ":1: repeat: time: unknown key, allowed times and steps; did you mean times?",
        ),
        ("- repeat: {times: 2, steps: []}", ":1: repeat: steps: given an empty list, allowed at least one step"),
        ("- repeat: 3", ":1: repeat: given 3, allowed {times: 3, steps: [...]}"),
        ("- scale: 5\n  wait: 3s", ":1: step: given a step with 2 keys, allowed one key"),
        ("- scale", ":1: step: given 'scale', allowed one key"),
        ("[]", ": churn: given an empty list, allowed at least one step; leave churn out to change nothing"),
        ("", ": churn: given nothing, allowed a list of steps"),
        ("churn: 5", ": churn: given 5, allowed a list of steps"),
        ("churn:\n- scale: 0", ":2: scale: given 0"),
        ("name: mine\nchurn: []", ":1: name: unknown key, allowed only churn: this is a scenario"),
        ("chrun: []", ":1: chrun: unknown key, allowed only churn; did you mean churn?"),
        ("- {scale: 1, scale: 2}", ":1: scale: given twice"),
        ("a: &x [1]\nchurn: *x", ":2: aliases (*name) are not read: write it out"),
        ("- [", ":1: expected the node content"),
        ("- !!python/object:os.system {}", ":1: could not determine a constructor"),
        ("\x00", ": not YAML: unacceptable character"),
    ],
)
def test_a_bad_plan_is_refused_with_file_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value).startswith(f"{path}{problem}")
    assert len(str(refused.value).splitlines()) == 1


def test_repeats_of_repeats_are_bounded_by_what_they_add_up_to() -> None:
    inner = {"repeat": {"times": 1000, "steps": [{"scale": 2}, {"wait": "1s"}]}}
    assert sum(1 for _ in parse_plan([{"repeat": {"times": 50, "steps": [inner]}}], "x").walk()) == 100_000
    with pytest.raises(PlanError, match="x: churn: given 102000 steps when repeats are written out, allowed up"):
        parse_plan([{"repeat": {"times": 51, "steps": [inner]}}], "x")


def test_steps_within_steps_are_bounded() -> None:
    step: dict[str, object] = {"scale": 2}
    for _ in range(9):
        step = {"repeat": {"times": 1, "steps": [step]}}
    with pytest.raises(PlanError, match="given steps within steps 9 deep, allowed up to 8"):
        parse_plan([step], "x")


def test_a_plan_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"missing\.yaml: cannot be read: No such file or directory$"):
        load_plan(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match=r"binary\.yaml: is no UTF-8 text$"):
        load_plan(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_text("#" * 1_000_001)
    with pytest.raises(PlanError, match="larger than 1000 kB"):
        load_plan(tmp_path / "huge.yaml")


paths = st.sampled_from(["/api", "/v2", "/a/b", "/x.y_z~1"])
changes: st.SearchStrategy[Change] = st.one_of(
    st.integers(1, 1000).map(Scale),
    st.booleans().map(lambda on: Cors(on=on)),
    st.just(RewritePath(None)),
    st.tuples(paths, paths).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: RewritePath(Rewrite(*pair))),
)
waits = st.integers(1, 10**7).map(lambda milliseconds: Wait(milliseconds / 1000))
items: st.SearchStrategy[Item] = st.recursive(
    st.one_of(changes, waits),
    lambda inner: st.builds(Repeat, st.integers(1, 5), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


@given(st.lists(items, min_size=1, max_size=5), st.none() | waits)
def test_a_written_plan_reads_back_to_an_equal_plan(steps: list[Item], loop_wait: Wait | None) -> None:
    plan = Plan((*steps, *([Loop((Scale(2), loop_wait))] if loop_wait else [])))
    assert parse_plan(plan.to_data(), "x") == plan


@given(changes)
def test_a_change_reads_back_from_its_event(change: Change) -> None:
    assert from_params(change.kind, change.params()) == change


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("scale", {"replicas": 0}),
        ("scale", {}),
        ("cors", {"on": "maybe"}),
        ("reboot", {}),
        ("rewrite", {"rewrite": "off"}),
    ],
)
def test_params_that_are_no_change_are_refused(kind: str, params: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"^(scale|cors|rewrite|change): "):
        from_params(kind, params)
