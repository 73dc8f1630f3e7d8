"""Searches beside a run: what each strategy reached with its budget, and what a part of the budget would have reached.

What a search announces was judged again after it was chosen, so that its figures are stricter than those of the run's
own attempts: compare strategies with each other. All figures are over the problems that every strategy searched; a
problem that cannot be judged is among none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np

from kerneldojo.report.bootstrap import Bootstrap
from kerneldojo.report.budgets import BudgetCurve, BudgetPoint
from kerneldojo.report.costs import Cost, cost_of_searches
from kerneldojo.report.figures import Figure
from kerneldojo.report.measuring import Measure, is_correct, is_fast, speedup
from kerneldojo.report.outcomes import Cell
from kerneldojo.schema import Frozen
from kerneldojo.search.budget import Budget
from kerneldojo.search.record import SearchRecord

Group = Sequence[SearchRecord]
"""One problem's searches by one strategy, with several seeds."""


class SearchFigures(Frozen):
    """What one strategy reached with its whole budget."""

    strategy: str
    budget: Budget
    """Of each search; of several budgets the first."""
    searches: int
    problems: int
    """That all strategies of the run searched."""
    best: float | None
    """Best speedup that was confirmed, over all of them; None if nothing passed twice."""
    cost: Cost
    """Of all of them together."""
    figures: tuple[Figure, ...]
    """Per problem: correct, fast_p, mean speedup with failures as 0."""


def search_figures(
    records: Sequence[SearchRecord],
    thresholds: Sequence[float],
    *,
    strictly: bool = True,
    seed: int = 0,
    num_draws: int = 2000,
) -> list[SearchFigures]:
    """The figures of each strategy, in the order in which they first searched."""
    fast = [Measure("fast", is_fast(p, strictly=strictly), p=p) for p in thresholds]
    measures = [Measure("correct", is_correct), *fast, Measure("speedup mean", speedup("zero"), failures="zero")]
    found: list[SearchFigures] = []
    for strategy, groups in _by_strategy(records).items():
        bootstrap = Bootstrap(len(groups), seed, num_draws)
        all_of_them = [record for group in groups for record in group]
        found.append(
            SearchFigures(
                strategy=strategy,
                budget=all_of_them[0].budget,
                searches=len(all_of_them),
                problems=len(groups),
                best=max((one.speedup for one in all_of_them if one.speedup is not None), default=None),
                cost=cost_of_searches(one.spent for one in all_of_them),
                figures=tuple(_figure(groups, one, _in_the_end, bootstrap) for one in measures),
            )
        )
    return found


def search_curves(
    records: Sequence[SearchRecord], measures: Sequence[Measure], *, seed: int = 0, num_draws: int = 2000
) -> list[BudgetCurve]:
    """One curve of `measures` for each strategy; a search that has ended stays where it is."""
    curves: list[BudgetCurve] = []
    for strategy, groups in _by_strategy(records).items():
        bootstrap = Bootstrap(len(groups), seed, num_draws)
        points = tuple(_point(groups, calls, measures, bootstrap) for calls in _counts(groups))
        curves.append(BudgetCurve(strategy=f"{strategy}: judged again", points=points))
    return curves


def _by_strategy(records: Sequence[SearchRecord]) -> dict[str, list[Group]]:
    """The searches of each strategy, problem by problem, over the problems that all strategies searched."""
    found: dict[str, dict[str, list[SearchRecord]]] = {}
    for record in records:
        if not record.refused:
            found.setdefault(record.strategy, {}).setdefault(record.problem_hash, []).append(record)
    common = [problem for problem in next(iter(found.values()), {}) if all(problem in one for one in found.values())]
    return {strategy: [one[problem] for problem in common] for strategy, one in found.items()} if common else {}


def _counts(groups: Sequence[Group]) -> list[int]:
    """Calls at which a curve has a point; none beyond the smallest budget."""
    records = [record for group in groups for record in group]
    longest = max(len(record.speedups) for record in records)
    longest = min([longest, *(record.budget.calls for record in records if record.budget.calls is not None)])
    return sorted({*range(1, min(longest, 16) + 1), *range(20, longest + 1, 4), longest} - {0})


def _point(groups: Sequence[Group], calls: int, measures: Sequence[Measure], bootstrap: Bootstrap) -> BudgetPoint:
    verdicts = [record.spent_by(calls, "verdicts") for group in groups for record in group]
    tokens = [record.spent_by(calls, "tokens") for group in groups for record in group]
    return BudgetPoint(
        calls=calls,
        figures=tuple(_figure(groups, one, lambda record: record.announced(calls), bootstrap) for one in measures),
        verdicts=_mean(verdicts),
        tokens=_mean(tokens) or None,
    )


def _figure(
    groups: Sequence[Group], measure: Measure, announced: Callable[[SearchRecord], float], bootstrap: Bootstrap
) -> Figure:
    """A measure of what each search announced; a problem's searches with several seeds count as their mean."""
    values: list[float] = []
    for group in groups:
        values.append(mean(measure.value(_cell(announced(record))) or 0.0 for record in group))
    found = bootstrap.ratio(np.array(values), np.ones(len(values)), bounds=measure.bounds)
    assert found is not None, "there is at least one problem"
    value, low, high = found
    return Figure(
        name=measure.name,
        value=value,
        low=low,
        high=high,
        unit="problem",
        turn="best of history",
        aggregate="best",
        p=measure.p,
        failures=measure.failures,
        count=len(values),
    )


def _cell(speedup: float) -> Cell:
    """What a search announces, as the measures of a run's answers take it."""
    return Cell("passed", True, True, speedup) if speedup > 0 else Cell("incorrect", True)


def _in_the_end(record: SearchRecord) -> float:
    return record.speedup or 0.0


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None
