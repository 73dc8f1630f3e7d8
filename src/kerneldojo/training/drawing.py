"""Which problems a run learns from, and which of them a step is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerneldojo.schema import Problem
from kerneldojo.training.config import RLConfig
from kerneldojo.training.settings import ConfigError


def load_problems(config: RLConfig) -> tuple[list[Problem], list[Problem]]:
    """Those to learn from, and those that evaluations look at (none if the run has no evaluation).

    Raises:
        ConfigError: a suite cannot be loaded.
    """
    problems, settings = _load(config, config.problems, "problems"), config.evaluation
    held_out = _load(config, settings.problems, "evaluation.problems") if settings.problems else []
    return problems, held_out[: settings.num_problems]


def draw(problems: Sequence[Problem], step: int, count: int, seed: int) -> list[Problem]:
    """The `count` problems of the step after `step` others: a walk through all of them in an order that is shuffled
    anew each time round. It follows from its arguments alone, so that a run that goes on draws what it would have."""
    size = len(problems)
    places = range(step * count, (step + 1) * count)
    orders = {
        around: np.random.default_rng([seed, 2, around]).permutation(size)
        for around in {place // size for place in places}
    }
    return [problems[orders[place // size][place % size]] for place in places]


def _load(config: RLConfig, specs: Sequence[str], key: str) -> list[Problem]:
    from kerneldojo.problems.source import ProblemError
    from kerneldojo.problems.suite import load_suite

    try:
        return load_suite(specs, config.size)
    except ProblemError as error:
        raise ConfigError(f"{key}: {error}") from error
