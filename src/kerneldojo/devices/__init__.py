"""Where kernels run: a real GPU, Triton's interpreter on the CPU, or a GPU modelled by its roofline.

- `cuda:N`: the real thing (`kerneldojo.devices.cuda`).
- `cpu`: the interpreter. There is no time, and none is invented.
- `model:h100` and others: the interpreter, with launches, bytes and FLOPs priced by a roofline.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Literal

DEFAULT_MODEL = "h100"


class DeviceError(ValueError):
    """A device name means nothing here; the message says why in one line."""


@dataclass(frozen=True)
class Device:
    """A device by name."""

    kind: Literal["cuda", "cpu", "model"]
    index: int = 0
    """Which of several CUDA devices."""
    model: str = DEFAULT_MODEL
    """The GPU that is modelled, or for which kernels are compiled on `cpu`."""

    def __str__(self) -> str:
        return {"cuda": f"cuda:{self.index}", "cpu": "cpu", "model": f"model:{self.model}"}[self.kind]


def parse(name: str) -> Device:
    """Read `auto`, `cpu`, `cuda`, `cuda:N` or `model:GPU`.

    Raises:
        DeviceError: an unknown name, or a CUDA device that is not there.
    """
    from kerneldojo.devices.specs import gpu

    kind, _, rest = name.partition(":")
    if kind == "auto" and not rest:
        return Device("cuda") if num_cuda_devices() else Device("model")
    if kind == "cpu" and not rest:
        return Device("cpu")
    if kind == "model" and rest:
        try:
            gpu(rest)
        except ValueError as error:
            raise DeviceError(str(error)) from None
        return Device("model", model=rest)
    if kind == "cuda" and (not rest or rest.isdecimal()):
        index, count = int(rest or 0), num_cuda_devices()
        if index >= count:
            raise DeviceError(f"there is no CUDA device {index}: this machine has {count}")
        return Device("cuda", index=index)
    raise DeviceError(f"unknown device {name[:80]!r}: say auto, cpu, cuda:N or model:GPU (as in model:h100)")


def problem_size(name: str, *, is_here: bool = True) -> Literal["small", "full"]:
    """The size of katas and graphs that suits a device: small where kernels are interpreted.

    Args:
        name: as for `parse`.
        is_here: whether this machine judges. What `auto` means at a service elsewhere is not known: a GPU is assumed.

    Raises:
        DeviceError: see `parse`; only `auto` is looked at so closely.
    """
    kind = parse(name).kind if name == "auto" and is_here else name.partition(":")[0]
    return "small" if kind in ("cpu", "model") else "full"


def every(name: str) -> list[str]:
    """Devices of this machine that `name` stands for: all GPUs for `cuda` and `auto`, if there are any."""
    count = num_cuda_devices() if name in ("cuda", "auto") else 0
    return [f"cuda:{index}" for index in range(count)] or [name]


def num_cuda_devices() -> int:
    """How many CUDA devices PyTorch sees, without creating a context.

    PyTorch is imported only where nothing lighter tells, and not if it was built without CUDA.
    """
    if not _may_have_cuda():
        return 0
    if "torch" not in sys.modules:
        from kerneldojo.devices import visible

        if (count := visible.count()) is not None:
            return count
    import torch

    return torch.cuda.device_count() if torch.version.cuda else 0


def _may_have_cuda() -> bool:
    """Whether PyTorch was built for CUDA, or is not there to tell; importing all of it takes more than a second."""
    if "torch" in sys.modules:
        return True
    found = find_spec("torch")
    version = Path(found.origin).with_name("version.py") if found is not None and found.origin else None
    return version is None or not version.exists() or bool(run_path(str(version)).get("cuda", True))
