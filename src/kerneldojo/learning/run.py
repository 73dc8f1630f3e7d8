"""A run between two phases: its folder, its judge, and what is known by now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.learning.counting import Counting
from kerneldojo.learning.record import Learned, write
from kerneldojo.learning.settings import LearnConfig


class Stopped(Exception):
    """Somebody asked a phase to stop; the next call goes on with it."""


@dataclass
class Run:
    """What the phases share."""

    folder: Path
    learned: Learned
    pool: Counting
    tell: Callable[[str], None] | None
    """Told what begins, in one line; None where nothing is to be shown."""

    @property
    def config(self) -> LearnConfig:
        """Sizes of the phases."""
        return self.learned.config

    @property
    def is_shown(self) -> bool:
        """Whether phases show how far they are."""
        return self.tell is not None

    def say(self, message: str) -> None:
        """Tell whoever wants to know."""
        if self.tell is not None:
            self.tell(message)

    def note(self, **changes: object) -> None:
        """Put on record what is known by now."""
        self.learned = self.learned.model_copy(update=changes)
        write(self.learned, self.folder)
