"""Suites of problems: our own katas, KernelBench as a folder or as parquet, and generated graphs.

A specification names a suite, and optionally a level and a problem:

    katas                               all katas
    katas:2                             those of level 2
    katas:1/softmax_rows                one of them
    kernelbench:FOLDER                  folders level1, level2, ... of files N_Name.py (or a checkout that has them in
                                        KernelBench, or parquet files)
    kernelbench:FOLDER:1                one level
    kernelbench:FOLDER:1/23             one problem, by its number or its whole name
    kernelbench:FILE.parquet[:LEVEL]    the hub's format: columns code, level, name, problem_id
    graphs:SET                          generated graphs: train, validation, test or extrapolation
    graphs:SET/NAME                     one of them
    graphs:train:COUNT[:SEED]           so many graphs to train on, drawn by a seed (0)

Nothing that is loaded is executed; each source is only checked for its shape. A collection of hundreds of files, which
others write, is not lost for one that is no problem: that one is `Refused`, with its reason, and the others are used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.problems.source import ProblemError, Size, at_size, check_source
from kerneldojo.schema import Problem

log = logging.getLogger(__name__)

KATAS = Path(__file__).parent / "katas"
_LEVEL = re.compile(r"level(\d+)")
_SELECTION = re.compile(r"^(?P<rest>.*?)(?::(?P<level>\d+)(?:/(?P<name>[\w.\-]+))?)?$", re.DOTALL)
_GRAPHS = re.compile(r"^graphs:(?P<set>\w+)(?::(?P<count>\d+)(?::(?P<seed>\d+))?)?(?:/(?P<name>\w+))?$")


@dataclass(frozen=True)
class Refused:
    """What stands in a suite and is no problem."""

    problem: Problem
    """Where it stands, and its text as far as it can be read; not to be judged."""
    reason: str
    """Why, in one line that names it."""


def _log_refused(refused: Refused) -> None:
    log.warning("left out: %s", refused.reason)


def load_suite(
    spec: str | Iterable[str], size: Size = "full", on_refused: Callable[[Refused], None] = _log_refused
) -> list[Problem]:
    """Load the problems that `spec` names, in order of level and name (of number, for KernelBench).

    Args:
        spec: one specification, or several, whose problems follow one another.
        size: which size of a kata or a graph; KernelBench has one only.
        on_refused: called with each file of KernelBench that `spec` names and that is no problem; by default the log
            is told.

    Raises:
        ProblemError: an unknown suite, level or name, a missing folder, or nothing in it that is a problem.
    """
    if not isinstance(spec, str):
        return [problem for one in spec for problem in load_suite(one, size, on_refused)]
    if spec.strip().startswith("graphs:"):
        return load_graphs(spec.strip(), size)
    match = _SELECTION.match(spec.strip())
    assert match is not None  # the pattern matches any text
    rest, level, name = match["rest"], match["level"], match["name"]
    if rest == "katas":
        found: list[Problem | Refused] = [*load_katas(size)]
    elif rest.startswith("kernelbench:") and rest != "kernelbench:":
        found = load_kernelbench(Path(rest.removeprefix("kernelbench:")).expanduser())
    else:
        forms = "katas[:LEVEL[/NAME]], graphs:SET[/NAME] or kernelbench:FOLDER[:LEVEL[/NUMBER]]"
        raise ProblemError(f"unknown suite {spec!r}: use {forms}")
    chosen = [one for one in found if _is_meant(one, None if level is None else int(level), name)]
    refused = [one for one in chosen if isinstance(one, Refused)]
    problems = [one for one in chosen if isinstance(one, Problem)]
    if not problems:
        raise ProblemError(none_usable(refused) if refused else f"{spec}: no such problem")
    for one in refused:
        on_refused(one)
    return problems


def none_usable(refused: Sequence[Refused]) -> str:
    """One line for a choice of which every one is refused."""
    first = refused[0].reason
    return first if len(refused) == 1 else f"none of {len(refused)} problems can be used; the first: {first}"


def problem_id(problem: Problem) -> str:
    """Short name of a problem within its suite, for example `1/softmax_rows`."""
    return f"{problem.level}/{problem.name}" if problem.level is not None else problem.name


def problem_number(name: str) -> int | None:
    """KernelBench's number of a problem: 23 for `23_Softmax`."""
    number, mark, _ = name.partition("_")
    return int(number) if mark and number.isdecimal() else None


def problem_names(problem: Problem) -> set[str]:
    """What it may be called within its suite: `23_Softmax`, `1/23_Softmax`; by number `23`, `1/23`."""
    names = {problem.name, problem_id(problem)}
    if problem.suite == "kernelbench" and problem_number(problem.name) is not None:
        number = problem.name.partition("_")[0]
        names |= {number, f"{problem.level}/{number}"}
    return names


def problem_from_file(path: str | Path) -> Problem:
    """Read one problem in KernelBench's format from a file.

    Raises:
        ProblemError: it cannot be read, or is no problem.
    """
    path = Path(path)
    source = _read(path)
    check_source(source, path.name)
    return Problem(name=path.stem, source=source)


def load_katas(size: Size) -> list[Problem]:
    """Load all katas at one size, by level and name."""
    problems: list[Problem] = []
    for level, folder in _levels(KATAS):
        for path in sorted(folder.glob("*.py")):
            kata = at_size(_read(path), size, path.name)
            check_source(kata.source, path.name)
            problems.append(
                Problem(
                    name=path.stem,
                    source=kata.source,
                    suite="katas",
                    level=level,
                    size=size,
                    irreducible=kata.irreducible,
                    notes=kata.summary,
                )
            )
    return problems


def load_graphs(spec: str, size: Size) -> list[Problem]:
    """Draw the generated graphs that `spec` names (`graphs:SET[:COUNT[:SEED]][/NAME]`).

    Raises:
        ProblemError: no such set or name, or a number where the set is frozen.
    """
    from kerneldojo.problems.graphs import SPLITS, Split, graph_problems

    match = _GRAPHS.match(spec)
    sets: dict[str, Split] = {split: split for split in SPLITS}
    chosen = sets.get(match["set"]) if match else None
    if match is None or chosen is None:
        raise ProblemError(f"{spec}: use graphs:SET[/NAME] or graphs:train:COUNT[:SEED]; sets are {', '.join(SPLITS)}")
    if match["count"] and chosen != "train":
        raise ProblemError(f"{spec}: only graphs:train is drawn by count and seed, the other sets are frozen")
    count = int(match["count"]) if match["count"] else None
    problems = graph_problems(chosen, count, int(match["seed"] or 0), size)
    problems = [problem for problem in problems if match["name"] in (None, problem.name)]
    if not problems:
        raise ProblemError(f"{spec}: no such problem")
    return problems


def load_kernelbench(place: Path) -> list[Problem | Refused]:
    """Load KernelBench from a folder of levels, from a folder of parquet files, or from one such file.

    Raises:
        ProblemError: there is nothing of the kind at `place`, or a table in it is malformed.
    """
    if place.is_file():
        return _from_parquet(place)
    if not place.is_dir():
        raise ProblemError(f"{place}: no such file or folder")
    if _levels(place / "KernelBench"):  # A checkout of the whole repository, or a part of it.
        place /= "KernelBench"
    folders = _levels(place)
    if folders:
        return [_from_file(path, level) for level, folder in folders for path in _by_number(folder)]
    files = sorted(place.glob("*.parquet"))
    if not files:
        raise ProblemError(f"{place}: holds neither folders level1, level2, ... nor parquet files")
    return [problem for path in files for problem in _from_parquet(path)]


def _levels(place: Path) -> list[tuple[int, Path]]:
    """Folders `level1`, `level2`, ... in order."""
    found = ((_LEVEL.fullmatch(path.name), path) for path in place.glob("level*") if path.is_dir())
    return sorted((int(match[1]), path) for match, path in found if match)


def _by_number(folder: Path) -> list[Path]:
    """Its Python files but for `__init__.py` and the like, those without a number last."""
    paths = [path for path in folder.glob("*.py") if not path.name.startswith(("_", "."))]
    return sorted(
        paths, key=lambda path: (problem_number(path.name) is None, problem_number(path.name) or 0, path.name)
    )


def _from_file(path: Path, level: int) -> Problem | Refused:
    try:
        if problem_number(path.name) is None:
            raise ProblemError("its name has no number: N_Name.py is one of KernelBench's problems")
        source = _read(path)
    except ProblemError as error:
        unread = Problem(name=path.stem, source="", suite="kernelbench", level=level)
        return Refused(unread, f"level {level}, {path.name}: {str(error).removeprefix(f'{path}: ')}")
    return _checked(Problem(name=path.stem, source=source, suite="kernelbench", level=level), path.name)


def _checked(problem: Problem, label: str) -> Problem | Refused:
    try:
        check_source(problem.source, f"level {problem.level}, {label}")
    except ProblemError as error:
        return Refused(problem, str(error))
    return problem


def _from_parquet(path: Path) -> list[Problem | Refused]:
    if path.suffix != ".parquet":
        raise ProblemError(f"{path}: not a parquet file")
    try:
        from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise ProblemError(f"{path}: reading parquet needs the extra: pip install 'kerneldojo[data]'") from None
    try:
        columns = ("code", "level", "name", "problem_id")
        rows: list[dict[str, object]] = parquet.read_table(path, columns=list(columns)).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise ProblemError(f"{path}: {str(error).splitlines()[0]}") from None
    problems: list[tuple[int, int, Problem | Refused]] = []
    for row in rows:
        code, level, name, number = (row.get(column) for column in columns)
        if not (isinstance(code, str) and isinstance(level, int) and isinstance(name, str) and isinstance(number, int)):
            raise ProblemError(f"{path}: a row lacks code, level, name or problem_id")
        name = name if name.startswith(f"{number}_") else f"{number}_{name}"
        problem = Problem(name=name, source=code, suite="kernelbench", level=level)
        problems.append((level, number, _checked(problem, name)))
    return [problem for _, _, problem in sorted(problems, key=lambda entry: entry[:2])]


def _is_meant(one: Problem | Refused, level: int | None, name: str | None) -> bool:
    problem = one.problem if isinstance(one, Refused) else one
    return level in (None, problem.level) and (name is None or name.removesuffix(".py") in problem_names(problem))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProblemError(f"{path}: not UTF-8 text") from None
