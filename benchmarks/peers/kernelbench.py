"""One candidate by KernelBench's own `eval_kernel_against_ref`, in this process: for `benchmarks/throughput.py`.

    python benchmarks/peers/kernelbench.py CHECKOUT PROBLEM.py KERNEL.py NUM_ROUNDS NUM_TRIALS BACKEND

What it imports beyond torch and Triton, in an environment of its own that sees those of this one:

    python -m venv peers
    python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > peers/lib/python3.11/site-packages/base.pth
    peers/bin/pip install litellm tomli tabulate python-dotenv requests
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path


def main() -> None:
    checkout, problem, kernel, num_rounds, num_trials, backend = sys.argv[1:]
    folder = Path(checkout)
    sys.path[:0] = [str(path) for path in (folder / "src", folder) if path.is_dir()]
    sys.path.remove(str(Path(__file__).parent))  # Or this file would be taken for the package of the same name.
    import torch

    try:
        if (folder / "src" / "kernelbench" / "eval.py").exists():
            from kernelbench.eval import eval_kernel_against_ref
        else:  # Older checkouts.
            from src.eval import eval_kernel_against_ref
    except ModuleNotFoundError as error:
        sys.exit(f"KernelBench needs {error.name}, which is not installed: see the head of {__file__}")
    if not torch.cuda.is_available():
        sys.exit("KernelBench judges on CUDA alone, and there is none")
    wanted = {
        "num_correct_trials": int(num_rounds),
        "num_perf_trials": int(num_trials),
        "measure_performance": True,
        "device": torch.device("cuda:0"),
        "backend": backend,
    }
    known = inspect.signature(eval_kernel_against_ref).parameters
    settings = {name: value for name, value in wanted.items() if name in known}
    result = eval_kernel_against_ref(Path(problem).read_text(), Path(kernel).read_text(), **settings)
    told = {"correct": bool(result and result.correctness), "ms": float(result.runtime) if result else None}
    print("RESULT " + json.dumps(told | {"left_out": sorted(set(wanted) - set(known))}))


if __name__ == "__main__":
    main()
