"""Series of windows as a stopwatch would have timed them, and what of a bench is asked about them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.series import Series

L2_BYTES = 50 << 20
BANDWIDTH = 4.8e12
"""Bytes a second, of an H200's memory."""


def series(
    per_call_us: float,
    prime_us: float = 110.0,
    *,
    noise: float = 0.0,
    prime_noise: float = 0.0,
    seed: int = 0,
    **more: Any,
) -> Series:
    """Windows of calls that take so long, with 60 us around them; `more` is what a series has beside windows."""
    random = np.random.default_rng(seed)
    lengths = [1, 4, 8, 16] * 12
    return Series(
        windows=[
            Window(
                length=length,
                wall_us=60.0 + per_call_us * length + random.normal(0, noise),
                prime_us=prime_us + random.normal(0, prime_noise),
                turn=turn,
                is_warmed=True,
            )
            for turn, length in enumerate(lengths)
        ],
        **more,
    )


def bench(reference_times: Any) -> Any:
    """An H200's."""
    return SimpleNamespace(
        reference_times=reference_times,
        clock=SimpleNamespace(peak_bandwidth=lambda: BANDWIDTH),
        stopwatch=SimpleNamespace(l2_bytes=L2_BYTES),
    )
