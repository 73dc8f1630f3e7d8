"""Makes and destroys contexts, so many at once, until its parent ends; counts them aloud. See `disturbance.py`."""

from __future__ import annotations

import os
import sys

import torch


def main() -> None:
    at_once, device = int(sys.argv[1]), sys.argv[2]
    running, count, owner = 0, 0, os.getppid()
    while os.getppid() == owner:
        while running < at_once:
            running += 1
            if os.fork() == 0:
                torch.zeros(1, device=device).item()
                os._exit(0)
        os.wait()
        running, count = running - 1, count + 1
        print(count, flush=True)


if __name__ == "__main__":
    main()
