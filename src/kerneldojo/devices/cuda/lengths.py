"""How many calls the windows of a series have: secret, and spread so that a line through them is sharp."""

from __future__ import annotations

import math
from collections.abc import Sequence


def plan_lengths(longest: int, count: int, draws: Sequence[float]) -> list[int]:
    """Lengths for `count` windows: a third of one call, a third near `longest`, the rest anywhere between.

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
    order = sorted(range(count), key=lambda index: draws[count + index])
    return [lengths[index] for index in order]


def longest_window(per_call_us: float, num_sets: int, target_us: float = 3000.0) -> int:
    """How many calls the longest window should have: long enough to drown the noise, one input set a call."""
    wanted = math.ceil(target_us / max(per_call_us, 1e-3))
    return max(2, min(num_sets, max(wanted, 4)))
