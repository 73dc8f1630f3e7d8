"""What is to be judged: pairs of a problem and a candidate, each with an id, read from lines or from files.

Two forms are read:

* **JSONL**, one object a line: `{"problem": ..., "candidate": SOURCE}`, and if wanted `id`, `name` (of a problem that
  comes as a source), `language` and `entry_point`. `problem` is a source in KernelBench's format or the name of a
  problem of the suite. Without an id a line is known by its number (`line-7`).
* **A folder** of Python files. In a folder that has a `reference.py` every other file is a candidate for it. Any other
  file names its problem in the suite: `level_1_problem_23_sample_0_kernel.py` (as KernelBench saves generations),
  `softmax_rows.py`, `softmax_rows__second-try.py`, or any name in a folder called `softmax_rows`; below a
  folder `level2` those of that level come first. Its path without the suffix is its id.

Nothing that is read is run. What cannot be judged is a `BadEntry` that says where and why; a candidate that is not even
Python is no such thing, for its verdict (`compile_error`) is data like any other.
"""

from __future__ import annotations

import json
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, ValidationError

from kerneldojo.problems import ProblemError, check_source, problem_names
from kerneldojo.schema import MAX_SOURCE_BYTES, Candidate, Frozen, Problem
from kerneldojo.schema.base import writable

Language = Literal["auto", "triton", "cuda"]
REFERENCE = "reference.py"
MAX_LINE_BYTES = 8 * MAX_SOURCE_BYTES
"""Longest line that is read: two sources of the greatest size, escaped."""
_GENERATION = re.compile(r"level_(?P<level>\d+)_problem_(?P<number>\d+)(?:_sample_\d+)?(?:_kernel)?$")
_LEVEL = re.compile(r"level_?(?P<level>\d+)")


class Item(Frozen):
    """One candidate that is to be judged."""

    id: str
    problem: Problem
    candidate: Candidate
    place: str
    """Where it was read, for messages: `line 7`, or a path."""


@dataclass(frozen=True)
class BadEntry:
    """A line or a file that cannot be judged."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class _Line(Frozen):
    """One line of JSONL."""

    problem: str
    candidate: str
    id: str | None = Field(default=None, min_length=1, max_length=200)
    name: str = Field(default="", max_length=200)
    language: Language | None = None
    entry_point: str = Field(default="ModelNew", pattern=r"^[A-Za-z_]\w*$", max_length=100)


class _Unusable(Exception):
    """Why an entry cannot be judged."""


def read_items(
    path: Path, suite: Sequence[Problem] = (), language: Language = "auto"
) -> tuple[list[Item], list[BadEntry]]:
    """Read all that is to be judged.

    Args:
        path: a folder, or a file of JSON lines.
        suite: problems that entries may name.
        language: of candidates that do not say it themselves.

    Returns:
        What can be judged, with ids that are all different, and what cannot.

    Raises:
        OSError: `path` cannot be read.
    """
    known = _Names(suite)
    entries = _from_folder(path, known, language) if path.is_dir() else _from_lines(path, known, language)
    items: dict[str, Item] = {}
    bad: list[BadEntry] = []
    for entry in entries:
        if isinstance(entry, BadEntry):
            bad.append(entry)
        elif entry.id in items:
            bad.append(BadEntry(entry.place, f"its id {entry.id[:80]!r} is also that of {items[entry.id].place}"))
        else:
            items[entry.id] = entry
    return list(items.values()), bad


class _Names:
    """Problems by what they may be called."""

    def __init__(self, suite: Sequence[Problem]) -> None:
        self._by_name: dict[str, list[Problem]] = {}
        for problem in suite:
            for name in problem_names(problem):
                self._by_name.setdefault(name, []).append(problem)

    def find(self, name: str) -> Problem:
        """The problem called so; raises `_Unusable` if there is none, or more than one."""
        if not self._by_name:
            raise _Unusable(f"names a problem ({_short(name)}), but there is no --suite to find it in")
        found = self._by_name.get(name, [])
        if not found:
            raise _Unusable(f"no problem {_short(name)} in the suite (see `dojo problems list`)")
        if len({problem.hash for problem in found}) > 1:
            levels = ", ".join(str(problem.level) for problem in found)
            raise _Unusable(f"{_short(name)} is several problems (levels {levels}): write LEVEL/NAME")
        return found[0]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name


def _from_lines(path: Path, known: _Names, language: Language) -> Iterator[Item | BadEntry]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM_UTF8)  # Some editors begin every file so.
            place = f"line {number}"
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                yield BadEntry(place, f"longer than {MAX_LINE_BYTES >> 20} MiB")
            elif line.strip():
                try:
                    yield _from_line(line, number, known, language)
                except _Unusable as error:
                    yield BadEntry(place, str(error))


def _from_line(text: bytes, number: int, known: _Names, language: Language) -> Item:
    try:
        line = _parsed(text.strip())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise _Unusable(f"{field}: {first['msg']}" if field else str(first["msg"])) from None
    problem = _from_source(line.problem, line.name) if _is_source(line.problem) else known.find(line.problem.strip())
    candidate = Candidate(source=line.candidate, language=line.language or language, entry_point=line.entry_point)
    return Item(id=line.id or f"line-{number}", problem=problem, candidate=candidate, place=f"line {number}")


def _parsed(text: bytes) -> _Line:
    """A line as JSON holds it, or with half a character, which `json.dumps` writes as an escape that JSON has not."""
    try:
        return _Line.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise error from None
        if not isinstance(values, dict):
            raise
        told = cast("dict[str, Any]", values)
        return _Line.model_validate({key: writable(one) if isinstance(one, str) else one for key, one in told.items()})


def _is_source(text: str) -> bool:
    return "\n" in text.strip() or len(text) > 500


def _from_source(source: str, name: str = "", place: str = "problem") -> Problem:
    try:
        check_source(source, place)
    except ProblemError as error:
        raise _Unusable(str(error)) from None
    problem = Problem(name=name or "problem", source=source)
    return problem if name else problem.model_copy(update={"name": f"problem-{problem.hash[:12]}"})


def _from_folder(root: Path, known: _Names, language: Language) -> Iterator[Item | BadEntry]:
    references: dict[Path, Problem | None] = {}
    paths = [path for path in sorted(root.rglob("*.py")) if not _is_hidden(path.relative_to(root))]
    for path in paths:
        if path.name == REFERENCE:
            place = path.relative_to(root)
            try:
                name = path.parent.name or path.resolve().parent.name
                references[path.parent] = _from_source(_read(path), writable(name), REFERENCE)
            except _Unusable as error:
                references[path.parent] = None
                yield BadEntry(_legible(place), str(error))
    for path in paths:
        place = path.relative_to(root)
        if path.name == REFERENCE or (path.parent in references and references[path.parent] is None):
            continue
        try:
            if _legible(place) != str(place):
                # Its id would stand in no file, and one that was made up might be another's.
                raise _Unusable("its name is not UTF-8, so that it can have no id: rename it")
            problem = references.get(path.parent) or known.find(_problem_of(place, known))
            candidate = Candidate(source=_read(path), language=language)
            yield Item(id=place.with_suffix("").as_posix(), problem=problem, candidate=candidate, place=str(place))
        except _Unusable as error:
            yield BadEntry(_legible(place), str(error))


def _problem_of(place: Path, known: _Names) -> str:
    """Name of the problem that a file is for, going by its path."""
    if generation := _GENERATION.fullmatch(place.stem):
        return f"{generation['level']}/{generation['number']}"
    label = place.stem.partition("__")[0]
    levels = [f"{match['level']}/" for part in place.parts[:-1] if (match := _LEVEL.fullmatch(part))]
    for name in (label, place.parent.name):
        for level in (*levels, ""):
            if f"{level}{name}" in known:
                return f"{level}{name}"
    return label


def _legible(place: Path) -> str:
    """A path as it can be printed: bytes that are no UTF-8, which Python keeps as halves of characters, spelt out."""
    return os.fsencode(place).decode("utf-8", "backslashreplace")


def _is_hidden(place: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in place.parts)


def _read(path: Path) -> str:
    """The text of a file as far as the judge will look at it: a longer one is still seen to be too long."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise _Unusable("is a pipe, not a file")  # Opened, it would wait for a writer, perhaps for ever.
        with path.open("rb") as file:
            return file.read(MAX_SOURCE_BYTES + 1).decode("utf-8", "replace")
    except OSError as error:
        raise _Unusable(f"cannot be read: {error.strerror}") from None


def _short(name: str) -> str:
    return repr(name[:80])
