"""`dojo train sft CONFIG.toml` and `dojo train rl CONFIG.toml`: train a policy, as a file says.

On several GPUs of one machine: `torchrun --nproc-per-node N -m kerneldojo.cli train rl CONFIG.toml`. These are
`cuda:0` and on; which GPUs judge is the file's to say (`judge.devices`).
Ctrl-C saves a checkpoint and stops; `--resume` goes on from the last one.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerneldojo.cli.arguments import BadUsage, mendable
from kerneldojo.cli.streams import say
from kerneldojo.cli.text import counted

if TYPE_CHECKING:
    from kerneldojo.pool import Executor
    from kerneldojo.training.config import RLConfig
    from kerneldojo.training.parallel import Ranks
    from kerneldojo.training.runs import Outcome

commands = typer.Typer(help="Train a policy: first on verified answers, then on the judge's rewards.")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to do; see recipes/.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, for example --set steps=5.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the output folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing; metrics.jsonl has it all.")]


@commands.command("sft")
def sft_command(config: ConfigFile, overrides: Overrides = None, resume: Resume = False, quiet: Quiet = False) -> None:
    """Imitate collected answers that the judge passed (or a mixture of others)."""
    with training_errors():
        from kerneldojo.training.config import SFTConfig
        from kerneldojo.training.settings import load_config

        told = load_config(SFTConfig, config, overrides or [])
        _require_model(told.model.path)
        with _ranks(told.device) as ranks:
            from kerneldojo.training.sft import train_sft  # takes seconds: after what can be refused

            outcome = train_sft(told, ranks, resume=resume, show=not quiet)
    _end(outcome, told.output)


@commands.command("rl")
def rl_command(config: ConfigFile, overrides: Overrides = None, resume: Resume = False, quiet: Quiet = False) -> None:
    """Learn from the judge's rewards."""
    with training_errors():
        from kerneldojo.training.config import RLConfig
        from kerneldojo.training.settings import load_config

        told = load_config(RLConfig, config, overrides or [])
        _require_model(told.model.path)
        with _ranks(told.device) as ranks, _executor(told, ranks) as executor:
            from kerneldojo.training.rl import train_rl  # takes seconds: after what can be refused

            outcome = train_rl(told, executor, ranks, resume=resume, show=not quiet)
    _end(outcome, told.output)


def _require_model(path: str | None) -> None:
    """Make sure that what looks like a folder is one.

    Raises:
        BadUsage: it is not.
    """
    if path is not None and path.partition(":")[0] in ("openai", "vllm", "teacher", "replay", "hf"):
        raise BadUsage(
            f"model.path: RL changes weights, so it takes a folder or a model of a hub, not {path}: an endpoint gives "
            "none (use it to collect and to benchmark)"
        )
    # ORGANISATION/NAME may be a model of a hub; anything else that looks like a folder has to be one.
    is_folder = path is not None and (path.startswith(("/", ".", "~")) or path.count("/") > 1)
    if path is not None and is_folder and not Path(path).is_dir():
        raise BadUsage(f"model.path: there is no folder {path}")


def _end(outcome: Outcome, output: Path) -> None:
    say(f"{outcome.reason} after {counted(outcome.steps, 'step')}: {output}")
    raise typer.Exit(0 if outcome.is_good else 3)


@contextmanager
def training_errors() -> Generator[None]:
    """Turn what a user can mend into one line.

    Raises:
        BadUsage: with that line.
        Failed: with that line, where it is the disk that has failed.
    """
    for package in ("torch", "transformers", "tokenizers", "safetensors"):
        if find_spec(package) is None:
            raise BadUsage(f"training needs {package}, which is not installed: install kerneldojo[train]")
    from kerneldojo.rollout import RunError
    from kerneldojo.training.checkpoints import CheckpointError
    from kerneldojo.training.journal import JournalError
    from kerneldojo.training.settings import ConfigError

    # OSError: a model that is not there, a disk that cannot be written.
    with mendable(ConfigError, CheckpointError, JournalError, RunError, OSError):
        yield


@contextmanager
def _ranks(device: str) -> Generator[Ranks]:
    from kerneldojo.training.parallel import end_ranks, start_ranks

    with mendable(ValueError):
        ranks = start_ranks(device)
    try:
        yield ranks
    finally:
        end_ranks(ranks)


@contextmanager
def _executor(config: RLConfig, ranks: Ranks) -> Generator[Executor]:
    """The judge, started before any model is loaded: its processes must not be forks of a trainer."""
    from kerneldojo.client import ClientError
    from kerneldojo.client.connection import without_user
    from kerneldojo.training.judges import open_executor

    try:
        executor = open_executor(config, ranks)
    except ClientError as error:
        service = without_user(str(config.judge.service))
        raise BadUsage(f"judge.service: {service}: {error}") from error
    except (ValueError, RuntimeError) as error:
        raise BadUsage(str(error)) from error
    try:
        yield executor
    finally:
        executor.close(drain=False)
