"""The state of a device as NVML tells it: clocks, throttling, who uses its memory. Read by the judge."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

THROTTLE_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Reasons (bits of NVML) for which a clock is lower than it could be; idling and settings are not among them."""


@dataclass(frozen=True)
class Identity:
    """What does not change about a device."""

    name: str
    uuid: str
    capability: tuple[int, int]
    total_bytes: int
    max_clock_mhz: int
    """Highest clock of the multiprocessors."""
    driver: str
    """Version of the driver."""


@dataclass(frozen=True)
class Reading:
    """One look at the clocks."""

    sm_mhz: int
    memory_mhz: int
    reasons: tuple[str, ...]
    """Why the device is throttled, if it is."""


@dataclass
class Watch:
    """Readings taken during a measurement."""

    readings: list[Reading] = field(default_factory=list[Reading])

    @property
    def range_mhz(self) -> tuple[int, int] | None:
        """Lowest and highest clock of the multiprocessors seen."""
        clocks = [reading.sm_mhz for reading in self.readings]
        return (min(clocks), max(clocks)) if clocks else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons for throttling that were seen."""
        return tuple(sorted({reason for reading in self.readings for reason in reading.reasons}))


class Device:
    """One device, by its UUID (or index, which NVML may count differently from CUDA)."""

    def __init__(self, uuid: str | int) -> None:
        nvml = _nvml()
        self._peak: float | None = None
        if isinstance(uuid, int):
            self._handle = nvml.nvmlDeviceGetHandleByIndex(uuid)
        else:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")

    def identity(self) -> Identity:
        """Name, UUID and limits."""
        nvml, handle = _nvml(), self._handle
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Identity(
            name=nvml.nvmlDeviceGetName(handle),
            uuid=nvml.nvmlDeviceGetUUID(handle),
            capability=(int(major), int(minor)),
            total_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            max_clock_mhz=int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            driver=nvml.nvmlSystemGetDriverVersion(),
        )

    def place(self) -> tuple[int, int]:
        """Its number among the GPUs of this machine, and how many there are: all that NVML sees."""
        nvml = _nvml()
        return int(nvml.nvmlDeviceGetIndex(self._handle)), int(nvml.nvmlDeviceGetCount())

    def minor(self) -> int:
        """The number of its device node, /dev/nvidiaN."""
        return int(_nvml().nvmlDeviceGetMinorNumber(self._handle))

    def read(self) -> Reading:
        """Clocks and throttle reasons now; about 20 us."""
        nvml, handle = _nvml(), self._handle
        mask = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        return Reading(
            sm_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            reasons=tuple(text for bit, text in THROTTLE_REASONS.items() if mask & bit),
        )

    def peak_bandwidth(self) -> float:
        """Peak of the memory in bytes a second: its highest clock, two transfers a cycle, over the whole bus.

        Asked once: it does not change, and the driver takes milliseconds while others want something of it.
        """
        if self._peak is None:
            nvml = _nvml()
            clock_mhz = int(nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_MEM))
            self._peak = 2e6 * clock_mhz * int(nvml.nvmlDeviceGetMemoryBusWidth(self._handle)) / 8
        return self._peak

    def used_bytes(self) -> int:
        """Memory in use by everybody, the driver's own reserve included."""
        return int(_nvml().nvmlDeviceGetMemoryInfo(self._handle).used)


@contextmanager
def watched(device: Device) -> Generator[Watch]:
    """Read the clocks on entry and exit; call `watch.readings.append(device.read())` in between as often as wanted."""
    watch = Watch([device.read()])
    try:
        yield watch
    finally:
        watch.readings.append(device.read())


@cache
def _nvml() -> Any:
    module = importlib.import_module("pynvml")
    module.nvmlInit()
    return module
