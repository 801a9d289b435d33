"""States, changes between them, and what proves a change: arithmetic on values."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.targets import Evidence, Marker, Rewrite, State, TargetError, load_target, open_target
from infra.targets.changing import changes_between, evidence_for, in_words, state_after
from infra.targets.lines import LineError, decode_line, encode_line
from infra.targets.steps import Change, Cors, RewritePath, Scale

API = Rewrite("/api", "/v2")
SHOP = Rewrite("/shop", "/v3")
PLAIN = State(replicas=5, cors=False, rewrite=None)
RICH = State(replicas=7, cors=True, rewrite=API)


def backend(*values: str) -> Marker:
    return Marker("backend", values)


def path(*values: str) -> Marker:
    return Marker("path_prefix", values)


EVIDENCE = [
    # each row: the state before, the change, what is new, what is old
    (PLAIN, Scale(7), (backend("6"), backend("7")), None),
    (RICH, Scale(5), (), backend("6", "7")),
    (PLAIN, Cors(on=True), (Marker("cors", ("on",)),), Marker("cors", ("off",))),
    (RICH, Cors(on=False), (Marker("cors", ("off",)),), Marker("cors", ("on",))),
    (PLAIN, RewritePath(API), (path("/v2"),), path("/api")),
    (RICH, RewritePath(None), (path("/api"),), path("/v2")),
    # a load that goes to /shop shows the first old path, one that goes to /api the second
    (RICH, RewritePath(SHOP), (path("/v3"),), path("/v2", "/shop")),
    (RICH, RewritePath(Rewrite("/shop", "/v2")), (path("/v2"),), path("/shop")),
    # what changes nothing has nothing to show
    (PLAIN, Scale(5), (), None),
    (RICH, Cors(on=True), (), None),
    (RICH, RewritePath(API), (), None),
    (PLAIN, RewritePath(None), (), None),
]


@pytest.mark.parametrize(("before", "change", "new", "old"), EVIDENCE)
def test_evidence(before: State, change: Change, new: tuple[Marker, ...], old: Marker | None) -> None:
    evidence = evidence_for(before, change)
    assert evidence == Evidence(new=new, old=old)
    sent = json.loads(json.dumps(evidence.to_json()))
    assert [tuple(marker["values"]) for marker in sent["new"]] == [marker.values for marker in new]
    assert sent["old"] == (None if old is None else {"field": old.field, "values": list(old.values)})


@pytest.mark.parametrize(
    ("change", "after", "words"),
    [
        (Scale(2), State(2, cors=True, rewrite=API), "replicas: 7 to 2"),
        (Cors(on=False), State(7, cors=False, rewrite=API), "cors: on to off"),
        (RewritePath(None), State(7, cors=True, rewrite=None), "rewrite: /api -> /v2 to off"),
        (RewritePath(SHOP), State(7, cors=True, rewrite=SHOP), "rewrite: /api -> /v2 to /shop -> /v3"),
    ],
)
def test_a_change_and_its_words(change: Change, after: State, words: str) -> None:
    assert state_after(RICH, change) == after
    assert in_words(RICH, change) == words


states = st.builds(State, replicas=st.integers(0, 20), cors=st.booleans(), rewrite=st.sampled_from([None, API, SHOP]))


@given(present=states, wanted=states)
def test_the_changes_between_two_states_lead_from_one_to_the_other(present: State, wanted: State) -> None:
    changes = changes_between(present, wanted)
    for change in changes:
        after = state_after(present, change)
        assert after != present
        present = after
    assert present == wanted
    assert len(changes) <= 3
    assert State.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


BAD_REWRITES = [
    ("api", "/v2", "rewrite: from: given 'api', allowed a path of letters, digits and . _ ~ - / from /"),
    ("/api", "", "rewrite: to: given ''"),
    ("/api", "/v2;", "rewrite: to: given '/v2;'"),
    ("/api{", "/v2", "rewrite: from: given '/api{'"),
    ("/api", "/v2\n", "rewrite: to: given '/v2\\n'"),
    ("/a b", "/v2", "rewrite: from: given '/a b'"),
    ('/a"', "/v2", "rewrite: from: given '/a\"'"),
    ("/$uri", "/v2", "rewrite: from: given '/$uri'"),
    ("/a\\1", "/v2", "rewrite: from: given '/a\\\\1'"),
    ("/" + "a" * 201, "/v2", "rewrite: from: given '/aaa"),
    ("/api", "/", "rewrite: to: given '/', allowed a path below / that does not end with /"),
    ("/api/", "/v2", "rewrite: from: given '/api/'"),
    ("/api", "/api/v2", "rewrite: given /api to /api/v2, allowed two paths of which neither starts with the other"),
    ("/api", "/api", "rewrite: given /api to /api"),
]


@pytest.mark.parametrize(("from_path", "to_path", "told"), BAD_REWRITES)
def test_what_is_no_rewrite(from_path: str, to_path: str, told: str) -> None:
    with pytest.raises(TargetError) as raised:
        Rewrite(from_path, to_path)
    assert str(raised.value).startswith(told)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=12))
def test_no_text_with_configuration_syntax_is_a_path(text: str) -> None:
    try:
        Rewrite(f"/{text}", "/swarm-target")
    except TargetError:
        return
    assert not set(text) & set(" \t\r\n;{}\"'`$\\#%<>|()[]*+?^")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"replicas": -1, "cors": False, "rewrite": None}, "replicas: given -1"),
        ({"replicas": True, "cors": False, "rewrite": None}, "replicas: given True"),
        ({"replicas": 2, "cors": "on", "rewrite": None}, "cors: given 'on'"),
        ({"replicas": 2, "cors": False}, "state: given {"),
        ({"replicas": 2, "cors": False, "rewrite": {"from": "/a"}}, "rewrite: given {'from': '/a'}"),
        ({"replicas": 2, "cors": False, "rewrite": {"from": 1, "to": "/b"}}, "rewrite: from: given 1"),
        (None, "state: given None"),
    ],
)
def test_what_is_no_state(data: object, told: str) -> None:
    with pytest.raises(TargetError) as raised:
        State.from_json(data)
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot read it: No such file or directory"),
        ("kind: [", "not YAML: "),
        ("- a", "given list, allowed keys such as `kind: lab`"),
        ("control: /x", "kind: given None, allowed lab"),
        ("kind: kubernetes", "kind: given 'kubernetes', allowed lab"),
        ("{kind: lab, control: /x, socket: /y}", "socket: unknown key, allowed kind, control, url, ca, gateway"),
        ("{kind: lab, control: x}", "control: given 'x', allowed the absolute path of a lab's control socket"),
        ("{kind: lab}", "control: given None"),
    ],
)
def test_what_is_no_target_file(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "target.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TargetError) as raised:
        load_target(file)
    assert str(raised.value).startswith(f"target {file}: {told}")
    assert "\n" not in str(raised.value)


def test_a_lab_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"control.sock: No such file or directory: is the lab still up\?$"):
        open_target({"kind": "lab", "control": str(tmp_path / "control.sock")})


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"1", b'{"a": NaN', b"\xff{}", b"[" * 100_000])
def test_what_is_no_line(line: bytes) -> None:
    with pytest.raises(LineError, match="allowed one JSON object on a line"):
        decode_line(line)


def test_a_line_comes_back_as_it_was() -> None:
    message = {"op": "apply", "text": "two\nlines", "number": 1.5, "nothing": None}
    assert encode_line(message).count(b"\n") == 1
    assert decode_line(encode_line(message)) == message
