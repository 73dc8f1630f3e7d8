"""What a command says of episodes that ended by a fault of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from kerneldojo.cli.streams import say
from kerneldojo.cli.text import counted, one_line

if TYPE_CHECKING:
    from kerneldojo.schema import Episode


def exit_on_faults(episodes: Sequence[Episode]) -> None:
    """Say how many there are and why, and end the command with exit code 3; nothing where there are none."""
    faults = [episode for episode in episodes if episode.finish in ("fault", "cancelled")]
    if faults:
        ended = f"{counted(len(faults), 'episode')} ended for want of an answer or a verdict"
        say(f"{ended}; start the same command again to go on{_reason(faults)}")
        raise typer.Exit(3)


def _reason(faults: Sequence[Episode]) -> str:
    """What the first of them that says it ended for, as the end of a sentence."""
    last = [episode.turns[-1] for episode in faults if episode.turns]
    told = [turn.answer.error or (turn.evaluation.message if turn.evaluation else "") for turn in last]
    return next((f" ({one_line(words)})" for words in told if words), "")
