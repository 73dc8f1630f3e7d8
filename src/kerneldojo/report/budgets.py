"""What a larger budget buys, by strategy, from one run.

A run of n attempts of T turns holds several strategies of spending, all under one rule of selection (the best answer by
the judge's verdict stands for what was spent). Each point of a curve is so many calls, and says how many verdicts and
generated tokens they cost on average: a later turn's answer may be longer than a first one, so that what is best for a
number of calls need not be best for a number of tokens.

- *parallel*: k first answers, k calls; expected best of k of the n first turns.
- *serial*: one attempt of t turns, t calls; the best of its history.
- *parallel x serial*: k whole attempts of T turns, k T calls.

Without serial play beside parallel sampling under the same budget, a gain by turn is no evidence that feedback helps.

Searches that were made beside the run have curves of their own (`report.searches`), under a stricter rule.
"""

from __future__ import annotations

from statistics import mean

from kerneldojo.report.figures import Figure
from kerneldojo.report.measuring import Measure, Taker, is_correct, is_fast, speedup
from kerneldojo.report.outcomes import BEST, Selection
from kerneldojo.schema import Frozen

MEASURES = (
    Measure("correct", is_correct),
    Measure("fast", is_fast(1.0), p=1.0),
    Measure("speedup mean", speedup("zero"), failures="zero"),
)
"""What is drawn against the budget; all per problem, failures as 0."""


class BudgetPoint(Frozen):
    """What a number of calls gives."""

    calls: int
    """Answers asked of the policy, for one problem."""
    figures: tuple[Figure, ...]
    verdicts: float | None = None
    """Verdicts that these cost, mean over problems; None where no record was kept."""
    tokens: float | None = None
    """Generated tokens that these cost, mean over problems; None where the policy does not count them."""


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
    figures = tuple(taker.per_problem(one, selection, "best", k) for one in MEASURES)
    verdicts, tokens = _cost(taker, selection, k)
    return BudgetPoint(calls=calls, figures=figures, verdicts=verdicts, tokens=tokens)


def _cost(taker: Taker, selection: Selection, k: int) -> tuple[float | None, float | None]:
    """Expected verdicts and tokens of k attempts, as far as `selection` looks at them; mean over problems."""
    groups = [[one for one in group if selection.of(one)] for group in taker.attempts.by_problem.values()]
    groups = [group for group in groups if len(group) >= k]
    if not groups:
        return None, None
    spent = [[one.cells[: selection.t] for one in group] for group in groups]
    verdicts = [mean(sum(cell.judged for cell in cells) for cells in group) for group in spent]
    tokens = [mean(sum(cell.tokens for cell in cells) for cells in group) for group in spent]
    return k * mean(verdicts), k * mean(tokens) or None
