"""Bad input: exit code 2, one line that says what was given, what is allowed, what to do; nothing begun or kept."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest
from locust_runs import PROFILE, Swarm, free_port, in_processes
from locust_runs import swarm_fixture as swarm_fixture

from infra.lab import Lab, LabSpec

pytestmark = pytest.mark.integration

# Words of the command line -> what the line says. {…} are filled in by the fixture below. Later words win over earlier
# ones, so each case changes one thing about a load that would run.
REFUSED = {
    "--rate 0": "--rate: given '0', allowed requests per second above 0, up to 10000000: 3000/s",
    "--rate -1": "--rate: given '-1', allowed requests per second above 0",
    "--rate abc": "--rate: given 'abc', allowed requests per second above 0",
    "--rate 500 --max-rate 400": "--rate: given 500/s, allowed up to --max-rate 400/s",
    "--rate 0 --processes 2": "--rate: given '0', allowed",
    "-u 0": "-u: given 0, allowed at least 1 connection",
    "--duration 10": "--duration: given '10', a duration without unit, allowed a number with ms, s, m or h",
    "--worker-cpus 999": "--worker-cpus: given 999, allowed here 0",
    "--host 127.0.0.1:8080": "--host: given '127.0.0.1:8080', allowed a URL with its scheme, like https://127.0.0.1:8080",
    "--host http://no-such-host.invalid": "--host: cannot resolve 'no-such-host.invalid': .*: check the name",
    "--warmup 1500ms": "--warmup: given 1500ms, allowed whole seconds",
    "--timeout never": "--timeout: given 'never', allowed a duration such as 500ms",
    "--abort-on sometimes": "--abort-on: given 'sometimes', allowed 'errors > PERCENT% for DURATION'",
    "--host {closed}": "--host: cannot connect to {closed_at}.*: Connection refused: is it running there?",
    "--host https://{http_at}": "--host: {http_at} at {http_at} (does not speak|broke the) TLS.*is it an http:// port?",
    "--ca {wrong_ca}": "--host: the certificate of {https_at} at {https_at} is not trusted: .*: give --ca FILE",
    "--ca {nowhere}": "--ca: cannot read {nowhere}: No such file or directory",
    # A multicast address is nobody's own, and no TCP connection to one ever leaves this machine.
    "--host http://224.0.0.1": "--host: 224.0.0.1 is outside loopback and private .*: .* say --i-may-load 224.0.0.1",
    "--host http://224.0.0.1 --i-may-load 224.0.0.1": "--host: cannot connect to 224.0.0.1 at 224.0.0.1:80",
    "--host http://shop.local --resolve shop.local:80:224.0.0.1": "--host: shop.local is outside loopback and private",
    "--churn {plan}": "--churn: a plan needs something to change: give --target FILE too",
    "--churn {nowhere} --target {target}": "{nowhere}: cannot be read: No such file or directory",
    "--churn {plan} --target {nowhere}": "target {nowhere}: cannot read it: No such file or directory",
    "--churn {typo} --target {target}": "{typo}:3: scail: unknown step, allowed .*did you mean scale",
    "--churn {zero} --target {target}": "{zero}:2: scale: given 0, allowed a whole number from 1",
    "--churn {busy} --target {target}": "{busy}:2: loop: .* wait",
    "--run-dir {full}": "--run-dir: {full} exists and is not empty: give another one",
    "--run-dir {below_a_file}": "--run-dir: {below_a_file} cannot be made, because {plan} is no folder: give",
}
REFUSED_BY_THE_WEB_UI = {
    "--web-host 0.0.0.0": "--web-host: given '0.0.0.0': anybody who reaches the web UI can aim this load",
    "--web-host *": "--web-host: given '\\*': anybody",
}
FILES = {
    "plan.yaml": "- cors: on\n- wait: 1s\n",
    "typo.yaml": "- cors: on\n- wait: 1s\n- scail: 3\n",
    "zero.yaml": "- wait: 1s\n- scale: 0\n",
    "busy.yaml": "- wait: 1s\n- loop: [{scale: 3}, {cors: on}]\n",
}


@dataclass(frozen=True)
class Refusal:
    code: int
    said: str
    expected: str
    left: list[str]


@pytest.fixture(scope="module", name="lab")
def lab_fixture() -> Iterator[Lab]:
    with Lab.start(LabSpec("direct")) as lab:
        yield lab


@pytest.fixture(scope="module", name="refusals")
def refusals_fixture(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Refusal]:
    files = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (files / name).write_text(text)
    (files / "full").mkdir()
    (files / "full" / "slots.csv").touch()
    with Lab.start(LabSpec("direct")) as other:
        (files / "wrong.pem").write_bytes(other.ca_path.read_bytes())
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken and not listened on: it refuses, and nobody else can get it
        closed_at = f"127.0.0.1:{bound.getsockname()[1]}"
        places: dict[str, object] = {
            **{name.partition(".")[0]: files / name for name in FILES},
            "closed": f"https://{closed_at}",
            "closed_at": closed_at,
            "https_at": lab.url.removeprefix("https://"),
            "http_at": lab.http_url.removeprefix("http://"),
            "target": lab.target_path,
            "nowhere": files / "nowhere",
            "wrong_ca": files / "wrong.pem",
            "full": files / "full",
            "below_a_file": files / "plan.yaml" / "run",
        }

        with Swarm(tmp_path_factory.mktemp("refused")) as swarm, Forks(swarm) as forks:
            return {
                case: forks.refusal(case, expected, ["--host", lab.url, "--ca", str(lab.ca_path)], places)
                for case, expected in {**REFUSED, **REFUSED_BY_THE_WEB_UI}.items()
            }


class Forks:
    """One process that becomes `locust` many times (see locust_forks.py): there are many ways to be refused."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("locust_forks.py")],
            env=swarm.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def refusal(self, case: str, expected: str, words: list[str], places: Mapping[str, object]) -> Refusal:
        words = ["-f", str(PROFILE), *words]
        if case in REFUSED:
            words += ["--headless", "-u", "2", "--rate", "10", "--duration", "100ms", "--warmup", "0s"]
        else:
            words += ["--web-port", str(free_port())]
        words += [word.format(**places) for word in case.split()]
        number = len(list(self._swarm.folder.iterdir()))
        folder, out = self._swarm.folder / f"{number}", self._swarm.folder / f"{number}.out"
        folder.mkdir()
        code = int(self._ask({"words": words, "folder": str(folder), "out": str(out)}))
        left = [*self._left_behind(), *(path.name for path in folder.iterdir())]
        return Refusal(code, out.read_text(), expected.format(**places), left)

    def _left_behind(self) -> list[str]:
        """What lives on: Locust forks workers before anything can be refused, and they may take a moment to notice."""
        until_s = time.monotonic() + 4
        while (others := [process for process in self._swarm.processes() if process.pid != self._process.pid]) and (
            time.monotonic() < until_s
        ):
            time.sleep(0.05)
        for process in others:
            process.kill()  # or the next case would find it
        return [str(process) for process in others]

    def _ask(self, order: dict[str, object]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_BY_THE_WEB_UI])
def test_it_is_refused_in_one_line(case: str, refusals: dict[str, Refusal]) -> None:
    refusal = refusals[case]
    assert refusal.code == 2, refusal.said
    lines = refusal.said.splitlines()
    (line,) = (line for line in lines if line.startswith("ingress-swarm: error: "))
    assert re.search(f"^ingress-swarm: error: .*{refusal.expected}", line), line
    # What else is said is Locust's own, before and after.
    others = r"locust\.(main|runners): (Starting (Locust|web interface)|vm_\w+ \(index \d\) reported as ready)"
    assert [text for text in lines if text != line and not re.search(others, text)] == []
    assert refusal.left == []


def test_too_few_open_files_are_told_with_the_number_that_is_needed(lab: Lab, swarm: Swarm, tmp_path: Path) -> None:
    words = ("--headless", "-u", 500, "--host", lab.http_url, "--duration", "1s", "--only-summary")
    alone = swarm.start(*words, open_files="-n 200")
    pair = swarm.start(*words, *in_processes(2), open_files="-n 200")
    assert alone.wait() == 2
    (line,) = alone.errors
    assert "-u: 500 connections need 564 open files, the limit here is 200 and 200 at most" in line
    assert "raise it with 'ulimit -n 564'" in line
    assert pair.wait(20) == 2, pair.said
    (line,) = pair.errors
    assert "connections need 314 open files" in line
    assert list(tmp_path.iterdir()) == []
    assert swarm.nothing_left()


def test_a_low_soft_limit_of_open_files_is_raised_as_far_as_it_may_be(lab: Lab, swarm: Swarm, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ("--headless", "-u", 300, "--host", lab.http_url, "--rate", "300", "--warmup", "0s", "--duration", "1s")
    locust = swarm.start(*words, "--run-dir", run_dir, open_files="-S -n 200")
    assert locust.wait() in (0, 4), locust.said
    assert "300     0(0.00%)" in locust.said
