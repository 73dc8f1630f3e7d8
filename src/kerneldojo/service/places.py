"""Whether a device has room for one more task: what waits for one that is busy must not keep another idle.

A task may be meant for one device or for any of several (`auto`, `cuda`). For every set of devices there are at most as
many tasks that only these may serve as they have slots; one that may go elsewhere as well counts against the larger
set alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kerneldojo.pool.executor import DeviceState
from kerneldojo.pool.placement import PooledDevice, eligible


class Places:
    """What an executor tells of its devices, and who may serve what. For one thread."""

    def __init__(self) -> None:
        self._told: Sequence[DeviceState] = ()
        self._meant: dict[str, frozenset[str]] = {}

    def see(self, devices: Sequence[DeviceState]) -> None:
        """Take what the devices are now."""
        if devices is not self._told:
            self._told = devices
            self._meant.clear()

    def is_full(self, wanted: str, running: Counter[str]) -> bool:
        """Whether a task that asks for `wanted` would only wait at the executor.

        Not so where it does not tell the slots of its devices, or knows none that is meant: it says so itself then.

        Args:
            wanted: as `Job.device`.
            running: tasks that are with it, by the device that each asked for.
        """
        mine = self._serving(wanted)
        if not mine:
            return False
        sets = {one: self._serving(one) for one in running}
        for whole in {mine, *sets.values()}:
            if mine <= whole:
                slots = [one.num_slots for one in self._told if one.name in whole]
                num = sum(running[one] for one, names in sets.items() if names and names <= whole)
                if num >= sum(slot for slot in slots if slot is not None) and None not in slots:
                    return True
        return False

    def is_lost(self, wanted: str) -> bool:
        """Whether a task that asks for `wanted` waits for a device that is gone, and may never come back."""
        slots = [one.num_slots for one in self._told if one.name in self._serving(wanted)]
        return bool(slots) and not any(slot is None or slot > 0 for slot in slots)

    def refusal(self, wanted: str) -> str:
        """Why no device can ever serve a task that asks for `wanted`, in one line; empty where one may.

        One that is ill, or whose machine is gone, may; and where none is known nobody can say.
        """
        if not self._told or self._serving(wanted):
            return ""
        return f"no device here serves {wanted[:80]!r}; there are {', '.join(sorted(one.name for one in self._told))}"

    def _serving(self, wanted: str) -> frozenset[str]:
        """Names of the devices that may serve it."""
        if wanted not in self._meant:
            devices = [
                PooledDevice(name=one.name, local_name=one.name.rpartition("/")[2], kind=one.kind) for one in self._told
            ]
            try:
                names = eligible(wanted, devices)
            except ValueError:
                names = frozenset[str]()
            self._meant[wanted] = frozenset(one.name for one in devices if one.is_among(names))
        return self._meant[wanted]
