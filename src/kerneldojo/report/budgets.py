"""What more calls buy, by strategy, from one run.

A run of n attempts of T turns holds several strategies of spending calls, all under one rule of selection (the best
answer by the judge's verdict stands for what was spent):

- *parallel*: k first answers, k calls; expected best of k of the n first turns.
- *serial*: one attempt of t turns, t calls; the best of its history.
- *parallel x serial*: k whole attempts of T turns, k T calls.

Without serial play beside parallel sampling under the same budget, a gain by turn is no evidence that feedback helps.

Searches (`kerneldojo.search`) that were made beside the run have curves of their own, under a stricter rule: what they
announce was judged again after it was chosen. Compare them with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerneldojo.report.bootstrap import Bootstrap
from kerneldojo.report.figures import Figure
from kerneldojo.report.measuring import Measure, Taker, is_correct, is_fast, speedup
from kerneldojo.report.outcomes import BEST, Selection
from kerneldojo.schema import Frozen
from kerneldojo.search.record import SearchRecord

MEASURES = (
    Measure("correct", is_correct),
    Measure("fast", is_fast(1.0), p=1.0),
    Measure("speedup mean", speedup("zero"), failures="zero"),
)
"""What is drawn against the number of calls; all per problem, failures as 0."""


class BudgetPoint(Frozen):
    """What a number of calls gives."""

    calls: int
    """Answers asked of the policy, for one problem."""
    figures: tuple[Figure, ...]


class BudgetCurve(Frozen):
    """One strategy."""

    strategy: str
    points: tuple[BudgetPoint, ...]


def budget_curves(taker: Taker) -> list[BudgetCurve]:
    """Parallel, serial, and parallel x serial, as far as the attempts go."""
    n, num_turns = taker.attempts.num_samples, taker.attempts.num_turns
    if not n or not num_turns:
        return []
    counts = sorted({*range(1, min(n, 16) + 1), *range(32, n + 1, 16), n})
    curves = [
        BudgetCurve(
            strategy="parallel: first answers alone",
            points=tuple(_point(taker, k, Selection("best", 1), k) for k in counts),
        )
    ]
    if num_turns > 1:
        turns = range(1, num_turns + 1)
        curves.append(
            BudgetCurve(
                strategy="serial: one attempt, turn by turn",
                points=tuple(_point(taker, t, Selection("best", t), 1) for t in turns),
            )
        )
        curves.append(
            BudgetCurve(
                strategy=f"parallel × serial: whole attempts of {num_turns} turns",
                points=tuple(_point(taker, k * num_turns, BEST, k) for k in counts),
            )
        )
    return curves


def _point(taker: Taker, calls: int, selection: Selection, k: int) -> BudgetPoint:
    return BudgetPoint(calls=calls, figures=tuple(taker.per_problem(one, selection, "best", k) for one in MEASURES))


def search_curves(records: Sequence[SearchRecord], seed: int = 0, num_draws: int = 2000) -> list[BudgetCurve]:
    """One curve for each strategy that searched, over the problems that all of them searched."""
    strategies = list(dict.fromkeys(record.strategy for record in records))
    by_key: dict[tuple[str, str], list[SearchRecord]] = {}
    for record in records:
        by_key.setdefault((record.strategy, record.problem_hash), []).append(record)
    common = [
        problem
        for problem in dict.fromkeys(record.problem_hash for record in records)
        if all((strategy, problem) in by_key for strategy in strategies)
    ]
    if not common:
        return []
    bootstrap = Bootstrap(len(common), seed, num_draws)
    curves: list[BudgetCurve] = []
    for strategy in strategies:
        groups = [by_key[strategy, problem] for problem in common]
        longest = min(len(record.speedups) for group in groups for record in group)
        # (problems, calls): a problem's searches with several seeds are averaged within each figure.
        points = tuple(_search_point(groups, calls, bootstrap) for calls in _counts(longest))
        curves.append(BudgetCurve(strategy=f"{strategy}: judged again", points=points))
    return curves


def _counts(longest: int) -> list[int]:
    return sorted({*range(1, min(longest, 16) + 1), *range(20, longest + 1, 4), longest} - {0})


def _search_point(groups: Sequence[Sequence[SearchRecord]], calls: int, bootstrap: Bootstrap) -> BudgetPoint:
    speedups = [np.array([record.speedups[calls - 1] for record in group]) for group in groups]
    values = (
        [float((one > 0).mean()) for one in speedups],
        [float((one > 1).mean()) for one in speedups],
        [float(one.mean()) for one in speedups],
    )
    figures: list[Figure] = []
    for measure, column in zip(MEASURES, values, strict=True):
        found = bootstrap.ratio(np.array(column), np.ones(len(column)))
        assert found is not None, "there is at least one problem"
        value, low, high = found
        figures.append(
            Figure(
                name=measure.name,
                value=value,
                low=low,
                high=high,
                unit="problem",
                turn="best of history",
                aggregate="best",
                p=measure.p,
                failures=measure.failures,
                count=len(column),
            )
        )
    return BudgetPoint(calls=calls, figures=tuple(figures))
