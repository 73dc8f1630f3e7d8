"""How long one verdict takes, from call to result, with the fork server warm and nothing cached.

    python benchmarks/latency.py --device model:h100 --repeats 5 --out latency.json

Every repeat judges a candidate that was never seen before (a constant in its kernel is changed, so that neither
source nor binary is the same), each in a fresh process of its own. The first verdict of all is thrown away: it pays
for starting the fork servers and for auditing the problems. Reported: median and range of the total, and the median
of every stage.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from kerneldojo import Candidate, Problem, Status, judge

HERE = Path(__file__).parent
CASES = {
    "elementwise": ("small/elementwise_problem.py", "small/elementwise.py"),
    "softmax": ("small/softmax_problem.py", "small/softmax.py"),
    "product": ("small/product_problem.py", "small/product.py"),
    "attention": ("small/attention_problem.py", "small/attention.py"),
}
FULL_CASES = {
    "elementwise-64MB": ("full/elementwise_problem.py", "small/elementwise.py"),
    "softmax-4096": ("full/softmax_problem.py", "small/softmax.py"),
}


def distinct(source: str, number: int) -> str:
    """The same kernel with another constant in it: another source, and another binary."""
    assert "UNIQUE" in source
    return source.replace("UNIQUE", str(number))


def measure(name: str, problem: Problem, kernel: str, device: str, protocol: str, repeats: int) -> dict[str, Any]:
    """Judge `repeats` distinct candidates and summarise."""
    evaluations = []
    for number in range(repeats + 1):
        candidate = Candidate(source=distinct(kernel, 1000 + number))
        evaluation = judge(problem, candidate, device=device, protocol=protocol)
        if evaluation.status is not Status.PASSED:
            sys.exit(f"{name}: {evaluation.status}: {evaluation.message}")
        evaluations.append(evaluation)
        print(f"{name} {number}: {evaluation.stage_seconds['total']:.3f} s", flush=True)
    counted = evaluations[1:]
    totals = [evaluation.stage_seconds["total"] for evaluation in counted]
    stages = {
        stage: round(statistics.median(evaluation.stage_seconds.get(stage, 0.0) for evaluation in counted), 4)
        for stage in counted[0].stage_seconds
    }
    return {
        "median_s": statistics.median(totals),
        "range_s": [min(totals), max(totals)],
        "stages_s": stages,
        "kernel_ms": [evaluation.kernel_ms for evaluation in counted],
        "reference_ms": [evaluation.reference_ms for evaluation in evaluations],  # The first in a fresh runner.
        "clock_mhz": [evaluation.timing.clock_mhz for evaluation in counted],
    }


def main() -> None:
    """Run every case and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    cases = CASES | FULL_CASES if arguments.device.startswith("cuda") else CASES
    result: dict[str, Any] = {
        "device": arguments.device,
        "protocol": arguments.protocol,
        "python": platform.python_version(),
    }
    for name, (reference, kernel) in cases.items():
        if arguments.only and name not in arguments.only:
            continue
        problem = Problem(name=name, source=(HERE / reference).read_text())
        result[name] = measure(
            name, problem, (HERE / kernel).read_text(), arguments.device, arguments.protocol, arguments.repeats
        )
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
