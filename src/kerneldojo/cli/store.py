"""`dojo store`: what a service has kept, without the service."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerneldojo.cli.arguments import AsJson, BadUsage, Failed, ended_by, mendable, named
from kerneldojo.cli.streams import console_for, own_standard_output, print_json, say
from kerneldojo.cli.text import counted, one_line
from kerneldojo.schema import Job, Status

if TYPE_CHECKING:
    from kerneldojo.service.archive import Archive, StoreInfo

commands = typer.Typer(help="Look at, export, copy and clear the store of a service.", no_args_is_help=False)

StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="The SQLite file of a service.")]


def moment(value: str) -> float:
    """Seconds since 1970 of a day or a time as ISO 8601 writes it; of this machine's clock where it names no zone.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{value!r} is no day or time: 2026-05-31, or 2026-05-31T18:00") from None


@commands.command("info")
def info_command(store: StoreFile, as_json: AsJson = False) -> None:
    """Say how many tasks a store holds, with what verdicts, whose, since when, and how large it is.

    A service may be running on it.
    """
    with own_standard_output() as output, _opened(store) as archive:
        info = archive.info()
        if as_json:
            print_json(info, output)
        else:
            console_for(output).print("\n".join(_told(info)), soft_wrap=True)


def _told(info: StoreInfo) -> Iterator[str]:
    free = f" ({info.free_bytes / 1e6:.1f} MB more is free in the file)" if info.free_bytes else ""
    yield f"store:     {one_line(info.path)}"
    yield f"size:      {info.num_bytes / 1e6:.1f} MB{free}"
    for name, numbers in (("tasks", info.states), ("verdicts", info.verdicts), ("clients", info.clients)):
        yield f"{name + ':':10} " + (
            ", ".join(f"{number:,} {one_line(key)}" for key, number in numbers.items()) or "none"
        )
    if info.oldest is not None and info.newest is not None:
        first, last = (datetime.fromtimestamp(at).isoformat(" ", "seconds") for at in (info.oldest, info.newest))
        yield f"submitted: {first} to {last}"


@commands.command("export")
def export_command(
    store: StoreFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; standard output by default.", metavar="FILE", parser=named),
    ] = None,
    status: Annotated[Status | None, typer.Option(help="Only those with this verdict.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Only those of this client.", metavar="NAME")] = None,
    since: Annotated[
        float | None,
        typer.Option("--since", help="Only those that ended then or later.", metavar="DAY|TIME", parser=moment),
    ] = None,
) -> None:
    """Write the tasks that have a verdict as JSON lines, as `dojo evaluate` writes its results.jsonl.

    In the order in which they were accepted. Cancelled tasks have no verdict. A service may be running on the store.
    """
    from kerneldojo.files import replacing

    with own_standard_output() as output, _opened(store) as archive:
        lines = _lines(archive, status, client, since)
        try:
            if out is None:
                number = sum(1 for line in lines if output.write(line))
                output.flush()
            else:
                with replacing(out) as temporary, temporary.open("w", encoding="ascii") as file:
                    number = sum(1 for line in lines if file.write(line))
        except BrokenPipeError:
            # Whoever read has enough; what is left in the buffer has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
            return
        except OSError as error:
            raise ended_by(error, f"cannot write {out or 'standard output'}: {error.strerror or error}") from error
    say(f"exported {counted(number, 'task')}")


def _lines(archive: Archive, status: Status | None, client: str | None, since: float | None) -> Iterator[str]:
    """The lines; ASCII, so that no candidate's text reaches a terminal raw."""
    from kerneldojo.evaluate.results import Record
    from kerneldojo.schema import Evaluation

    for task in archive.ended(status=status, client=client, since=since):
        try:
            job = Job.model_validate_json(task.job, extra="ignore")
            evaluation = Evaluation.model_validate_json(task.evaluation, extra="ignore")
        except ValueError:
            say(f"left out: task {one_line(task.id)} cannot be read")
            continue
        text = Record.of(task.id, job, evaluation).model_dump_json(round_trip=True)
        yield json.dumps(json.loads(text)) + "\n"


@commands.command("backup")
def backup_command(
    store: StoreFile,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; must not be there.", parser=named)],
) -> None:
    """Copy a store as it is now, also while a service runs on it: a store of its own, whole and consistent."""
    with _opened(store) as archive:
        try:
            archive.backup(target)
        except FileExistsError as error:
            raise BadUsage(str(error)) from error
        except OSError as error:
            raise ended_by(error, f"cannot write {target}: {error.strerror or error}") from error
    say(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


@commands.command("prune")
def prune_command(
    store: StoreFile,
    keep_days: Annotated[float | None, typer.Option(help="Delete ended tasks that are older.", min=0.001)] = None,
    keep_mb: Annotated[
        int | None, typer.Option(help="Delete the oldest ended tasks above this size of the store.", min=1)
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="Give what is free in the file back to the disk; needs as much room again."),
    ] = False,
) -> None:
    """Delete old tasks for good, as `dojo serve --keep-days --keep-mb` does; their ids are free again.

    What waits is kept. Refused while a service runs on the store: start that one with these options.
    """
    from kerneldojo.service.clearing import clear

    if keep_days is None and keep_mb is None and not shrink:
        raise BadUsage("say what to delete: --keep-days, --keep-mb, or --shrink alone for the space that is free")
    days, size = None if keep_days is None else keep_days * 86_400, None if keep_mb is None else keep_mb << 20
    with _sqlite_errors(store), mendable(ValueError):
        number = clear(store, keep_seconds=days, keep_bytes=size, shrink=shrink)
    say(f"{store}: deleted {counted(number, 'task')}; {store.stat().st_size / 1e6:.1f} MB on disk")


@contextmanager
def _opened(store: Path) -> Generator[Archive]:
    from kerneldojo.service.archive import Archive

    with mendable(ValueError):
        archive = Archive(store)
    with archive, _sqlite_errors(store):
        yield archive


@contextmanager
def _sqlite_errors(store: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Failed(f"{store}: {error}") from error
