"""Checkpoints: a run can be killed at any moment and goes on as if it had not been.

A checkpoint is a folder that appears whole or not at all: it is written under another name, everything in it is forced
to disk, and one rename makes it real. Inside are `model/`, an ordinary Hugging Face checkpoint (or adapter), and
`state.pt`, all else that the next step depends on: optimiser, random generators, counters.

    run/checkpoints/step-000040/{model/, state.pt}
    run/checkpoints/.partial-...         # what a killed process left; swept up at the next start
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError

from kerneldojo.files import sync

NAME = re.compile(r"step-(\d{6,})")
"""Of a checkpoint's folder."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; one line says why. Older ones are untouched."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run."""

    folder: Path
    keep: int = 2
    """How many of the latest are kept; beside them the one that a link leads to."""

    def path(self, step: int) -> Path:
        """Where the checkpoint after `step` steps lies."""
        return self.folder / f"step-{step:06d}"

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, ascending; what somebody else put beside them is none."""
        if not self.folder.is_dir():
            return []
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted(int(name[1]) for name, path in found if name and path.is_dir())

    def latest(self) -> Path | None:
        """The newest checkpoint; None if there is none."""
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def save(self, step: int, save_model: Callable[[Path], object], state: dict[str, Any]) -> Path:
        """Write the checkpoint after `step` steps.

        Raises:
            CheckpointError: the disk is full, or not ours to write on. Nothing else has changed.
        """
        final = self.path(step)
        if final.is_dir():  # a run that was resumed and had nothing to do
            return final
        partial = self.folder / f".partial-{step:06d}-{os.getpid()}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            save_model(partial / "model")
            with (partial / "state.pt").open("wb") as file:  # by a name alone torch keeps the reason to itself
                torch.save(state, file)
            for path in [*partial.rglob("*"), partial]:
                sync(path)
            partial.rename(final)
            sync(self.folder)
        except Exception as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not _may_be_the_disk(error):
                raise
            raise CheckpointError(
                f"cannot write the checkpoint of step {step} to {self.folder}: {_reason(error)}"
            ) from error
        return final

    def prune(self, *links: Path) -> None:
        """Drop all but the latest, and never what one of `links` leads into.

        Links are set before this, so that whoever is killed in between leaves none that leads nowhere.
        """
        held = {link.resolve().parent for link in links}
        for old in map(self.path, self.steps()[: -self.keep]):
            if old.resolve() not in held:
                shutil.rmtree(old, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what killed processes left half-written."""
        for path in self.folder.glob(".partial-*"):
            shutil.rmtree(path, ignore_errors=True)


def _may_be_the_disk(error: Exception) -> bool:
    """Whether this is how a library tells that it could not write: torch raises RuntimeError, safetensors an exception
    of its own, and tokenizers plain `Exception`."""
    return isinstance(error, OSError | RuntimeError | SafetensorError) or type(error) is Exception


def _reason(error: BaseException) -> str:
    """The system's own words, where they stand behind a library's (torch's name a position in the file)."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.strerror:
            return behind.strerror
        behind = behind.__cause__ or behind.__context__
    return " ".join(str(error).split())


def load_state(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """The `state.pt` of a checkpoint; nothing but tensors and plain values is accepted.

    `mapped`: tensors stay in the file and are read when they are used, so that several ranks, of which each wants a
    share of every tensor, do not hold all of them each.

    Raises:
        CheckpointError: it cannot be read.
    """
    file = path / "state.pt"
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        raise CheckpointError(f"cannot read {file}: {_what_is_wrong(file) or _reason(error)[:200]}") from error


def _what_is_wrong(file: Path) -> str:
    """What can be seen of a file that should be an archive of torch's: of one that is none torch says odd things."""
    if not file.is_file():
        return ""
    if not file.stat().st_size:
        return "the file is empty"
    return "" if is_zipfile(file) else "the file is damaged"


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of torch's generators of this process."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Take up a state that `random_state` gave."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
