"""Secret draws, many at once.

A round of windows is planned by thousands of numbers that nobody may guess: what its inputs are made of, where they
change last, which bytes of its outputs are read. All of them are the system's own, so that what a candidate finds out
about some tells it nothing of the next.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def uniforms(count: int) -> npt.NDArray[np.float64]:
    """So many numbers in [0, 1), of 53 bits each."""
    bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return np.multiply(bits >> np.uint64(11), 2.0**-53, dtype=np.float64)


def below(limits: Integers | int, count: int) -> Integers:
    """So many whole numbers from 0 to below `limits`, one for all or one each; less than 2**53."""
    return (uniforms(count) * limits).astype(np.int64)


def order(count: int) -> Integers:
    """The numbers from 0 to below `count` in a secret order."""
    return np.argsort(uniforms(count))
