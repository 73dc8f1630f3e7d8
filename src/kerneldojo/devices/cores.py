"""Which of a machine's cores go with which of its GPUs, which are threads of one core, and which are left to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores_of_gpus(num_gpus: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """An even share of neighbouring cores for the worker of each GPU, so that none disturbs another's timing."""
    ordered = sorted(cores)
    bounds = [len(ordered) * position // num_gpus for position in range(num_gpus + 1)]
    return [tuple(ordered[start:stop]) for start, stop in pairwise(bounds)]


def whole_cores(cores: Iterable[int], siblings: Callable[[int], set[int]] | None = None) -> list[frozenset[int]]:
    """`cores`, which are threads to the system, in groups of those that share an execution unit, by their numbers.

    Virtual machines often hide which threads belong together: where every thread is said to be a core, neighbours are
    taken to be one.

    Args:
        cores: those to group.
        siblings: the threads of the core that one is of; asked of the system by default.
    """
    own = set(cores)
    told = {core: {core} | (siblings or siblings_of)(core) for core in own}
    if all(len(group) == 1 for group in told.values()):
        told = {core: {core, core ^ 1} for core in own}
    return sorted({frozenset(group & own) for group in told.values()}, key=min)


def siblings_of(core: int) -> set[int]:
    """The threads of the core that `core` is one of, as far as the system tells."""
    try:
        text = Path(SIBLINGS.format(core)).read_text()
        ends = [part.split("-") for part in text.strip().split(",")]
        return {number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)}
    except (OSError, ValueError):
        return {core}


def all_but(num: int, cores: Iterable[int], siblings: Callable[[int], set[int]] | None = None) -> tuple[int, ...]:
    """`cores` but for the first `num`, and for whatever shares an execution unit with those.

    Args:
        num: how many are left out, if not a few more.
        cores: of these.
        siblings: as for `whole_cores`.
    """
    kept: list[int] = []
    num_left = 0
    for group in whole_cores(cores, siblings):
        if num_left < num:
            num_left += len(group)
        else:
            kept += group
    return tuple(sorted(kept))
