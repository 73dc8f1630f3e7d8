"""One number for a whole episode, for trainers that want one: they know trajectories, not turns."""

from __future__ import annotations

from typing import Literal

from kerneldojo.episodes import config_of
from kerneldojo.episodes.steps import NOTHING
from kerneldojo.rewards import reward
from kerneldojo.schema import Episode

Credit = Literal["best", "last", "mean", "sum"]
"""Which of the turns' rewards is the episode's. `best` is what a user keeps in the end; `last` makes a later turn that
breaks the kernel cost something; `sum` also pays for being right early."""


def episode_reward(episode: Episode, credit: Credit) -> float | None:
    """The reward of an episode.

    Args:
        episode: need not have ended.
        credit: how the turns' rewards become one.

    Returns:
        None where a turn was masked (a fault of ours): then nothing can be said of the whole. An episode without any
        turn earns what an answer without code does.
    """
    if not episode.turns:
        return reward(NOTHING, config_of(episode).reward).value
    earned = [turn.reward for turn in episode.turns if turn.reward is not None]
    if len(earned) < len(episode.turns):
        return None
    match credit:
        case "best":
            return max(earned)
        case "last":
            return earned[-1]
        case "mean":
            return sum(earned) / len(earned)
        case "sum":
            return sum(earned)


def best_turn_figures(episode: Episode) -> dict[str, float]:
    """What to log of an episode: `correct`, `exploit` (0 or 1), and of the best correct turn `speedup` and `coverage`.

    A figure that nobody measured is absent, never zero.
    """
    verdicts = [turn.evaluation for turn in episode.turns if turn.evaluation is not None]
    passed = [verdict for verdict in verdicts if verdict.correct]
    figures = {"correct": float(bool(passed)), "exploit": float(any(verdict.exploits for verdict in verdicts))}
    timed = [verdict for verdict in passed if verdict.speedup is not None]
    best = max(timed, key=lambda verdict: verdict.speedup or 0.0, default=None)
    if best is not None:
        figures["speedup"] = best.speedup or 0.0
        if best.coverage is not None:
            figures["coverage"] = best.coverage
    return figures
