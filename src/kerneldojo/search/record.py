"""What a run keeps of a search: its curve by calls, under the rule that an answer counts as its second verdict says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from kerneldojo.files import append_line, read_lines
from kerneldojo.schema import Frozen
from kerneldojo.search.budget import Budget, Spent
from kerneldojo.search.selection import Winner, curve
from kerneldojo.search.spending import Found

SEARCHES = "searches.jsonl"
"""File of a run folder, for the searches of its problems."""


class SearchRecord(Frozen):
    """One search of one problem."""

    strategy: str
    policy: str
    problem: str
    """Name, with suite and level."""
    problem_hash: str
    seed: int
    budget: Budget
    spent: Spent
    speedups: tuple[float, ...]
    """What would have been announced had the budget been 1, 2, ... calls; 0 where nothing had passed twice."""
    speedup: float | None
    """What is announced; None if nothing passed twice."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What is searched only once in a run."""
        return self.strategy, self.problem_hash, self.seed


def record_of(found: Found, winner: Winner, *, problem: str, seed: int) -> SearchRecord:
    """The record of a search whose whole curve was judged again (`choose(..., whole_curve=True)`).

    After the last answer the curve stays where it is: a strategy that stops early does not lose what it found.
    """
    calls = found.budget.calls or found.spent.calls
    root = found.tree.root.episode
    return SearchRecord(
        strategy=found.strategy,
        policy=root.policy,
        problem=problem,
        problem_hash=root.problem.hash,
        seed=seed,
        budget=found.budget,
        spent=found.spent,
        speedups=tuple(curve(found, winner.finalists, range(1, calls + 1))),
        speedup=winner.speedup,
    )


def append(record: SearchRecord, path: Path) -> None:
    """Add a record to a file; it is on disk when this returns, and what a killed process left of a line is cut.

    Raises:
        OSError: it cannot be written.
    """
    append_line(path, record.model_dump_json().encode())


def read(path: Path) -> Iterator[SearchRecord]:
    """The records of a file; an unfinished last line is not one.

    Raises:
        ValueError: another line is no record (in one line).
    """
    for number, line in read_lines(path):
        try:
            yield SearchRecord.model_validate_json(line)
        except ValidationError:
            raise ValueError(f"{path}: line {number} is no record of a search") from None
