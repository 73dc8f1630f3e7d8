"""Candidates by KernelGYM's own worker pool with its default settings: for `benchmarks/throughput.py`.

    python benchmarks/peers/kernelgym.py CHECKOUT TASKS.jsonl NUM_ROUNDS NUM_TRIALS

What its GPU worker does for one evaluation is done here without the queue and the server around it: a task for the
kernel and one for the time of the reference, each given to `SubprocessWorkerPool` as its settings make it (by default
one process, ended after each task). Each line of TASKS has `problem`, `candidate` and `backend`; one line is printed
for each as it ends.

What it imports beyond torch and Triton, in an environment of its own (`kernelbench.py` says how to make one):

    peers/bin/pip install pydantic-settings redis aiohttp psutil fastapi
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any


async def evaluate(pool: Any, number: int, row: dict[str, str], num_rounds: int, num_trials: int) -> dict[str, Any]:
    """One evaluation: its verdict and how long it took."""
    started = time.perf_counter()
    common: dict[str, Any] = {
        "base_task_id": f"t{number}",
        "reference_code": row["problem"],
        "toolkit": "kernelbench",
        "backend_adapter": "kernelbench",
        "backend": row["backend"],
        "num_perf_trials": num_trials,
        "timeout": 300,
        "device": "cuda:0",
        "entry_point": "Model",
    }
    kernel = {"task_type": "kernel_evaluation", "kernel_code": row["candidate"], "num_correct_trials": num_rounds}
    found = await pool.execute_task({**common, **kernel, "task_id": f"t{number}-kernel"}, timeout=300)
    reference = {"task_type": "reference_timing", "task_id": f"t{number}-reference"}
    await pool.execute_task({**common, **reference}, timeout=300)
    result = found.get("result", found)
    correct = bool(result.get("correctness"))
    return {
        "correct": correct,
        "seconds": time.perf_counter() - started,
        "error": str(result.get("error_message"))[:200],
    }


async def run(tasks: Path, num_rounds: int, num_trials: int) -> None:
    import torch

    try:
        from kernelgym.config import settings
        from kernelgym.worker.subprocess_pool import SubprocessWorkerPool
    except ModuleNotFoundError as error:
        sys.exit(f"KernelGYM needs {error.name}, which is not installed: see the head of {__file__}")
    if not torch.cuda.is_available():
        sys.exit("KernelGYM's workers start on CUDA alone, and there is none")
    pool = SubprocessWorkerPool(
        device_id=0,
        pool_size=getattr(settings, "worker_pool_size", 1),
        worker_prefix="throughput",
        max_tasks_per_worker=getattr(settings, "max_tasks_per_worker", 1),
    )
    for number, line in enumerate(tasks.read_text().splitlines()):
        told = await evaluate(pool, number, json.loads(line), num_rounds, num_trials)
        print("RESULT " + json.dumps(told), flush=True)


def main() -> None:
    checkout, tasks, num_rounds, num_trials = sys.argv[1:]
    sys.path.remove(str(Path(__file__).parent))  # Or this file would be taken for the package of the same name.
    sys.path.insert(0, checkout)
    asyncio.run(run(Path(tasks), int(num_rounds), int(num_trials)))


if __name__ == "__main__":
    main()
