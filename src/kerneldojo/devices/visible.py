"""Which GPUs this process may use, told without PyTorch and without CUDA.

Who supervises judges asks this, and shall neither initialise the driver, which leaves its descriptors open for good,
nor keep PyTorch's half a gigabyte for one number; and what is begun for a GPU need not wait until PyTorch is imported.
NVML sees all GPUs; `CUDA_VISIBLE_DEVICES` says which of them count.

NVML, too, leaves descriptors open for good (pipes and eventfds, six of them, after its shutdown as well), and a driver
that hangs would hang who asks. So a short process asks it, once.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib.util import find_spec

QUESTION = """
import sys; sys.path[:] = {path!r}
import json, pynvml as nvml
nvml.nvmlInit()
handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
print(json.dumps([[nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)] for handle in handles]))
"""
ANSWER_SECONDS = 60.0
"""Without a persistent driver the first question initialises every GPU of the machine."""


class Untold(Exception):
    """NVML is not there, or gives no answer."""


def count() -> int | None:
    """GPUs by NVML, cut to those that are visible; None where that cannot be told: then only PyTorch knows.

    That is so without NVML, and where GPUs are named by UUID, as parts of one (MIG) are.
    """
    chosen, is_told = _chosen()
    if not is_told:
        return None
    try:
        there = len(_gpus())
    except Untold:
        return None
    return there if chosen is None else num_chosen(chosen, there)


def uuid(index: int) -> str | None:
    """The UUID of what PyTorch will call `cuda:index`; None where that cannot be told.

    CUDA may count GPUs that are not alike in another order: who acts on this has to look again, once it has PyTorch.
    """
    told = _told(index)
    return told and told[0]


def name(index: int) -> str | None:
    """The model of what PyTorch will call `cuda:index`, as `NVIDIA H200`; with the same reserve."""
    told = _told(index)
    return told and told[1]


def _told(index: int) -> tuple[str, str] | None:
    chosen, _ = _chosen()
    there = count()
    if there is None or index >= there:
        return None
    return _gpus()[index if chosen is None else chosen[index]]


def num_chosen(chosen: list[int], there: int) -> int:
    """As CUDA reads its list: it ends where no GPU has that number, and one that names a GPU twice names nothing."""
    if len(set(chosen)) < len(chosen):
        return 0
    return next((position for position, index in enumerate(chosen) if index >= there), len(chosen))


def _chosen() -> tuple[list[int] | None, bool]:
    """The GPUs that are visible, by number (None for all), and whether they are named by number at all."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return None, True
    names = [name.strip() for name in told.split(",")] if told.strip() else []
    return [int(name) for name in names if name.isdecimal()], all(name.isdecimal() for name in names)


@functools.cache
def _gpus() -> tuple[tuple[str, str], ...]:
    """UUID and name of all GPUs, in NVML's order. Only an answer is remembered.

    Raises:
        Untold: there is none.
    """
    if find_spec("pynvml") is None:
        raise Untold
    question = [sys.executable, "-s", "-c", QUESTION.format(path=sys.path)]
    try:
        answer = subprocess.run(question, capture_output=True, timeout=ANSWER_SECONDS, check=True).stdout
        return tuple((str(uuid), str(name)) for uuid, name in json.loads(answer))
    except (OSError, subprocess.SubprocessError, ValueError):
        raise Untold from None
