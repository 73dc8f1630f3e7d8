"""One seed for every generator that a module may draw from, the same on both sides."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators.

    `torch.manual_seed` also seeds devices that nobody here has, and notes a stack trace for each, call after call.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if not torch.cuda._is_in_bad_fork():  # pyright: ignore[reportPrivateUsage]
        torch.cuda.manual_seed_all(seed)
