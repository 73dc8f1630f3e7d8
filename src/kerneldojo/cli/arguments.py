"""What several commands take from the command line, and how a command ends that cannot be carried out.

A user's mistake is one line on standard error and exit code 2, never a traceback of ours. A disk that fails in the
middle of the work is no such mistake: one line, too, and exit code 3. Only what the command line itself can know is
checked here (the shape of a device's name, a file that can be read); what a device offers is the judge's to say.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kerneldojo.schema import MAX_SOURCE_BYTES
from kerneldojo.schema.job import MAX_TIMEOUT

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|model:[a-z0-9_-]+")


class BadUsage(Exception):
    """The command cannot be carried out as it was given; the text is the one line that the user reads."""


class Failed(Exception):
    """The command was given as it should be, and the machine or we failed; the text is the one line of it."""


DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE})
"""What a disk says that is full or fails."""


def is_the_disks(error: BaseException) -> bool:
    """Whether a disk that is full or fails stands behind an error."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.errno in DISK:
            return True
        behind = behind.__cause__ or behind.__context__
    return False


def ended_by(error: Exception, words: str = "") -> BadUsage | Failed:
    """How a command ends for an `error`: with `words`, or the error's own where there are none."""
    return (Failed if is_the_disks(error) else BadUsage)(words or str(error))


@contextmanager
def mendable(*kinds: type[Exception]) -> Generator[None]:
    """For a block in which these exceptions say, in one line, what the user can do better.

    Raises:
        BadUsage: with that line.
        Failed: with that line, where it is the disk that has failed.
    """
    try:
        yield
    except kinds as error:
        raise ended_by(error) from error


def device_name(value: str) -> str:
    """`value` if it has the shape of a device's name.

    Raises:
        typer.BadParameter: if it has not.
    """
    if not DEVICE.fullmatch(value):
        words = f"{value!r} is none of auto, cpu, cuda:N, model:GPU (for example model:h100)"
        raise typer.BadParameter(words, param_hint="'--device'")
    return value


def seconds(value: float | None) -> float | None:
    """`value` if it is a positive, finite number of seconds, or None.

    Raises:
        typer.BadParameter: if it is not.
    """
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value} is not a positive number of seconds")
    return value


def named(value: str | Path) -> Path:
    """The path that `value` names, for what is written: to be an option's `parser`.

    Raises:
        typer.BadParameter: it is empty. As a path that would be the folder one stands in, and who writes
            `--out "$FOLDER"` where there is no $FOLDER means another.
    """
    if not str(value).strip():
        raise typer.BadParameter("it is empty")
    return Path(value)


def folder_to_write(value: str | Path) -> Path:
    """The path that `value` names if it is a folder that can be written, or can be made; nothing is made yet.

    Raises:
        typer.BadParameter: if it is not, or is empty.
    """
    folder = named(value)
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise typer.BadParameter(f"{there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{there} cannot be written")
    return folder


def candidate_seconds(value: float | None) -> float | None:
    """`value` if it is a time that a candidate can be given, or None.

    Raises:
        typer.BadParameter: if it is not.
    """
    if seconds(value) is not None and value is not None and value > MAX_TIMEOUT:
        raise typer.BadParameter(f"{value} seconds are more than a day ({MAX_TIMEOUT:.0f})")
    return value


Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto, cpu, cuda:N, or model:GPU (h100, h200, a100, ...). auto takes a GPU if there is one.",
        callback=device_name,
        metavar="DEVICE",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder in which verdicts are kept for other runs.", metavar="FOLDER", parser=named),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]


def read_source(path: Path) -> str:
    """The text of `path`, as far as the judge will look at it.

    At most one byte more than the longest source that is judged is read, so that an endless file costs nothing and is
    still seen to be too long. Bytes that are not UTF-8 become U+FFFD, which Python's parser refuses in code.

    Raises:
        BadUsage: if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror or error}") from error
    return data.decode("utf-8", "replace")


def require_judge() -> None:
    """Make sure that what judging needs beyond the light part of the package is installed, without importing it.

    Raises:
        BadUsage: naming the first package that is missing.
    """
    for package in ("torch", "triton", "numpy"):
        if find_spec(package) is None:
            raise BadUsage(f"judging needs {package}, which is not installed: install kerneldojo[judge]")
