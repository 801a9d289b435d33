"""Bad input is one clear line, exit code 2, and nothing started: no lab, no folder."""

from pathlib import Path

import pytest

from infra.command.main import run
from infra.lab import Lab

DYNAMIC, STATIC = "nginx-2020-dynamic", "nginx-2020-static"

SCENARIO = "name: mine\nprofile: constant_rate\nrate: 10/s\nconnections: 1\nduration: 5s\n"
FILES = {
    "plan-to-zero.yaml": SCENARIO + "churn:\n  - scale: 0\n",
    "loop-without-wait.yaml": SCENARIO + "churn:\n  - loop: [{scale: 2}, {scale: 3}]\n",
    "typing-error.yaml": SCENARIO.replace("connections", "conections"),
    "no-scenario.yaml": "- 1\n- 2\n",
    "other-profile.yaml": SCENARIO.replace("constant_rate", "constant-rate"),
    "no-url.yaml": "kind: lab\ncontrol: /nowhere/control.sock\n",
    "cluster.yaml": "kind: kubernetes\n",
    "newer/manifest.json": '{"schema": 2}',
    "targetless/manifest.json": '{"schema": 1, "target": null}',
    "broken/manifest.json": '{"schema": 1, "targ',
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own with these files, without options from the caller, and without a lab."""
    monkeypatch.chdir(tmp_path)
    for name in ("RATE", "CONNECTIONS", "DURATION", "WARMUP", "PATH", "TRACEBACK"):
        monkeypatch.delenv(f"INGRESS_SWARM_{name}", raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def started(*_: object, **__: object) -> Lab:
        raise AssertionError("a lab was started")

    monkeypatch.setattr(Lab, "start", started)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("dmeo", "given 'dmeo', allowed demo, run, scenarios, lab, report, restore, doctor; did you mean demo?"),
        ("run", "Missing argument 'SCENARIO'"),
        ("run nginx-2020-dynamik", "scenario: given 'nginx-2020-dynamik', allowed"),
        ("run nginx-2020-dynamik", "did you mean nginx-2020-dynamic?"),
        ("scenarios nginx-2020-dynamik", "did you mean nginx-2020-dynamic?"),
        ("run missing.yaml", "missing.yaml: cannot be read: No such file or directory"),
        ("run typing-error.yaml", "typing-error.yaml:4: conections: unknown key"),
        ("run no-scenario.yaml", "no-scenario.yaml: given no mapping"),
        (
            "run other-profile.yaml",
            "other-profile.yaml:2: profile: given 'constant-rate', allowed constant_rate; did you mean",
        ),
        ("run plan-to-zero.yaml", "plan-to-zero.yaml:7: scale: given 0, allowed a whole number from 1"),
        ("run loop-without-wait.yaml", "loop-without-wait.yaml:7: loop: given no wait in it"),
        (f"run {DYNAMIC} --gateway ngnix", "--gateway: given 'ngnix', allowed nginx, haproxy, envoy, traefik, direct"),
        (f"run {DYNAMIC} --gateway ngnix", "did you mean nginx?"),
        (f"run {DYNAMIC} --gateway nginx,nginx", "allowed each gateway once"),
        (f"run {DYNAMIC} --rate 0", "--rate: given '0', allowed requests per second above 0"),
        (f"run {DYNAMIC} --rate -5", "--rate: given '-5', allowed requests per second above 0"),
        (f"run {DYNAMIC} --rate fast", "--rate: given 'fast', allowed requests per second above 0"),
        (f"run {DYNAMIC} --rate nan", "--rate: given 'nan', allowed requests per second above 0"),
        (f"run {DYNAMIC} --connections 0", "--connections: given '0', allowed a whole number from 1"),
        (f"run {DYNAMIC} --connections -1", "--connections: given '-1', allowed a whole number from 1"),
        (f"run {DYNAMIC} --connections many", "--connections: given 'many', allowed a whole number from 1"),
        (f"run {DYNAMIC} --duration 30", "--duration: given '30', a duration without unit"),
        (f"run {DYNAMIC} --duration 0s", "--duration: given '0s', allowed a duration above zero"),
        (f"run {DYNAMIC} --warmup 5", "--warmup: given '5', a duration without unit"),
        (f"run {DYNAMIC} --warmup 500ms", "--warmup: given '500ms', allowed whole seconds"),
        (f"run {DYNAMIC} --timeout 5", "--timeout: given '5', a duration without unit"),
        (f"run {DYNAMIC} --drain soon", "--drain: given 'soon', allowed a duration"),
        (f"run {DYNAMIC} --wait-scale 0", "--wait-scale: given '0', allowed a factor above 0"),
        (f"run {DYNAMIC} --max-rate 0", "--max-rate: given '0', allowed requests per second above 0"),
        (f"run {DYNAMIC} --repeat 0", "--repeat: given '0', allowed a whole number from 1"),
        (f"run {DYNAMIC} --processes 0", "--processes: given '0', allowed a whole number from 1"),
        (f"run {DYNAMIC} --path api", "path: given 'api', allowed a path from / on"),
        (f"run {DYNAMIC} --method FETCH", "method: given 'FETCH', allowed GET, HEAD"),
        (f"run {DYNAMIC} --header nonsense", "header: given 'nonsense', allowed 'Name: value'"),
        (f"run {DYNAMIC} --ratee 5", "No such option '--ratee'"),
        (
            f"run {STATIC} --host 10.0.0.1",
            "--host: given '10.0.0.1', allowed a URL with its scheme, such as https://10.0.0.1",
        ),
        (
            f"run {STATIC} --host https://10.0.0.1",
            "loads 30,000/s over 1,000 connections for 180s: give --rate and --connections",
        ),
        (f"run {DYNAMIC} --host https://10.0.0.1", "changes what it loads, and a bare host cannot be changed"),
        (f"run {STATIC} --host https://10.0.0.1 --gateway nginx", "given --gateway and --host, allowed one of"),
        (f"run {STATIC} --target missing.yaml", "target missing.yaml: cannot read it"),
        (f"run {STATIC} --target no-url.yaml", "no-url.yaml: url: missing"),
        (f"run {STATIC} --target cluster.yaml", "kind: given 'kubernetes', allowed lab"),
        (f"run {STATIC} --out /proc/runs", "--out: given /proc/runs, which cannot be written to"),
        (f"run {STATIC} --out no-url.yaml", "--out: given no-url.yaml, which cannot be written to"),
        ("demo --rate 0", "--rate: given '0', allowed requests per second above 0"),
        ("demo --gateway direct,envoi", "--gateway: given 'envoi', allowed"),
        ("lab up ngnix", "gateway: given 'ngnix', allowed nginx, haproxy, envoy, traefik, direct; did you mean nginx?"),
        ("lab up nginx --replicas 0", "--replicas: given '0', allowed a whole number from 1 to 200"),
        ("lab up nginx --replicas 201", "--replicas: given '201', allowed a whole number from 1 to 200"),
        ("lab up nginx --workers 65", "workers: given 65, allowed"),
        ("report", "Missing argument 'RUN...'"),
        ("report missing", "missing: not a run directory"),
        ("report newer", "newer"),
        ("report broken", "broken"),
        ("restore targetless", "targetless: this run had no target"),
        ("restore broken", "broken/manifest.json: tells no target and its original state"),
        ("restore", "give a run directory, or --target FILE, and not both"),
        ("restore missing", "missing: no run directory"),
        ("restore --target missing.yaml", "target missing.yaml: cannot read it"),
        ("restore --target no-url.yaml", "--target: no run in runs had the target no-url.yaml"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    line: str, problem: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(own_folder.rglob("*"))
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("ingress-swarm: ")
    assert problem in said.err
    assert set(own_folder.rglob("*")) == before


def test_too_many_connections_for_the_file_limit_names_the_number_and_how_to_raise_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    assert run(["run", STATIC, "--gateway", "nginx", "--connections", "2000"]) == 2
    assert capsys.readouterr().err == (
        "ingress-swarm: --connections: given 2000, which needs 4512 open files, the limit here is 4096: "
        "raise it (as root: ulimit -n 4512; for a service: LimitNOFILE=4512) or give at most 1792\n"
    )


def test_a_missing_program_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGRESS_SWARM_ENVOY", "/nowhere/envoy")
    assert run(["run", DYNAMIC, "--gateway", "nginx,envoy"]) == 2
    assert (
        "INGRESS_SWARM_ENVOY: given '/nowhere/envoy', allowed the path of an executable envoy"
        in capsys.readouterr().err
    )


def test_options_from_the_environment_are_checked_like_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGRESS_SWARM_RATE", "0")
    assert run(["run", DYNAMIC]) == 2
    assert "--rate: given '0'" in capsys.readouterr().err


def test_a_bug_is_one_line_and_a_traceback_is_had_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> tuple[str, ...]:
        raise ZeroDivisionError("seven over\nnothing")

    monkeypatch.setattr("infra.command.scenarios.scenario_names", broken)
    assert run(["scenarios"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("ingress-swarm: ZeroDivisionError: seven over nothing; this is a bug")
    assert len(said.splitlines()) == 1
    monkeypatch.setenv("INGRESS_SWARM_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(["scenarios"])
