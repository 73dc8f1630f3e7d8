"""Which devices of a pool may serve a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from kerneldojo.devices import visible
from kerneldojo.schema import Frozen

Kind = Literal["cuda", "cpu", "model"]
PREFERENCE: tuple[Kind, ...] = ("cuda", "model", "cpu")
"""What `auto` takes: a real device if there is one, else one with a modelled time, else one without any."""
CORES_OF_LANE, MOST_LANES_OF_GPU = 2, 8
"""Cores for each verdict at once on a GPU, and as many of these as made more a minute than fewer, and than more, on any
host (docs/throughput-log.md)."""


class PooledDevice(Frozen):
    """A device as the pool names it and as its worker does."""

    name: str
    """Unique within the pool: `cuda:0`, or `node-3/cuda:0`."""
    local_name: str
    """What `kerneldojo.judge` on its machine calls it."""
    kind: Kind
    description: str = ""
    worker_name: str = ""
    """What its worker calls it, where that differs: a worker that is shown one GPU of several calls it `cuda:0`."""

    @property
    def judged_as(self) -> str:
        """Its name for its worker."""
        return self.worker_name or self.local_name

    def is_among(self, names: frozenset[str]) -> bool:
        """Whether it is meant by one of `names`, as `eligible` returns them."""
        return self.name in names or self.local_name in names


def local_device(name: str) -> PooledDevice:
    """A device of this machine.

    Raises:
        ValueError: an unknown name, or a GPU that is not there.
    """
    from kerneldojo import devices

    chosen = devices.parse(name)
    return PooledDevice(name=str(chosen), local_name=str(chosen), kind=chosen.kind, description=describe(str(chosen)))


def evenly(num: int, parts: int) -> list[int]:
    """`num` divided into so many parts: 5 into 3 are 2, 2 and 1."""
    return [len(range(position, num, parts)) for position in range(parts)]


def lanes_of_workers(num_verdicts: int, most_per_worker: int) -> list[int]:
    """Verdicts at once for each of as few workers as can have them, evenly: 6 of at most 4 are 3 and 3."""
    return evenly(num_verdicts, -(-num_verdicts // most_per_worker))


def lanes_of_gpu(num_verdicts: int | None, num_cores: int) -> int:
    """Verdicts at once on a GPU that has `num_cores` for itself; `num_verdicts` if that is told."""
    return num_verdicts or max(1, min(MOST_LANES_OF_GPU, num_cores // CORES_OF_LANE))


def describe(local_name: str) -> str:
    """A device for people, and for whoever remembers verdicts: those of one GPU say nothing of another's times."""
    kind, _, rest = local_name.partition(":")
    if kind == "cpu":
        return f"Triton's interpreter on {num_cores()} cores"
    if kind == "model":
        from kerneldojo.devices.specs import gpu

        return f"{gpu(rest).full_name}, modelled"
    return visible.name(int(rest or 0)) or ""


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def eligible(wanted: str, devices: Sequence[PooledDevice]) -> frozenset[str]:
    """Names of the devices that may serve a job that asks for `wanted`, and of their like on machines yet to join.

    `auto` is any device of the best kind there is (of several modelled GPUs only the first: their times differ),
    `cuda` any GPU, and everything else one device by its name in the pool or on its machine.

    Raises:
        ValueError: none can (in one line).
    """
    if wanted == "auto" and devices:
        kind = next(kind for kind in PREFERENCE if any(device.kind == kind for device in devices))
        found = [device for device in devices if device.kind == kind]
        if kind == "model":
            found = [device for device in found if device.local_name == found[0].local_name]
    elif wanted == "cuda":
        found = [device for device in devices if device.kind == "cuda"]
    else:
        found = [device for device in devices if wanted in (device.name, device.local_name)]
    if not found:
        names = ", ".join(sorted({device.name for device in devices})) or "none"
        raise ValueError(f"no device of this pool serves {wanted[:80]!r}; it has {names}")
    if wanted in {device.name for device in found}:
        return frozenset({wanted})
    return frozenset(device.local_name for device in found)


def canonical(names: frozenset[str], devices: Sequence[PooledDevice]) -> str:
    """What verdicts of these devices are remembered under: equal devices of different nodes are one."""
    chosen = [device for device in devices if device.is_among(names)]
    return " ".join(sorted({f"{device.local_name} {device.description}" for device in chosen}))
