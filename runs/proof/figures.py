"""From rows to what is compared: a figure for each seed and problem, and differences of two arms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from proof.bootstrap import Floats
from proof.tables import UNSCORED, Row

Measure = Callable[[Row], float]
MEASURES: dict[str, Measure] = {
    "fast@1.2": lambda row: float((row.speedup or 0.0) > 1.2),
    "fast@1": lambda row: float((row.speedup or 0.0) > 1.0),
    "correct": lambda row: float(row.correct),
    "mean speedup": lambda row: row.speedup or 0.0,
    "exploits": lambda row: float(row.status == "exploit"),
    "lazy": lambda row: float(row.correct and row.coverage is not None and row.coverage < 0.3),
}
"""Figures of one answer. `mean speedup` counts failures as 0; `lazy` is right with PR below 0.3."""

Cells = Mapping[tuple[int, str], float]
"""A figure by seed and problem."""


def cells(rows: Sequence[Row], measure: str, *, way: str, turn: str) -> dict[tuple[int, str], float]:
    """Mean of a measure over the samples of each (seed, problem). `turn`: `first`, `last` or `best` of the episode.

    Verdicts that say nothing about a policy are left out. `best` takes the largest value over the turns of an episode:
    an oracle, which knows which turn was the best.
    """
    value = MEASURES[measure]
    episodes: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.way == way:
            episodes[row.seed, row.problem, row.sample].append(row)
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for (seed, problem, _), turns in episodes.items():
        turns.sort(key=lambda row: row.turn)
        scored = [value(row) for row in turns if row.status not in UNSCORED]
        if len(scored) < len(turns) or not scored:
            continue
        found[seed, problem].append({"first": scored[0], "last": scored[-1], "best": max(scored)}[turn])
    return {key: sum(values) / len(values) for key, values in found.items()}


def difference(treatment: Cells, control: Cells) -> tuple[Floats, list[int], list[str]]:
    """(seeds, problems) differences, NaN where one side is missing; with the seeds and problems of rows and columns."""
    common = sorted(set(treatment) & set(control))
    seeds, problems = sorted({seed for seed, _ in common}), sorted({problem for _, problem in common})
    matrix = np.full((len(seeds), len(problems)), np.nan)
    for seed, problem in common:
        matrix[seeds.index(seed), problems.index(problem)] = treatment[seed, problem] - control[seed, problem]
    return matrix, seeds, problems


def level(figure: Cells) -> tuple[Floats, list[int], list[str]]:
    """(seeds, problems) values of one arm, to be given an interval like a difference."""
    return difference(figure, dict.fromkeys(figure, 0.0))
