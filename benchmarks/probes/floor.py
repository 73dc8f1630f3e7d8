"""Fresh contexts a minute, so many forks of this process at once, and nothing else: a probe of `throughput.py`.

Arguments: how many, how many at once, how they are made (by `torch`, by the `bare` driver, or `cpu` for none), and on
how many GPUs in turn.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

import torch


def open_device(how: str) -> None:
    if how == "bare":
        cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
            os._exit(1)
        return
    torch.zeros(1, device="cpu" if how == "cpu" else "cuda:0").item()


def main() -> None:
    num, at_once, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    num_gpus = int(sys.argv[4])
    started, running, failed = time.perf_counter(), 0, 0
    for number in range(num + at_once):
        if number >= at_once and running:
            failed += os.wait()[1] != 0
            running -= 1
        if number < num:
            running += 1
            if os.fork() == 0:
                if num_gpus > 1:
                    os.environ["CUDA_VISIBLE_DEVICES"] = str(number % num_gpus)
                open_device(how)
                os._exit(0)
    while running:
        failed += os.wait()[1] != 0
        running -= 1
    rate = round(60 * num / (time.perf_counter() - started), 1)
    found = {"how": how, "at_once": at_once, "num_gpus": num_gpus, "contexts": num, "failed": failed}
    print(json.dumps(found | {"per_minute": rate}))


if __name__ == "__main__":
    main()
