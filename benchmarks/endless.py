"""What kernels that never end, or take very long, cost everybody else on their device.

    PYTHONPATH=src python benchmarks/endless.py --at-once 8 --num 60 --some 2
    PYTHONPATH=src python benchmarks/endless.py --at-once 8 --num 60 --some 6 --kind naive

While a kernel without an end runs no window of anybody's finds the device idle. It runs until an inquest ends it
(`judging.inquest`), whether its candidate has `returned` or `waits` for it. A `naive` one, whose calls take a quarter
of a second, ends; while it is timed everybody else waits. Judged are the ten problems of `throughput.py`: without such
candidates, then with some, and then with these as they were once.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case, cases
from judged import WARM_NUMBERS
from options import options

from kerneldojo.devices.cuda import trials
from kerneldojo.judging import Judge, protocol
from kerneldojo.pool.worker import SWITCH_SECONDS
from kerneldojo.schema import Candidate, Evaluation

SUITE = Path(__file__).parent.parent / "tests" / "exploits"
KINDS = {
    "returned": "candidates/fault_endless_device.py",
    "waits": "candidates/fault_endless_waits.py",
    "naive": "honest/swish_one_program.py",
}


def candidate(case: Case, number: int, spacing: int, source: str) -> Candidate:
    """The one of this number for its case, or where it is the turn of one of those that are asked about, that."""
    if case.problem.name == "swish" and spacing and number % spacing == 0:
        return Candidate(source=f"{source}\n# {number}\n")
    return case.candidate(number, "triton")


def as_it_was(kind: str, timeout: float) -> None:
    """No bound for kernels that do not end; as many windows for whoever is hopeless as for anybody else."""
    if kind == "naive":
        trials.HOPELESS = math.inf
    else:
        protocol.LEAST_DEVICE_SECONDS = 2 * timeout


def main() -> None:
    """Judge by turns and print."""
    parser = options(__doc__, at_once=8, num=60)
    parser.add_argument("--kind", choices=list(KINDS), default="returned")
    parser.add_argument("--some", type=int, default=2, help="so many candidates of that kind")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a candidate has")
    parser.add_argument("--as-it-was", action="store_true", help="also as it was once: all of their time, or windows")
    arguments = parser.parse_args()
    source = (SUITE / KINDS[arguments.kind]).read_text()
    chosen, at_once = cases(arguments.size), arguments.at_once[0]
    spacing = max(len(chosen), arguments.num // max(arguments.some, 1) // len(chosen) * len(chosen))
    sys.setswitchinterval(SWITCH_SECONDS)
    with Judge(num_verdicts=at_once, reuse_reference_times=True) as judge, ThreadPoolExecutor(at_once) as threads:

        def judged(number: int, spacing: int = 0) -> Evaluation:
            case = chosen[number % len(chosen)]
            what = candidate(case, number, spacing, source)
            return judge.judge(case.problem, what, device=arguments.device, timeout=arguments.timeout)

        list(threads.map(judged, range(WARM_NUMBERS, WARM_NUMBERS + len(chosen) + at_once)))
        runs = [("none", 0), ("some", spacing), *([("some, as it was", spacing)] if arguments.as_it_was else [])]
        for index, (name, apart) in enumerate(runs):
            if index == 2:
                as_it_was(arguments.kind, arguments.timeout)
            started = time.monotonic()
            numbers = range(index * 1000, index * 1000 + arguments.num)
            found = list(threads.map(lambda number, apart=apart: judged(number, apart), numbers))
            seconds = time.monotonic() - started
            messages = Counter(one.message for one in found if one.status != "passed")
            slow = [one for one in found if one.speedup is not None and one.speedup < 0.1]
            row = {"what": name, "per_minute": round(60 * arguments.num / seconds, 1), "seconds": round(seconds, 1)}
            row |= {"statuses": Counter(one.status for one in found), "messages": messages}
            row |= {"naive_ms": [round(one.timing.median_ms or 0.0, 2) for one in slow]}
            row |= {"their_references_ms": [round(one.reference_timing.median_ms or 0.0, 4) for one in slow]}
            row |= {"num_trials": [one.timing.num_trials for one in slow]}
            row |= {"stages": [{k: round(v, 2) for k, v in one.stage_seconds.items() if v > 0.05} for one in slow]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
