"""What a section of `h200.py` is told, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """What a section is told."""

    device: str
    out: Path
    tiny: bool
    seconds: float
    """How long it may take; it is killed a little later."""
    at_once: int
    """Verdicts under way at once where verdicts, not times, are what is looked at."""
    match: str = ""
    """Of the suite of exploits, only what has this regular expression in its name."""

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def exact_device(self) -> str:
        """One device, by a name that verdicts bear."""
        return "cuda:0" if self.device == "cuda" else self.device

    def some(self, many: int, few: int) -> int:
        """A count, smaller in a rehearsal."""
        return few if self.tiny else many


Found = tuple[dict[str, Any], list[str]]
"""What a section found, and what of it is wrong."""


class Unfinished(Exception):
    """Time was up; what was found until then."""

    def __init__(self, found: dict[str, Any], wrong: list[str]) -> None:
        super().__init__("unfinished")
        self.found, self.wrong = found, wrong


def open_pool(run: Run, at_once: int) -> Any:
    from kerneldojo.pool import LocalPool, PoolConfig

    config = PoolConfig(num_verdicts_per_gpu=at_once if run.on_gpu else 1, remember=0, cache_folder=None)
    return LocalPool([run.exact_device], None if run.on_gpu else 1, config)
