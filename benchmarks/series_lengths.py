"""How long series of windows are, and how sharp they end: rounds, calls a window, the interval of the figure.

    PYTHONPATH=src python benchmarks/series_lengths.py --at-once 4 8

A series ends when the figure is sharp, or when its time is up (`devices.cuda.window_rounds.Effort`). The more calls a
window has room for (`judging.division`), the sooner it is sharp. Told for each number of verdicts at once: the rate,
how long each is in windows, input sets, rounds, and in how many series the candidate's figure became as sharp as asked.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import cases
from judged import warmed, watch_windows
from options import options

from kerneldojo.devices.cuda import trials
from kerneldojo.schema.pace import Pace


@dataclass(frozen=True)
class Ended:
    """One series."""

    num_sets: int
    num_rounds: int
    seconds: float
    error: float
    """Half the candidate's interval over its figure."""
    is_sharp: bool
    is_told: bool
    """Whether the figure is by the candidate's own "done", which is sharper, and which the judge's clock bore out."""


ENDED: list[Ended] = []


def watch_series() -> None:
    """Note each series of this process as it ends."""
    run = trials.run

    def noted(stopwatch: Any, sides: Any, inputs: Any, device: Any, effort: Any, **others: Any) -> Any:
        found = run(stopwatch, sides, inputs, device, effort, **others)
        if (line := found.fitted.get("contestant")) is not None:
            is_sharp = line.relative_error <= effort.target_error
            ENDED.append(
                Ended(inputs.count, found.num_rounds, found.seconds, line.relative_error, is_sharp, line.is_told)
            )
        return found

    trials.run = noted


def show(at_once: int, num: int, seconds: float, open_seconds: float, statuses: dict[str, int]) -> None:
    print(f"{at_once} at once, {statuses}: {60 * num / seconds:.1f} a minute, {open_seconds / num:.3f} s in windows")
    if len(ENDED) < 2:
        print("  no series: only on a GPU is there one for each verdict", flush=True)
        return
    for name, values in (
        ("input sets", [ended.num_sets for ended in ENDED]),
        ("rounds", [ended.num_rounds for ended in ENDED]),
        ("ms", [1000 * ended.seconds for ended in ENDED]),
        ("half interval, %", [100 * ended.error for ended in ENDED]),
    ):
        quarters = statistics.quantiles(values, n=4)
        print(f"  {name}: mean {statistics.mean(values):.1f}, quarters {', '.join(f'{q:.1f}' for q in quarters)}")
    num_sharp, num_told = sum(ended.is_sharp for ended in ENDED), sum(ended.is_told for ended in ENDED)
    print(f"  of {len(ENDED)} series {num_sharp} as sharp as asked, {num_told} by what the candidate told", flush=True)


def main() -> None:
    parser = options(__doc__, at_once=8, num=64)
    parser.add_argument("--contexts-ahead", type=int, default=Pace().contexts_ahead)
    arguments = parser.parse_args()
    watch_series()
    spans: list[float] = []
    watch_windows(time.monotonic, lambda begun: spans.append(time.monotonic() - begun))
    pace = Pace(contexts_ahead=arguments.contexts_ahead)
    for at_once in arguments.at_once:
        with warmed(cases(arguments.size), arguments.device, at_once, pace) as judged:
            ENDED.clear()
            spans.clear()
            start = time.monotonic()
            statuses = judged(arguments.num)
            show(at_once, arguments.num, time.monotonic() - start, sum(spans), dict(statuses))


if __name__ == "__main__":
    main()
