"""All figures of a run: `measure(episodes)`.

Pure: equal episodes give equal metrics, and the seed of the bootstrap is part of the configuration. Nothing here can
tell a good policy from a lucky one better than its intervals do; look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from kerneldojo.report.bootstrap import Bootstrap
from kerneldojo.report.budgets import MEASURES, BudgetCurve, budget_curves
from kerneldojo.report.costs import Cost, cost_of_episodes, cost_of_searches
from kerneldojo.report.counting import (
    AgainstCompile,
    Counts,
    CoverageFigures,
    Share,
    against_compile_of,
    counts_of,
    coverage,
    exploits,
    statuses,
    statuses_by_turn,
)
from kerneldojo.report.figures import Figure
from kerneldojo.report.measuring import Measure, Taker, measures
from kerneldojo.report.outcomes import BEST, LAST, Against, Selection, Verdicts, attempts_of
from kerneldojo.report.refusals import Refusal, refusals
from kerneldojo.report.searches import SearchFigures, search_curves, search_figures
from kerneldojo.schema import Episode, Frozen
from kerneldojo.search.record import SearchRecord


class MetricsConfig(Frozen):
    """How figures are taken."""

    thresholds: tuple[float, ...] = (0.0, 1.0, 1.2, 1.5, 2.0)
    """The p of fast_p."""
    strictly: bool = True
    """Whether fast_p asks for more than p (KernelBench's scoring), rather than at least p (Dr. Kernel's text)."""
    credited: bool = False
    """Whether a measured speedup whose 95 % interval contains 1 counts as 1, as for rewards."""
    seed: int = 0
    """Seed of the bootstrap."""
    num_draws: int = Field(default=2000, ge=100)
    """Draws of the bootstrap."""


class Metrics(Frozen):
    """Everything that can be said of a run in numbers."""

    config: MetricsConfig
    counts: Counts
    figures: tuple[Figure, ...]
    statuses: tuple[Share, ...]
    """Every turn's outcome, most frequent first."""
    statuses_by_turn: tuple[dict[str, int], ...]
    """Outcomes by turn."""
    exploits: tuple[Share, ...]
    """Turns by class of exploit; a turn may be of several."""
    coverage: CoverageFigures
    budgets: tuple[BudgetCurve, ...]
    """Figures against what was spent, by strategy."""
    timing_sources: tuple[str, ...]
    """`measured`, `modeled` or both (which must not be compared)."""
    refusals: tuple[Refusal, ...] = ()
    """Answers that cannot be judged here, now or later, by kind; they are masked."""
    against_compile: AgainstCompile | None = None
    """None where the run was not judged against torch.compile as well."""
    cost: Cost = Cost()
    """Of all turns."""
    searches: tuple[SearchFigures, ...] = ()
    """What the searches beside the run reached, by strategy."""
    search_cost: Cost | None = None
    """Of all searches beside the run; None where there are none."""

    @property
    def num_complete_problems(self) -> int:
        """Problems in avg@n and best@n, those with all n samples scored; the others are in neither."""
        n = self.counts.samples
        figure = self.find("correct", turn=BEST.label, unit="problem", aggregate="best", k=n) if n else None
        return figure.count if figure is not None else self.counts.problems

    def find(
        self,
        name: str,
        *,
        turn: str = "last turn",
        unit: str = "sample",
        aggregate: str = "all",
        k: int | None = None,
        p: float | None = None,
        failures: str | None = None,
        against: Against = "eager",
    ) -> Figure | None:
        """The figure with exactly these properties, if there is one."""
        wanted = (name, turn, unit, aggregate, k, p, failures, against)
        for one in self.figures:
            if wanted == (one.name, one.turn, one.unit, one.aggregate, one.k, one.p, one.failures, one.against):
                return one
        return None


def measure(
    episodes: Iterable[Episode],
    config: MetricsConfig | None = None,
    *,
    against_compile: Verdicts | None = None,
    searches: Sequence[SearchRecord] = (),
    planned: int | None = None,
) -> Metrics:
    """Take every figure of a run.

    Args:
        episodes: finished episodes; several attempts at each problem.
        config: how figures are taken.
        against_compile: verdicts against torch.compile on the answers that passed; None where the run has none.
        searches: made beside the run, on its problems.
        planned: how many episodes the run was asked for, where that is known.
    """
    config = config or MetricsConfig()
    episodes = list(episodes)
    attempts = attempts_of(episodes, credited=config.credited)
    bootstrap = Bootstrap(max(len(attempts.problems), 1), config.seed, config.num_draws)
    own: Against = "compile" if _baselines(episodes) == {"compile"} else "eager"
    figures = _figures(Taker(attempts, bootstrap, own), config)
    if against_compile:
        other = attempts_of(episodes, credited=config.credited, verdicts=against_compile)
        figures += _figures(Taker(other, bootstrap, "compile"), config)
    return Metrics(
        config=config,
        counts=counts_of(episodes, attempts, planned),
        figures=tuple(figures),
        statuses=statuses(attempts),
        statuses_by_turn=statuses_by_turn(attempts),
        exploits=exploits(attempts),
        coverage=coverage(attempts),
        budgets=(
            *budget_curves(Taker(attempts, bootstrap, own)),
            *search_curves(searches, MEASURES, seed=config.seed, num_draws=config.num_draws),
        ),
        timing_sources=tuple(sorted(_sources(episodes))),
        refusals=refusals(episodes),
        against_compile=None if against_compile is None else against_compile_of(episodes, against_compile),
        cost=cost_of_episodes(episodes),
        searches=tuple(
            search_figures(
                searches, config.thresholds, strictly=config.strictly, seed=config.seed, num_draws=config.num_draws
            )
        ),
        search_cost=cost_of_searches(one.spent for one in searches) if searches else None,
    )


def sizes(n: int) -> list[int]:
    """The k of best@k: powers of two up to `n`, and `n`."""
    return sorted({n, *(1 << i for i in range(n.bit_length()) if 1 << i <= n)}) if n else []


def selections(num_turns: int) -> list[Selection]:
    """Every way to choose a turn: each one, the last, the best, and the best of the first t."""
    turns = [Selection("turn", t + 1) for t in range(num_turns)]
    return [LAST, BEST, *turns, *(Selection("best", t) for t in range(1, num_turns))]


def _figures(taker: Taker, config: MetricsConfig) -> list[Figure]:
    chosen = measures(config.thresholds, strictly=config.strictly)
    n = taker.attempts.num_samples
    figures = [taker.per_sample(one, selection) for selection in selections(taker.attempts.num_turns) for one in chosen]
    return figures + [one for selection in (LAST, BEST) for one in _by_problem(taker, chosen, selection, n)]


def _by_problem(taker: Taker, chosen: Sequence[Measure], selection: Selection, n: int) -> list[Figure]:
    """avg@n and best@k of what is a plain mean (a maximum of logarithms would estimate something else)."""
    plain = [one for one in chosen if one.name != "speedup geometric" and one.failures != "left out"]
    figures = [taker.per_problem(one, selection, "average", n) for one in plain] if n else []
    return figures + [taker.per_problem(one, selection, "best", k) for one in plain for k in sizes(n)]


def _baselines(episodes: Sequence[Episode]) -> set[str]:
    return {
        turn.evaluation.protocol.baseline
        for episode in episodes
        for turn in episode.turns
        if turn.evaluation is not None and turn.evaluation.correct
    }


def _sources(episodes: Sequence[Episode]) -> set[str]:
    return {
        turn.evaluation.timing.source
        for episode in episodes
        for turn in episode.turns
        if turn.evaluation is not None and turn.evaluation.timing.source is not None
    }
