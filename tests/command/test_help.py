import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from infra.command.main import SUBCOMMANDS, run
from infra.scenarios import load_scenario, scenario_names


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = importlib.import_module(SUBCOMMANDS[name][0]).command
    assert isinstance(command, click.Command)
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else [])]
    for each in commands:
        assert each.help
        assert all(option.help for option in each.params if isinstance(option, click.Option))
    assert run([name, "--help"]) == 0
    assert f"Usage: ingress-swarm {name}" in capsys.readouterr().out


def test_without_a_word_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    said = capsys.readouterr()
    assert "ingress-swarm demo" in said.out
    assert said.err == ""


def test_help_loads_no_room_that_it_does_not_need() -> None:
    check = (
        "import sys; from infra.command.main import run; assert run(['--help']) == 0; "
        "sys.exit(','.join(m for m in ('rich', 'yaml', 'pandas', 'locust', 'gevent', 'infra.lab') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_scenarios_are_listed_with_their_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenarios"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in scenario_names())
    assert "30,000/s over 1,000 connections for 180s" in said


def test_a_printed_scenario_can_be_run_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["scenarios", "nginx-2020-dynamic"]) == 0
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out)
    assert load_scenario(str(tmp_path / "mine.yaml")).to_data() == load_scenario("nginx-2020-dynamic").to_data()
