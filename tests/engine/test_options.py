"""Options: what is understood, and one clear line for each that is not."""

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from engine_certificate import certificate
from locust.argument_parser import get_empty_argument_parser

from locustfiles.engine._address import Host, Resolve
from locustfiles.engine._options import AbortRule, Settings, add_options, parse_cpus

HOST = "https://shop.test"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No options from the caller's environment."""
    for name in [name for name in os.environ if name.startswith("INGRESS_SWARM_")]:
        monkeypatch.delenv(name)


def options(*arguments: str, **replaced: Any) -> Namespace:
    """What Locust's parser makes of arguments; `replaced`: what a web form may pass instead."""
    parser = get_empty_argument_parser(add_help=False)
    add_options(parser)
    parsed: Namespace = parser.parse_args(list(arguments))
    for name, value in replaced.items():
        assert hasattr(parsed, name)
        setattr(parsed, name, value)
    return parsed


def read(*arguments: str, host: str | None = HOST, **replaced: Any) -> Settings:
    return Settings.read(options(*arguments, **replaced), host)


def test_defaults() -> None:
    settings = read()
    assert settings == Settings(
        host=Host(True, "shop.test", 443, "shop.test"),
        rate_per_s=100.0,
        path="/",
        method="GET",
        headers=(),
        timeout_s=60.0,
        insecure=False,
        ca_pem=None,
        resolves=(),
        churn=None,
        target=None,
        warmup_s=5,
        duration_s=None,
        drain_s=10.0,
        run_dir=None,
        no_run_dir=False,
        meta={},
        wrk2=False,
        expect_bytes=None,
        spins=False,
        may_load=(),
        max_rate_per_s=None,
        abort_on=None,
    )
    assert settings.name == "GET /"


def test_everything_given(tmp_path: Path) -> None:
    meta = tmp_path / "meta.json"
    meta.write_text('{"name": "x"}')
    settings = read(
        *("--rate", "3000/s", "--path", "/api?q=1", "--method", "head", "--header", "X-A: b", "--header", "Cookie: c"),
        *("--timeout", "none", "--insecure", "--ca", str(certificate().path), "--warmup", "2s", "--duration", "1m30s"),
        *("--resolve", "shop.test:443:127.0.0.1", "--churn", "plan.yaml", "--target", "lab.yaml", "--drain", "500ms"),
        *("--run-dir", "runs/a", "--no-run-dir", "--run-meta", str(meta), "--expect-bytes", "0", "--max-rate", "3000"),
        *("--i-may-load", "shop.test", "--abort-on", "errors > 2.5% for 10s"),
    )
    assert settings.rate_per_s == 3000.0
    assert (settings.method, settings.path, settings.name) == ("HEAD", "/api?q=1", "HEAD /api")
    assert settings.headers == (("X-A", "b"), ("Cookie", "c"))
    assert settings.timeout_s is None
    assert settings.ca_pem == certificate().path.read_text()
    assert settings.resolves == (Resolve("shop.test", 443, "127.0.0.1"),)
    assert (settings.churn, settings.target, settings.run_dir) == (Path("plan.yaml"), Path("lab.yaml"), Path("runs/a"))
    assert (settings.warmup_s, settings.duration_s, settings.drain_s) == (2, 90.0, 0.5)
    assert settings.meta == {"name": "x"}
    assert (settings.expect_bytes, settings.max_rate_per_s) == (0, 3000.0)
    assert settings.abort_on == AbortRule(0.025, 10)
    assert (settings.insecure, settings.no_run_dir) == (True, True)
    assert settings.may_load == ("shop.test",)
    assert settings.request().startswith(b"HEAD /api?q=1 HTTP/1.1\r\nHost: shop.test\r\n")


def test_wrk2_has_no_timeout() -> None:
    assert read("--wrk2", "--timeout", "5s").timeout_s is None


def test_a_rule_for_less_than_a_second_is_one_for_a_second() -> None:
    assert read("--abort-on", "errors>0%  for 200ms").abort_on == AbortRule(0.0, 1)


def test_the_environment_gives_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGRESS_SWARM_RATE", "250/s")
    monkeypatch.setenv("INGRESS_SWARM_EXPECT_BYTES", "77")
    assert (read().rate_per_s, read().expect_bytes) == (250.0, 77)
    assert read("--rate", "9/s").rate_per_s == 9.0


def test_what_a_web_form_passes_is_understood() -> None:
    """Text with blanks, lines instead of lists, numbers, None."""
    settings = read(
        rate=" 2000 ",
        header="X-A: b\nX-C: d\n",
        resolve="",
        timeout=" none ",
        duration=None,
        warmup="0s",
        expect_bytes=12,
        max_rate=None,
        abort_on="",
        i_may_load=None,
    )
    assert settings.rate_per_s == 2000.0
    assert settings.headers == (("X-A", "b"), ("X-C", "d"))
    assert (settings.resolves, settings.may_load, settings.abort_on) == ((), (), None)
    assert (settings.warmup_s, settings.duration_s, settings.expect_bytes) == (0, None, 12)


@pytest.mark.parametrize(
    ("flag", "given", "says"),
    [
        *(
            ("--rate", given, "allowed requests per second above 0")
            for given in ("0", "0/s", "-5", "x", "", "1e3", "nan")
        ),
        ("--rate", "99999999/s", "up to 10000000"),
        ("--rate", "5/m", "allowed requests per second"),
        ("--path", "api", "allowed a path from / on"),
        ("--path", "/a b", "allowed a path from / on"),
        ("--method", "FETCH", "allowed GET, HEAD"),
        ("--header", "no colon", "allowed 'Name: value'"),
        ("--header", "Connection: close", "set by the profile itself"),
        ("--header", "X: a\0b", "no header may have"),
        ("--timeout", "60", "a duration without unit"),
        ("--timeout", "0s", "allowed a duration above zero"),
        ("--timeout", "-5s", "allowed a duration"),
        ("--timeout", "", "allowed a duration"),
        ("--timeout", "never", "allowed a duration"),
        ("--warmup", "1500ms", "allowed whole seconds"),
        ("--warmup", "5", "a duration without unit"),
        ("--duration", "30", "a duration without unit"),
        ("--duration", "0s", "allowed a duration above zero"),
        ("--duration", "9999h", "allowed at most"),
        ("--drain", "soon", "allowed a duration"),
        ("--resolve", "shop.test:443", "allowed HOST:PORT:ADDRESS"),
        ("--resolve", "shop.test:443:1.2.3.999", "is no IP address"),
        ("--ca", "/nowhere/ca.pem", "cannot read /nowhere/ca.pem: No such file"),
        ("--run-meta", "/nowhere/meta.json", "cannot read /nowhere/meta.json"),
        ("--expect-bytes", "-1", "allowed a whole number from 0"),
        ("--expect-bytes", "1k", "allowed a whole number"),
        ("--idle", "spinning", "allowed sleep or spin"),
        ("--expect-bytes", "1073741825", "to 1073741824"),
        ("--max-rate", "0", "allowed requests per second above 0"),
        ("--max-rate", "99", "--rate: given 100/s, allowed up to --max-rate 99/s"),
        ("--churn", "plan.yaml", "give --target FILE too"),
        ("--abort-on", "errors > 50%", "like 'errors > 50% for 10s'"),
        ("--abort-on", "p99 > 5% for 10s", "allowed 'errors > PERCENT% for DURATION'"),
        ("--abort-on", "errors > 50% for 10", "a duration without unit"),
        ("--abort-on", "errors > 150% for 10s", "allowed"),
    ],
)
def test_bad_input_is_one_line_with_flag_given_and_allowed(flag: str, given: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^--") as caught:
        read(f"{flag}={given}")
    assert type(caught.value) is ValueError
    message = str(caught.value)
    assert says in message
    assert flag in message
    assert "\n" not in message
    assert "\0" not in message


@pytest.mark.parametrize(
    ("host", "says"), [(None, "none given"), ("shop.test", "with its scheme"), ("https://b\xfc", "xn--")]
)
def test_a_bad_host_is_one_line(host: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=f"^--host: .*{says}"):
        read(host=host)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("--ca", b"\xff\xfe\x00binary", "it is no PEM file"),
        ("--run-meta", b"not json", "cannot read"),
        ("--run-meta", b"[1, 2]", "holds no JSON object"),
        ("--run-meta", b"\xff\xfe", "cannot read"),
    ],
)
def test_a_file_that_is_something_else_is_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{name}: .*{says}") as caught:
        read(name, str(file))
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for flag in ("--ca", "--run-meta"):
        with pytest.raises(ValueError, match=f"^{flag}: cannot read .*[Dd]irectory"):
            read(flag, str(tmp_path))


SECRET = "s3cret"


def test_secrets_are_not_shown() -> None:
    headers = ["Authorization: Bearer s3cret", "cookie: a=s3cret", "Proxy-Authorization: s3cret", "X-API-Key: s3cret"]
    settings = read(
        *(argument for header in [*headers, "X-Plain: seen"] for argument in ("--header", header)),
        host=f"https://user:{SECRET}@shop.test:8443",
    )
    shown = settings.shown()
    assert SECRET not in json.dumps(shown)
    assert shown["headers"] == {
        "Authorization": "(redacted)",
        "cookie": "(redacted)",
        "Proxy-Authorization": "(redacted)",
        "X-API-Key": "(redacted)",
        "X-Plain": "seen",
    }
    assert shown["host"] == "https://shop.test:8443"
    assert settings.request().count(SECRET.encode()) == 4  # they are sent all the same


def test_what_is_shown_is_plain_json() -> None:
    shown = read("--duration", "30s", "--resolve", "a.test:1:::1", "--ca", str(certificate().path)).shown()
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["duration_s"], shown["resolve"], shown["own_ca"]) == (30.0, ["a.test:1:::1"], True)
    assert "PRIVATE" not in json.dumps(shown)


def test_locust_listens_on_loopback_unless_told_otherwise() -> None:
    parsed = options()
    assert (parsed.web_host, parsed.master_bind_host) == ("127.0.0.1", "127.0.0.1")


def test_files_and_permissions_stay_off_the_web_form() -> None:
    parser = get_empty_argument_parser(add_help=False)
    own = len(parser._actions)
    add_options(parser)
    form = {action.dest: action.include_in_web_ui for action in parser._actions[own:]}
    assert {name for name, on_form in form.items() if not on_form} == {
        *("ca", "churn", "target", "run_dir", "no_run_dir", "run_meta", "i_may_load", "max_rate", "abort_on"),
        "worker_cpus",
    }
    assert {name for name, on_form in form.items() if on_form} == {
        *("rate", "path", "method", "header", "timeout", "insecure", "resolve", "warmup", "duration", "drain", "wrk2"),
        *("expect_bytes", "idle"),
    }


@pytest.mark.parametrize(("text", "cpus"), [("0", {0}), ("0,2", {0, 2}), ("2,2", {2})])
def test_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text, frozenset({0, 1, 2})) == cpus


@pytest.mark.parametrize("text", ["", "x", "0-2", "0, 2", "-1", "3", "0,7", "99999"])
def test_other_cpus_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--worker-cpus: given .*, allowed") as caught:
        parse_cpus(text, frozenset({0, 1, 2}))
    assert "\n" not in str(caught.value)
