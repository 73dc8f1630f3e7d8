"""The command line.

| commands | what they are for |
|---|---|
| `dojo judge`, `evaluate`, `optimize` | one verdict; many; one faster kernel for one module |
| `dojo serve`, `store` | the judge as a service, with a dashboard; what it has kept |
| `dojo bench`, `compare`, `report` | what a policy is worth |
| `dojo collect`, `train` | trajectories, then SFT and RL |
| `dojo problems`, `doctor`, `demo` | what there is to judge, what this machine can do, all of it in a few minutes |

Nothing here judges. A command reads its arguments, calls one function of the room that does the work (imported inside
the command, so that `dojo --help` needs neither torch nor patience) and shows what came back: as one JSON object for
programs, or drawn for people. Exit codes are few and mean one thing each:

* 0: done; for a candidate that means that a verdict was reached, whatever it is.
* 1: the answer is no: `problems audit` does not admit a problem, on a machine that `doctor` looked at nothing can be
  judged, `optimize` found nothing faster.
* 2: bad usage, or a problem that cannot be judged.
* 3: our own fault, or the machine's: a disk that is full.
"""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperOption

from kerneldojo.cli import (
    bench,
    collect,
    compare,
    demo,
    doctor,
    evaluate,
    judge,
    learn,
    optimize,
    problems,
    report,
    serve,
    store,
    train,
)
from kerneldojo.cli.arguments import BadUsage, Failed, is_the_disks
from kerneldojo.cli.streams import say
from kerneldojo.cli.text import one_line, unwrapped

__all__ = ["app", "commands"]

UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""Base of what the parser raises for a bad command line; typer does not export it by name."""

commands = typer.Typer(
    name="dojo",
    help="Judge generated GPU kernels, and trust the verdict.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
commands.command("judge")(judge.judge_command)
commands.add_typer(problems.commands, name="problems")
commands.command("doctor")(doctor.doctor_command)
commands.command("demo")(demo.demo_command)
commands.command("serve")(serve.serve_command)
commands.add_typer(store.commands, name="store")
commands.command("evaluate")(evaluate.evaluate_command)
commands.command("learn")(learn.learn_command)
commands.command("collect")(collect.collect_command)
commands.command("bench")(bench.bench_command)
commands.command("optimize")(optimize.optimize_command)
commands.command("compare")(compare.compare_command)
commands.command("report")(report.report_command)
commands.add_typer(train.commands, name="train")


class _Command(TyperCommand):
    """A command whose help is plain words, in which `katas[:LEVEL[/NAME]]` is no markup."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.help = escape(unwrapped(self.help or ""))
        for parameter in self.params:
            if isinstance(parameter, (TyperArgument, TyperOption)):
                parameter.help = escape(parameter.help or "")

    def invoke(self, ctx: Any) -> Any:
        """Run it; Ctrl-C, of which the parser would say nothing, is told."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


for _group in (commands, problems.commands, store.commands, train.commands):
    for _information in _group.registered_commands:
        _information.cls = _Command


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dojo {version('kerneldojo')}")
        raise typer.Exit


@commands.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Judge generated GPU kernels, and trust the verdict."""
    if context.invoked_subcommand is None:
        print(context.get_help())


NUM_YOUNG = 50_000
"""New objects after which Python looks for garbage; its own 700 make that a fifth of the time that imports take."""


def app() -> None:
    """Run the command line of this process and exit with its code."""
    gc.set_threshold(NUM_YOUNG, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # Else the process would search torch for garbage, a third of a second, and then end.
    if sys.stdout is None:
        say("standard output is closed: there is nowhere to say what was found")
        sys.exit(2)
    try:
        code: object = commands(prog_name="dojo", standalone_mode=False)
    except BadUsage as error:
        say(one_line(str(error)))
        sys.exit(2)
    except Failed as error:
        say(one_line(str(error)))
        sys.exit(3)
    except typer.Abort:
        say("interrupted")
        sys.exit(130)
    except UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "dojo"
        say(f"{one_line(error.format_message())} (see `{command} --help`)")
        sys.exit(2)
    except Exception as error:
        if isinstance(error, OSError) and is_the_disks(error):
            say(f"cannot write: {one_line(str(error))}")
        else:
            traceback.print_exc(file=sys.stderr)
            say(f"a fault of ours: {one_line(f'{type(error).__name__}: {error}')}")
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)
