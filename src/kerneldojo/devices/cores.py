"""Which of a machine's cores go with which of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def cores_of_gpus(num_gpus: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """An even share of neighbouring cores for the worker of each GPU, so that none disturbs another's timing."""
    ordered = sorted(cores)
    bounds = [len(ordered) * position // num_gpus for position in range(num_gpus + 1)]
    return [tuple(ordered[start:stop]) for start, stop in pairwise(bounds)]
