"""A run folder: everything that a run produced, on disk as soon as it exists.

    manifest.json      what was asked for: settings, seed, policy, problems; versions
    episodes.jsonl     finished episodes, one `schema.Episode` a line; refused ones are finished too
    turns.jsonl        turns of episodes, written when each was played: {"id": ..., "turn": ...}
    faults.jsonl       episodes that a fault of ours ended; a later run of the same folder goes on before the fault
    lock               held by the process that writes

Nothing is ever changed, only appended, so that a run can be killed at any moment and continued by starting it again:
finished episodes are not played again, others go on after their last turn on disk. A run with other settings is
refused: two experiments in one folder are none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kerneldojo.files import Journal, read_lines, write_whole
from kerneldojo.rollout.lock import Lock, RunError
from kerneldojo.rollout.versions import versions
from kerneldojo.schema import Episode, Frozen, Turn

MANIFEST, EPISODES, TURNS, FAULTS, LOCK = "manifest.json", "episodes.jsonl", "turns.jsonl", "faults.jsonl", "lock"
PAUSE = 0.05
"""Seconds between two writes to disk; a turn that is lost to kill -9 within them is played again."""
FORMAT = 1
"""Of the folder; raised when an older one can no longer be read."""
DECIDING = ("kerneldojo", "torch", "triton", "transformers", "vllm")
"""Packages that decide the outcome of a run."""


class Manifest(Frozen):
    """What a run was asked to do."""

    settings: dict[str, Any]
    """Everything that decides what comes out, as plain JSON; a run is continued only under equal settings."""
    seed: int = 0
    policy: str = ""
    """Name of the policy."""
    problems: dict[str, str] = Field(default_factory=dict)
    """Content hashes of the problems by name."""
    opened_as: dict[str, str] | None = None
    """What decides the policy's answers beside its name (`policies.registry.deciding`); None where nobody said it, and
    then nothing is compared."""
    format: int = FORMAT
    versions: dict[str, str] = Field(default_factory=dict)
    """Of what the run was begun with. They do not have to agree: a run may outlive an update."""


class RunFolder:
    """A run folder for reading; `open` gives its writer."""

    def __init__(self, path: Path | str) -> None:
        """Name a folder; nothing is read or made yet."""
        self.path = Path(path)

    def manifest(self) -> Manifest | None:
        """What the run was asked to do; None where no run was begun.

        Raises:
            RunError: it cannot be read.
        """
        try:
            data = (self.path / MANIFEST).read_bytes()
            return Manifest.model_validate_json(data)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise RunError(f"{self.path} is no folder of a run") from None
        except (OSError, ValidationError) as error:
            raise RunError(f"{self.path / MANIFEST}: not a manifest of this version ({type(error).__name__})") from None

    def episodes(self) -> Iterator[Episode]:
        """All finished episodes in the order in which they finished, then those that a fault ended.

        Raises:
            RunError: a line is no episode.
        """
        finished: set[str] = set()
        for episode in _episodes(self.path / EPISODES):
            if episode.id in finished:
                raise RunError(f"{self.path / EPISODES}: episode {episode.id} is there twice")
            finished.add(episode.id)
            yield episode
        faults = {episode.id: episode for episode in _episodes(self.path / FAULTS)}  # of several the latest
        yield from (episode for name, episode in faults.items() if name not in finished)

    def finished(self) -> set[str]:
        """Ids of the episodes that are finished, those that a fault ended not among them."""
        return {episode.id for episode in _episodes(self.path / EPISODES)}

    def turns(self) -> dict[str, tuple[Turn, ...]]:
        """Turns on disk by episode, of finished and unfinished ones.

        Raises:
            RunError: a line is no turn, or a turn is missing.
        """
        found: dict[str, list[Turn]] = {}
        for number, line in read_lines(self.path / TURNS):
            try:
                record = json.loads(line)
                turn = Turn.model_validate(record["turn"])
                turns = found.setdefault(str(record["id"]), [])
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"{self.path / TURNS}, line {number}: no turn ({type(error).__name__})") from None
            if turn.index != len(turns):
                raise RunError(f"{self.path / TURNS}, line {number}: turn {turn.index} follows {len(turns)} turns")
            turns.append(turn)
        return {name: tuple(turns) for name, turns in found.items()}

    def open(self, manifest: Manifest) -> RunWriter:
        """Begin a run here, or continue the one that was begun; the writer must be closed.

        Raises:
            RunError: another process is writing, the run was begun with other settings, or the folder is damaged.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = Lock(self.path / LOCK)
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from None
        try:
            begun = self.manifest()
            if begun is None:
                if (self.path / EPISODES).exists():
                    raise RunError(f"{self.path}: there are episodes but no {MANIFEST}; it is not a run of ours")
                complete = manifest.model_copy(update={"versions": versions(*DECIDING)})
                write_whole(self.path / MANIFEST, complete.model_dump_json(indent=2).encode())
            else:
                _check_same(self.path, begun, manifest)
            return RunWriter(self, lock)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise RunError(f"{self.path}: {error.strerror}") from None
            raise


class RunWriter:
    """Writes what a run produces. Use as a context manager, or call `close`."""

    def __init__(self, folder: RunFolder, lock: Lock) -> None:
        """Made by `RunFolder.open`."""
        self.folder = folder
        self._lock = lock
        self.finished = folder.finished()
        """Ids of the finished episodes."""
        self.turns = folder.turns()
        """Turns on disk when the folder was opened, by episode."""
        self._journal = Journal([folder.path / name for name in (EPISODES, TURNS, FAULTS)], pause=PAUSE)

    def resumed(self, episode: Episode) -> Episode:
        """An episode that was not finished, with the turns that are on disk."""
        return episode.model_copy(update={"turns": self.turns.get(episode.id, ())})

    def add_turn(self, episode: Episode) -> Future[None]:
        """Record the last turn of `episode`; the future is done once it is on disk. A faulty turn is not recorded."""
        turn = episode.turns[-1]
        if turn.reward is None:
            raise ValueError(f"{episode.id}: a turn that a fault of ours ended is to be played again")
        text = turn.model_dump_json(round_trip=True)
        return self._journal.append(1, f'{{"id":{json.dumps(episode.id)},"turn":{text}}}'.encode())

    def add_episode(self, episode: Episode) -> Future[None]:
        """Record an episode that has ended; the future is done once it is on disk.

        Raises:
            ValueError: it goes on, or is recorded already.
        """
        if not episode.finish or episode.id in self.finished:
            raise ValueError(f"{episode.id}: {'recorded twice' if episode.finish else 'has not ended'}")
        if episode.finish in ("fault", "cancelled"):
            return self._journal.append(2, episode.model_dump_json(round_trip=True).encode())
        self.finished.add(episode.id)
        return self._journal.append(0, episode.model_dump_json(round_trip=True).encode())

    def close(self) -> None:
        """Write what was accepted and let others write.

        Raises:
            RunError: something could not be written.
        """
        try:
            self._journal.close()
        except OSError as error:
            raise RunError(f"{self.folder.path}: {error.strerror}") from None
        finally:
            self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _episodes(path: Path) -> Iterator[Episode]:
    for number, line in read_lines(path):
        try:
            yield Episode.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            told = f"{place}: {first['msg']}" if place else first["msg"]
            raise RunError(f"{path}, line {number}: no episode ({told})") from None


def _check_same(path: Path, begun: Manifest, asked: Manifest) -> None:
    untold = {"opened_as"} if begun.opened_as is None or asked.opened_as is None else set[str]()
    old, new = (item.model_dump(mode="json", exclude={"versions", "problems", *untold}) for item in (begun, asked))
    # What somebody chose comes before the problems that follow from it: another seed may draw others.
    difference = _first_difference(old, new) or _other_problems(begun.problems, asked.problems)
    if difference:
        raise RunError(f"{path}: begun with other settings, {difference}; choose another folder")


def _other_problems(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """In words, for hashes tell nobody anything."""
    for name in sorted({*old, *new}):
        if name not in old:
            return f"problem {name} is not among its {len(old)}"
        if name not in new:
            return f"its problem {name} is missing"
        if old[name] != new[name]:
            return f"problem {name} has another source"
    return ""


def _first_difference(old: Any, new: Any, place: str = "") -> str:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            inner = _first_difference(old.get(key), new.get(key), f"{place}.{key}" if place else str(key))
            if inner:
                return inner
        return ""
    return "" if old == new else f"{place} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
