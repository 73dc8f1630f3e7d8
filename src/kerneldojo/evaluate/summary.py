"""What came out of a run, in figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable

from pydantic import Field

from kerneldojo.evaluate.results import Record
from kerneldojo.problems import problem_number
from kerneldojo.schema import Frozen


class ProblemSummary(Frozen):
    """One problem of a run."""

    name: str
    """With its level (`1/23_Softmax`), and the first digits of its content hash where problems of one name differ."""
    num_judged: int
    num_passed: int
    best_speedup: float | None = None


class Summary(Frozen):
    """A run in figures; speedups are those of candidates that passed and were timed."""

    num_asked: int
    """Candidates in the input."""
    num_finished: int
    """Those of them that have a verdict."""
    num_faults: int = 0
    """Faults of ours in this run: candidates without a verdict that the next run will try again."""
    num_elsewhere: int = 0
    """Verdicts in the folder on candidates that are not in the input."""
    statuses: dict[str, int]
    exploits: dict[str, int]
    num_timed: int = 0
    median_speedup: float | None = None
    geometric_speedup: float | None = None
    num_faster: int = 0
    """Candidates with a speedup above 1."""
    median_coverage: float | None = None
    timing_sources: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    """Mean seconds a verdict in each stage of judging."""
    problems: tuple[ProblemSummary, ...] = ()
    num_judged_now: int = 0
    seconds: float = 0.0
    """Duration of this run, and how many verdicts it reached."""


def summarise(
    records: Iterable[Record], ids: Collection[str], *, num_judged_now: int = 0, num_faults: int = 0, seconds: float = 0
) -> Summary:
    """Figures over those of `records` that are among `ids`."""
    asked = set(ids)
    statuses, exploits, stages, num_elsewhere = Counter[str](), Counter[str](), Counter[str](), 0
    speedups: list[float] = []
    coverages: list[float] = []
    sources: set[str] = set()
    devices: set[str] = set()
    problems: dict[tuple[int, int, str, str], list[tuple[bool, float | None]]] = {}
    for record in records:
        if record.id not in asked:
            num_elsewhere += 1
            continue
        found = record.evaluation
        statuses[found.status.value] += 1
        exploits.update({exploit.name for exploit in found.exploits})
        stages.update(found.stages)
        devices.update(filter(None, [found.device]))
        problems.setdefault(_place(record), []).append((found.correct, found.speedup))
        sources.update(filter(None, [found.timing.source]))
        if found.speedup is not None and math.isfinite(found.speedup) and found.speedup > 0:
            speedups.append(found.speedup)
        if found.correct and found.coverage is not None:
            coverages.append(found.coverage)
    total = statuses.total()
    names = Counter(name for *_, name, _ in problems)
    return Summary(
        num_asked=len(asked),
        num_finished=total,
        num_faults=num_faults,
        num_elsewhere=num_elsewhere,
        statuses=dict(statuses.most_common()),
        exploits=dict(exploits.most_common()),
        num_timed=len(speedups),
        median_speedup=statistics.median(speedups) if speedups else None,
        geometric_speedup=statistics.geometric_mean(speedups) if speedups else None,
        num_faster=sum(speedup > 1 for speedup in speedups),
        median_coverage=statistics.median(coverages) if coverages else None,
        timing_sources=tuple(sorted(sources)),
        devices=tuple(sorted(devices)),
        stage_seconds={name: value / total for name, value in stages.most_common()} if total else {},
        problems=tuple(
            _problem(name if names[name] == 1 else f"{name} ({content[:8]})", found)
            for (*_, name, content), found in sorted(problems.items())
        ),
        num_judged_now=num_judged_now,
        seconds=seconds,
    )


def _place(record: Record) -> tuple[int, int, str, str]:
    """Where a problem stands in the table: by level and number, as its suite has them; its name there, and its hash."""
    name = record.problem if record.level is None else f"{record.level}/{record.problem}"
    return record.level or 0, problem_number(record.problem) or 0, name, record.problem_hash


def _problem(name: str, found: list[tuple[bool, float | None]]) -> ProblemSummary:
    best = max((speedup for _, speedup in found if speedup is not None), default=None)
    num_passed = sum(correct for correct, _ in found)
    return ProblemSummary(name=name, num_judged=len(found), num_passed=num_passed, best_speedup=best)
