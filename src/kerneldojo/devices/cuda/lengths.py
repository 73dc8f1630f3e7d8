"""How many calls the windows of a series have: secret, and spread so that a line through them is sharp."""

from __future__ import annotations

import math
from collections.abc import Sequence


def plan_lengths(longest: int, count: int, draws: Sequence[float]) -> list[int]:
    """Lengths for `count` windows: a third of one call, a third near `longest`, the rest anywhere between.

    Of three windows in a row each kind has one, so that a series that ends early has enough of each.

    Args:
        longest: most calls that a window may have.
        count: windows.
        draws: at least `2 * count` secret numbers in [0, 1).
    """
    if longest < 2:
        return [1] * count
    lengths: list[int] = []
    for index in range(count):
        draw = draws[index]
        if index % 3 == 0:
            lengths.append(1)
        elif index % 3 == 1:
            lengths.append(longest - int(draw * max(1, longest // 8)))
        else:
            lengths.append(2 + int(draw * (longest - 1)))
    order = sorted(range(count), key=lambda index: (index // 3, draws[count + index]))
    return [lengths[index] for index in order]


def longest_window(per_call_us: Sequence[float], num_sets: int, target_us: float = 3000.0) -> int:
    """How many calls the longest window should have: long enough to drown the noise, one input set a call.

    What disturbs a window does not grow with it, so the longer the better, up to `target_us` of the quickest side and
    three times that of all sides together.

    Args:
        per_call_us: what a call of each side takes, about.
        num_sets: input sets that there are.
        target_us: microseconds.
    """
    quickest, together = max(min(per_call_us), 1e-3), max(sum(per_call_us), 1e-3)
    wanted = math.ceil(min(target_us / quickest, 3 * target_us / together))
    return max(2, min(num_sets, max(wanted, 4)))
