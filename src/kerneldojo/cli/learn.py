"""`dojo learn`: from nothing to faster kernels, in minutes; `kerneldojo.learning` says how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerneldojo.cli.arguments import Device, Failed, folder_to_write, mendable
from kerneldojo.cli.streams import console_for, own_standard_output, say
from kerneldojo.cli.train import training_errors

if TYPE_CHECKING:
    from kerneldojo.learning import LearnConfig, Learned


def learn_command(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the run; one that was killed goes on.",
            metavar="FOLDER",
            parser=folder_to_write,
        ),
    ] = Path("runs-out/learn"),
    device: Device = "model:h100",
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever an earlier run left there.")] = False,
) -> None:
    """Teach a small model from nothing: collect, SFT, RL, a held-out benchmark and reports, in minutes."""
    from kerneldojo.cli.learn_panel import learn_panel

    with own_standard_output() as output:
        learned = learn(out, device=device, seed=seed, fresh=fresh)
        console_for(output).print(learn_panel(learned, out))


def learn(
    folder: Path,
    *,
    device: str = "model:h100",
    seed: int = 0,
    fresh: bool = False,
    config: LearnConfig | None = None,
    show: bool = True,
) -> Learned:
    """`kerneldojo.learning.learn`, as the command does it.

    Args:
        folder: as there.
        device: where answers are judged.
        seed: of everything that is drawn.
        fresh: as there.
        config: sizes; its `device` and `seed` are replaced by the arguments.
        show: progress on standard error.

    Raises:
        BadUsage: what the user can mend, in one line.
        Failed: a phase could not be ended, in one line; the next call goes on.
        typer.Abort: somebody pressed Ctrl-C; the next call goes on.
    """
    with training_errors():
        from kerneldojo import learning

        with mendable(learning.LearnError):
            asked = (config or learning.LearnConfig()).model_copy(update={"device": device, "seed": seed})
            try:
                return learning.learn(folder, asked, fresh=fresh, tell=say if show else None)
            except learning.Unfinished as error:
                raise Failed(str(error)) from error
            except learning.Stopped:
                raise typer.Abort from None
