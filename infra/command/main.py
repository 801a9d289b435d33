"""The command `ingress-swarm`: finds the subcommand, and turns every ending into an exit code and at most one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from infra.command.errors import FAILED, FINE, INTERRUPTED, USAGE, CommandError

__all__ = ["cli", "main", "run"]

# Name, module and help of each subcommand. The modules are imported when they are asked for: `--help` and a mistyped
# name answer at once, and do not load a gateway's or a report's libraries first.
SUBCOMMANDS = {
    "demo": (
        "infra.command.demo",
        "Load four gateways and a baseline in the lab; about two minutes, ends with a report.",
    ),
    "run": ("infra.command.run", "Run a scenario against the lab, a target or a host of yours."),
    "scenarios": ("infra.command.scenarios", "List the built-in scenarios, or print one."),
    "lab": ("infra.command.lab", "Start a gateway and its backends on this machine."),
    "report": ("infra.command.report", "Make the report of one or many finished runs."),
    "restore": ("infra.command.restore", "Put a target back as it was before a run that crashed."),
    "doctor": ("infra.command.doctor", "Check whether this machine can load, and say what to do where it cannot."),
}


class _Subcommands(click.Group):
    """A group that imports a subcommand when it is asked for. (click passes a context that is of no use here.)"""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUBCOMMANDS:
            return None
        module = importlib.import_module(SUBCOMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            from infra.targets.located import nearest

            known = ", ".join(SUBCOMMANDS)
            ctx.fail(f"given {args[0]!r}, allowed {known}{nearest(args[0], SUBCOMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in SUBCOMMANDS.items()])


@click.group(
    cls=_Subcommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 fine, 1 failed, 2 usage, 3 a gate failed, 4 the run is invalid. "
    "Each command explains itself: ingress-swarm run --help",
)
@click.version_option(package_name="ingress-swarm", prog_name="ingress-swarm")
def cli() -> None:
    """Load Kubernetes gateways at a constant rate, change them meanwhile, and see which change cost which requests.

    \b
    A first look, here, with nothing else installed:
      ingress-swarm demo
    One scenario against one gateway in the lab:
      ingress-swarm run nginx-2020-dynamic --gateway envoy
    Your own gateway, which nothing is changed about:
      ingress-swarm run nginx-2020-static --host https://shop.example.test --rate 200 --connections 20
    """


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Writes at most one line to stderr."""
    try:
        code = cli.main(args=list(arguments), prog_name="ingress-swarm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.ctx.get_help() if shown.ctx else shown.format_message())
        return FINE
    except click.ClickException as error:
        return _fail(USAGE, _usage(error))
    except CommandError as error:
        return _fail(error.code, str(error))
    except (KeyboardInterrupt, click.Abort):
        return _fail(INTERRUPTED, "stopped")
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no error, and nobody is left to read one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        if os.environ.get("INGRESS_SWARM_TRACEBACK") == "1":
            raise
        hint = "this is a bug in ingress-swarm: set INGRESS_SWARM_TRACEBACK=1 to see where, and report it"
        return _fail(FAILED, f"{type(error).__name__}: {error}; {hint}")
    return code if isinstance(code, int) else FINE


def _usage(error: click.ClickException) -> str:
    """Return what is wrong with a command line. Our own kinds of value say it all; the rest points to the help."""
    if type(error) is click.BadParameter and error.param is not None:
        return f"{max(error.param.opts, key=len)}: {error.message}"
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{error.format_message()} (see {context.command_path if context else 'ingress-swarm'} --help)"


def _fail(code: int, message: str) -> int:
    click.echo(f"ingress-swarm: {' '.join(message.split())}", err=True)
    return code
