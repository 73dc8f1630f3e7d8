"""A fixed kernel's time, with contexts being made and destroyed beside it and without: a probe of `throughput.py`.

Arguments: device, and seconds of each part. `harmless` says whether the kernel's figure stayed where it was. That it
may not is why a verdict's contexts wait until the windows of others have closed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

CHURN = Path(__file__).with_name("churn.py")
LENGTH = 40
"""Calls of a window."""
GROUP = 25
"""A verdict's figure is the middle of some so many windows: that is what must not move."""


def windows(values: torch.Tensor, seconds: float) -> list[float]:
    """Microseconds a call, window by window, as the judge's clock reads them."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        wait_for(values)
        begun = time.perf_counter_ns()
        for _ in range(LENGTH):
            torch.sigmoid(values)
        wait_for(values)
        found.append((time.perf_counter_ns() - begun) / 1000 / LENGTH)
    return found


def wait_for(values: torch.Tensor) -> None:
    if values.is_cuda:
        torch.cuda.synchronize()


def described(found: list[float]) -> dict[str, Any]:
    groups = [statistics.median(found[at : at + GROUP]) for at in range(0, max(1, len(found) - GROUP + 1), GROUP)]
    ordered, middle = sorted(found), statistics.median(found)
    return {
        "windows": len(found),
        "median_us": round(middle, 3),
        "p95_us": round(ordered[int(0.95 * len(found))], 3),
        "worst_us": round(ordered[-1], 3),
        "figures": len(groups),
        "spread_of_figures": round((max(groups) - min(groups)) / middle, 5),
    }


def disturbed(values: torch.Tensor, device: str, seconds: float, at_once: int) -> dict[str, Any]:
    process = subprocess.Popen([sys.executable, str(CHURN), str(at_once), device], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # It has made its first, so its imports are done.
    found = windows(values, seconds)
    process.terminate()
    made = len(process.stdout.read().split())
    process.wait()
    return described(found) | {"contexts_meanwhile": made}


def main() -> None:
    device, seconds = sys.argv[1], float(sys.argv[2])
    values = torch.randn((1 << 24) if device != "cpu" else (1 << 14), device=device)
    windows(values, min(0.5, seconds))
    before = windows(values, seconds)
    told = {at_once: disturbed(values, device, seconds, at_once) for at_once in (1, 4)}
    quiet = described(before + windows(values, seconds))
    shifts = {at_once: round(found["median_us"] / quiet["median_us"] - 1, 5) for at_once, found in told.items()}
    is_harmless = all(abs(shift) < 0.01 for shift in shifts.values()) and all(
        found["spread_of_figures"] < quiet["spread_of_figures"] + 0.01 for found in told.values()
    )
    found = {"device": device, "quiet": quiet, "disturbed": told, "shift_of_median": shifts, "harmless": is_harmless}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
