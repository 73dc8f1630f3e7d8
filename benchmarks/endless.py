"""What kernels that never end cost everybody else on their device.

    PYTHONPATH=src python benchmarks/endless.py --at-once 8 --num 60 --endless 2

While such a kernel runs no window of anybody's finds the device idle. It runs until an inquest ends it
(`judging.inquest`), whether its candidate has returned or waits for it (`--waits`). Judged are the ten problems of
`throughput.py`: without such candidates, then with some, and then with these let run.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case, cases
from judged import WARM_NUMBERS
from options import options

from kerneldojo.judging import Judge, protocol
from kerneldojo.pool.worker import SWITCH_SECONDS
from kerneldojo.schema import Candidate, Evaluation

CANDIDATES = Path(__file__).parent.parent / "tests" / "exploits" / "candidates"


def candidate(case: Case, number: int, spacing: int, endless: str) -> Candidate:
    """The honest one of this number, or where it is the turn of one, `endless`, whose kernel does not end."""
    if case.problem.name == "swish" and spacing and number % spacing == 0:
        return Candidate(source=f"{endless}\n# {number}\n")
    return case.candidate(number, "triton")


def main() -> None:
    """Judge by turns and print."""
    parser = options(__doc__, at_once=8, num=60)
    parser.add_argument("--endless", type=int, default=2, help="candidates that launch a kernel without an end")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a candidate has")
    parser.add_argument("--without-bound", action="store_true", help="also as it was before: the whole timeout")
    parser.add_argument("--waits", action="store_true", help="they wait for it themselves, before they return")
    arguments = parser.parse_args()
    endless = (CANDIDATES / f"fault_endless_{'waits' if arguments.waits else 'device'}.py").read_text()
    chosen, at_once = cases(arguments.size), arguments.at_once[0]
    spacing = max(len(chosen), arguments.num // max(arguments.endless, 1) // len(chosen) * len(chosen))
    sys.setswitchinterval(SWITCH_SECONDS)
    least = protocol.LEAST_DEVICE_SECONDS
    with Judge(num_verdicts=at_once, reuse_reference_times=True) as judge, ThreadPoolExecutor(at_once) as threads:

        def judged(number: int, spacing: int = 0) -> Evaluation:
            case = chosen[number % len(chosen)]
            what = candidate(case, number, spacing, endless)
            return judge.judge(case.problem, what, device=arguments.device, timeout=arguments.timeout)

        list(threads.map(judged, range(WARM_NUMBERS, WARM_NUMBERS + len(chosen) + at_once)))
        runs = [("none without an end", 0, least), ("some", spacing, least)]
        if arguments.without_bound:
            runs.append(("some, with all their time", spacing, 2 * arguments.timeout))
        for index, (name, apart, seconds_at_least) in enumerate(runs):
            protocol.LEAST_DEVICE_SECONDS = seconds_at_least
            started = time.monotonic()
            numbers = range(index * 1000, index * 1000 + arguments.num)
            found = list(threads.map(lambda number, apart=apart: judged(number, apart), numbers))
            seconds = time.monotonic() - started
            messages = Counter(one.message for one in found if one.status != "passed")
            row = {"what": name, "per_minute": round(60 * arguments.num / seconds, 1), "seconds": round(seconds, 1)}
            print(
                json.dumps(row | {"statuses": Counter(one.status for one in found), "messages": messages}), flush=True
            )


if __name__ == "__main__":
    main()
