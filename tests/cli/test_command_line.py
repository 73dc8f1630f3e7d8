from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from dojo import EXAMPLES, dojo
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from kerneldojo.cli import commands

Dojo = Callable[..., subprocess.CompletedProcess[str]]
REFERENCE = EXAMPLES / "reference.py"
HONEST = EXAMPLES / "honest.py"
RECIPE = EXAMPLES.parent / "recipes" / "laptop-sft.toml"
RL_RECIPE = EXAMPLES.parent / "recipes" / "laptop-rl.toml"


def test_help_needs_neither_torch_nor_triton() -> None:
    program = (
        "import sys\n"
        "from kerneldojo.cli import commands\n"
        "commands(['--help'], standalone_mode=False)\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for command in ("judge", "problems", "doctor", "demo"):
        assert command in done.stdout


def test_a_training_that_is_refused_has_not_loaded_transformers() -> None:
    program = (
        "import sys\n"
        "from kerneldojo.cli import commands\n"
        "from kerneldojo.cli.arguments import BadUsage\n"
        "for arguments in (['device=cuda:99'], ['play.device=cuda:99'], ['judge.service=http://127.0.0.1:9']):\n"
        "    try:\n"
        f"        told = ['train', 'rl', {str(RL_RECIPE)!r}, '--set', 'model.path=some/model', '--set', *arguments]\n"
        "        commands(told, standalone_mode=False)\n"
        "    except BadUsage as refusal:\n"
        "        print(refusal)\n"
        "assert 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == 3 and all("cuda:99" in line or "CUDA device 99" in line for line in said[:2])
    assert said[2].startswith("judge.service: http://127.0.0.1:9: the service cannot be reached")


def callbacks(group: typer.Typer) -> Iterator[Callable[..., Any]]:
    yield from (command.callback for command in group.registered_commands if command.callback is not None)
    for one in group.registered_groups:
        assert one.typer_instance is not None
        yield from callbacks(one.typer_instance)


def test_options_have_names_of_their_own_where_something_else_stands_for_their_value() -> None:
    """Some versions of typer (0.27) otherwise call an option what its value is called: `--DEVICE`."""
    seen = 0
    for callback in callbacks(commands):
        for name, hint in get_type_hints(callback, include_extras=True).items():
            for told in getattr(hint, "__metadata__", ()):
                if type(told).__name__ == "OptionInfo" and told.metavar:
                    seen += 1
                    names = (told.default, *(told.param_decls or ()))  # Beside a type the first is not a default.
                    assert any(str(one).startswith("--") for one in names), f"{callback.__name__}: {name}"
    assert seen > 10


def test_the_help_of_every_command_says_all_that_its_options_say() -> None:
    command = get_command(commands)
    assert isinstance(command, TyperGroup)
    leaves = [(name,) for name, one in command.commands.items() if not isinstance(one, TyperGroup)]
    leaves += [(name, leaf) for name, group in command.commands.items() for leaf in getattr(group, "commands", ())]
    assert ("problems", "list") in leaves
    shown = {leaf: CliRunner().invoke(commands, [*leaf, "--help"], terminal_width=200) for leaf in leaves}
    assert all(one.exit_code == 0 for one in shown.values())
    text = {leaf: " ".join(one.output.replace("│", " ").split()) for leaf, one in shown.items()}
    assert "katas[:LEVEL[/NAME]]" in text["problems", "list"]
    assert "openai:MODEL[@URL], hf:PATH, vllm:URL[#MODEL]" in text[("bench",)]
    assert "suites, [play], [play.reward]" in text[("serve",)]
    assert not [leaf for leaf, shown in text.items() if any(ord(sign) > 0xFFFF for sign in shown)], "words, no emoji"


def test_a_source_in_place_of_many_is_told_in_one_line(dojo_here: Dojo, tmp_path: Path) -> None:
    done = dojo_here("evaluate", HONEST, "--out", tmp_path / "results")
    assert done.stderr.count("\n") == 1 and "dojo judge REFERENCE.py" in done.stderr


def test_files_that_are_no_problems_do_not_keep_the_others_from_being_audited(dojo_here: Dojo) -> None:
    done = dojo_here("problems", "audit", HONEST, REFERENCE, "--device", "model:h100")
    assert done.returncode == 1
    assert "2 problems: 1 admitted, 1 invalid" in done.stdout
    assert "defines no class Model (but ModelNew: are reference and" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("judge",),
        ("judge", REFERENCE),
        ("judge", REFERENCE, HONEST, "--device", "tpu"),
        ("judge", REFERENCE, HONEST, "--device", "cuda:99"),
        ("judge", REFERENCE, HONEST, "--device", "model:abacus"),
        ("judge", REFERENCE, HONEST, "--protocol", "sloppy"),
        ("judge", REFERENCE, HONEST, "--language", "fortran"),
        ("judge", REFERENCE, HONEST, "--timeout", "-1"),
        ("judge", REFERENCE, HONEST, "--timeout", "nan"),
        ("judge", REFERENCE, HONEST, "--timeout", "1e300"),
        ("judge", "no_such_file.py", HONEST, "--json"),
        ("judge", REFERENCE, "no_such_file.py", "--json"),
        ("judge", REFERENCE, EXAMPLES, "--json"),
        ("problems", "list", "--suite", "no_such_suite"),
        ("problems", "show", "no_such_problem"),
        ("problems", "show", "1/softmax"),
        ("problems", "audit", "no_such_file.py"),
        ("demo", "--samples", "no_such_folder"),
        ("optimize", REFERENCE, "--out", "no_such_folder/kernel.py"),
        ("evaluate", HONEST, "--out", "results"),
        ("evaluate", EXAMPLES, "--out", HONEST),
        ("bench", "--policy", "teacher", "--suite", "katas:1", "--out", HONEST / "run"),
        ("collect", "teacher", "--suite", "katas:1", "--out", HONEST),
        ("learn", "--out", HONEST / "run"),
        ("report", HONEST),
        ("compare", HONEST, HONEST),
        ("train", "sft", RECIPE, "--set", "device=tpu"),
        ("train", "sft", RECIPE, "--set", "device=cuda:99"),
        ("train", "sft", RECIPE, "--set", "model.path=/no/such/folder"),
        ("train", "rl", RECIPE, "--set", "model.path=openai:m@http://localhost:9/v1"),
    ],
    ids=lambda arguments: " ".join(str(getattr(argument, "name", argument)) for argument in arguments),
)
def test_bad_usage_is_one_line_on_standard_error_and_exit_code_2(
    arguments: tuple[str | Path, ...], dojo_here: Dojo
) -> None:
    assert_bad_usage(dojo_here(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("collect", "teacher", "--suite", "katas:1", "--out"),
        ("collect", "teacher", "--suite", "katas:1", "-o"),
        ("collect", "teacher", "--suite", "katas:1", "--out", "run", "--cache"),
        ("bench", "--policy", "teacher", "--suite", "katas:1", "--out"),
        ("evaluate", EXAMPLES, "--out"),
        ("optimize", REFERENCE, "--out"),
        ("compare", "a", "b", "--out"),
        ("learn", "--out"),
        ("demo", "--out"),
        ("serve", "--store"),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}",
)
def test_what_is_written_is_never_written_to_an_empty_name(
    arguments: tuple[str | Path, ...], dojo_here: Dojo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a path it would be the folder one stands in, and `--out "$FOLDER"` without a $FOLDER means another."""
    monkeypatch.chdir(tmp_path)
    done = dojo_here(*arguments, "")
    assert_bad_usage(done)
    assert arguments[-1] in done.stderr and ": it is empty (see" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("judge", "no_such_file.py", HONEST, "--json"),
        ("problems", "audit", "no_such_file.py"),
        ("optimize", REFERENCE, "--out", "no_such_folder/kernel.py"),
        ("train", "sft", RECIPE, "--set", "device=tpu"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_bad_usage_is_that_of_a_process_too(arguments: tuple[str | Path, ...]) -> None:
    assert_bad_usage(dojo(*arguments))


def assert_bad_usage(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("dojo: ")
    assert done.stderr.count("\n") == 1


def test_a_file_name_cannot_smuggle_control_characters_into_the_terminal(tmp_path: Path) -> None:
    done = dojo("judge", tmp_path / "\x1b[2J.py", HONEST)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert r"\x1b[2J" in done.stderr


def test_problems_are_listed_and_shown() -> None:
    listed = dojo("problems", "list", "--suite", "katas:1")
    assert listed.returncode == 0, listed.stderr
    assert "1/softmax_rows" in listed.stdout
    shown = dojo("problems", "show", "softmax_rows")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == dojo("problems", "show", "katas:1/softmax_rows").stdout


def test_a_shown_problem_is_a_reference_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    file.write_text(dojo("problems", "show", "softmax_rows", "--size", "full").stdout)
    from kerneldojo.problems import load_suite, problem_from_file

    assert problem_from_file(file).hash == load_suite("katas:1/softmax_rows", "full")[0].hash


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert dojo("--version").stdout == f"dojo {version('kerneldojo')}\n"
