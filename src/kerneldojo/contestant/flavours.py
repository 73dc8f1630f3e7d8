"""What a fork server's flavour stands for: `interpret`, `compile` or `cuda`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerneldojo.contestant.host_platform import CompilePlatform, InterpretPlatform
from kerneldojo.contestant.platform import Platform

if TYPE_CHECKING:
    from kerneldojo.contestant.workshop import Line
    from kerneldojo.devices.cuda.toolchain import Toolchain


def open_platform(flavour: str, arena_fds: list[int], device: str, workshop: Line | None = None) -> Platform:
    """The platform of a fork server's flavour."""
    if flavour != "cuda":
        kind = InterpretPlatform if flavour == "interpret" else CompilePlatform
        platform = kind(arena_fds, device)
        platform.workshop = workshop
        return platform
    from kerneldojo.contestant import tree
    from kerneldojo.devices.cuda.platform import CudaPlatform

    cuda = CudaPlatform(device, tree.decode, workshop)
    if arena_fds:
        cuda.furnish(arena_fds)
    return cuda


def find_toolchain(flavour: str, device: str) -> Toolchain:
    """The compilers that build extensions for what `open_platform` opens."""
    from kerneldojo.devices.cuda import toolchain
    from kerneldojo.devices.specs import gpu

    if flavour != "cuda":
        return toolchain.find(gpu(device).compute_capability)
    from kerneldojo.devices.cuda import warm

    return toolchain.find(warm.capability())
