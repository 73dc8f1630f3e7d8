"""Which line through a side's windows spreads least? Ways to draw it, on windows of real verdicts.

    python benchmarks/lines.py                    # those of a busy H200 that made us change the line; docs/timing.md
    python benchmarks/lines.py WINDOWS.jsonl.xz

A file holds a verdict a line: `case`, `repeat` and, by side, `[length, wall_us, done_us, prime_us, undisturbed, turn]`
for each window. Of each case all windows are put together, and samples of 24 are drawn from them, a third of one call,
half of them long: how far the slopes of 400 samples lie apart is how steady a verdict is. Then each verdict is
evaluated as it was measured, with the code as it is now.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from kerneldojo.devices.cuda import fits
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.series import fits as fits_of

Array = npt.NDArray[np.float64]
BUSY = Path(__file__).parent / "results" / "h200" / "windows-busy-host.jsonl.xz"
NUM_SAMPLES = 400
NUM_WINDOWS = 24


def median_of_pairs(lengths: Array, times: Array) -> float:
    """Theil and Sen: the median slope of all pairs of windows, a pair weighing as its lengths differ."""
    first, second = np.triu_indices(len(lengths), k=1)
    differ = lengths[first] != lengths[second]
    runs = lengths[second][differ] - lengths[first][differ]
    slopes = (times[second][differ] - times[first][differ]) / runs
    order = np.argsort(slopes)
    sums = np.cumsum(np.abs(runs)[order])
    return float(slopes[order][np.argmax(sums >= sums[-1] / 2)])


def between(middle: Callable[[Array], float]) -> Callable[[Array, Array], float]:
    """From the `middle` of the windows of one call to that of the long ones."""

    def slope(lengths: Array, times: Array) -> float:
        short, long = lengths == 1, lengths >= lengths.max() / 2
        return middle((times[long] - middle(times[short])) / (lengths[long] - 1))

    return slope


WAYS: dict[str, Callable[[Array, Array], float]] = {
    "median of pairs": median_of_pairs,
    "medians": between(lambda values: float(np.median(values))),
    "quick half": between(lambda values: float(np.sort(values)[: -(-len(values) // 2)].mean())),
    "quickest fifth": between(lambda values: float(np.quantile(values, 0.2))),
    "quickest tenth": between(lambda values: float(np.quantile(values, 0.1))),
}


def drawn_again(windows: Array, column: int, generator: np.random.Generator) -> dict[str, Array]:
    """Slopes of samples by each way; `column` 2 is what a side said, 1 the judge's clock."""
    lengths = windows[:, 0]
    places = [np.flatnonzero(lengths == 1), np.flatnonzero(lengths >= lengths.max() * 0.6), np.flatnonzero(lengths > 1)]
    counts = [NUM_WINDOWS // 3, NUM_WINDOWS // 3, NUM_WINDOWS - 2 * (NUM_WINDOWS // 3)]
    slopes: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(NUM_SAMPLES):
        chosen = np.concatenate([generator.choice(place, count) for place, count in zip(places, counts, strict=True)])
        for name, way in WAYS.items():
            slopes[name].append(way(lengths[chosen], windows[chosen, column]))
    return {name: np.array(values) for name, values in slopes.items()}


def as_measured(verdicts: list[dict[str, Any]], side: str) -> str:
    """The figures that the verdicts have with the code as it is now."""
    found: list[float] = []
    for verdict in verdicts:
        series = {
            name: Series(
                [Window(w[0], w[1], undisturbed=w[4], done_us=w[2], prime_us=w[3], turn=w[5]) for w in windows],
                is_trusted=name == "reference",
            )
            for name, windows in verdict["series"].items()
        }
        fitted: dict[str, fits.Fit] = fits_of(series)
        if side in fitted:
            found.append(fitted[side].per_call_us)
    middle = float(np.median(found))
    return f"{min(found):.2f} to {max(found):.2f} us, {100 * (max(found) - min(found)) / middle:.1f} % apart"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("windows", nargs="?", type=Path, default=BUSY, help="a file of windows, packed by xz or not")
    path: Path = parser.parse_args().windows
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    verdicts: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    verdicts = [verdict for verdict in verdicts if verdict["repeat"]]  # The first of each case warms up.
    generator = np.random.default_rng(0)
    for case in dict.fromkeys(verdict["case"] for verdict in verdicts):
        of_case = [verdict for verdict in verdicts if verdict["case"] == case]
        for side in ("contestant", "reference"):
            print(f"{case}, {side}: as measured {as_measured(of_case, side)}")
            windows = np.array([w[:3] for verdict in of_case for w in verdict["series"][side]], dtype=np.float64)
            for label, column in (("said", 2), ("clock", 1)):
                for name, slopes in drawn_again(windows, column, generator).items():
                    middle = float(np.median(slopes))
                    print(f"    {label:<6} {name:<16} {middle:7.2f} us  spread {100 * slopes.std() / middle:5.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
