"""Looks at problems that are not learned from: how good the weights are, and which were the best so far."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kerneldojo.episodes import seed_of
from kerneldojo.schema import Problem
from kerneldojo.training.config import RLConfig
from kerneldojo.training.playing import Player
from kerneldojo.training.steps import by_turn, summary


class HeldOut:
    """The held-out problems, and what came out when they were played."""

    def __init__(self, config: RLConfig, problems: list[Problem], player: Player) -> None:
        """Not looked at yet. Without problems no look is ever due."""
        self.best = (-1.0, -1)
        """The best score (`score_of`) and its step."""
        self._config, self._problems, self._player = config, problems, player
        self._looked = -1

    def is_due(self, step: int) -> bool:
        """Whether to look at the weights after `step` steps; once is enough."""
        is_time = step % self._config.evaluation.every == 0 or step == self._config.steps
        return bool(self._problems) and is_time and self._looked != step

    def look(self, step: int) -> tuple[dict[str, Any], bool]:
        """Play them all with the sampler's weights; the journal's record, and whether it is the best so far."""
        settings, player = self._config.evaluation, self._player
        play = self._config.play
        if settings.num_turns is not None:
            play = play.model_copy(update={"num_turns": settings.num_turns})
        start, waited = time.perf_counter(), player.seconds["wait"]
        played = player.begin(
            self._problems,
            play,
            samples=settings.num_samples,
            temperature=settings.temperature,
            seed=seed_of("evaluation", self._config.seed, ""),
            label="held-out",
        )
        player.finish(played)
        results = summary(played.episodes)
        record = {
            "step": step,
            "evaluation": {**results, "turns": by_turn(played.episodes)},
            "verdicts": {"asked": played.num_asked, "judged": played.num_judged},
            "seconds": {"evaluate": time.perf_counter() - start, "wait": player.seconds["wait"] - waited},
        }
        return record, self._note(step, score_of(results))

    def scores(self, records: Sequence[Mapping[str, Any]], step: int) -> list[float]:
        """What a journal says of the weights after `step` steps."""
        return [score_of(one["evaluation"]) for one in records if one["step"] == step and "evaluation" in one]

    def recall(self, scores: Sequence[float], step: int) -> None:
        """Take up earlier looks at the weights of now: a run that was stopped while it looked has yet to look."""
        for score in scores:
            self._note(step, score)

    def _note(self, step: int, score: float) -> bool:
        self._looked = step
        if score <= self.best[0]:
            return False
        self.best = (score, step)
        return True


def score_of(results: Mapping[str, Any]) -> float:
    """What weights are chosen by: the share of all answers of an evaluation that are 1.2 times as fast.

    The log's figure is over those that were judged. By that a look at which the judge failed for all but one lucky
    answer would be the best of the run.
    """
    count = results["num_samples"]
    return float(results["fast_1.2"]) * (count - results["num_masked"]) / max(1, count)
