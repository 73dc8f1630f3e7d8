"""Is a GPU well? Run as `python -m kerneldojo.pool.probe INDEX`: exit status 0 if it computes what it should."""

from __future__ import annotations

import signal
import sys

from kerneldojo.contestant.sandbox import linux


def main(index: int) -> None:
    """Run a small reduction on the device and compare; exits with a message if it is not right."""
    import torch

    numbers = torch.arange(4096, device=f"cuda:{index}")
    total = int(numbers.sum().item())
    if total != 4096 * 4095 // 2:
        sys.exit(f"cuda:{index} computes {total} for the sum of the first 4096 numbers")


if __name__ == "__main__":
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    main(int(sys.argv[1]))
