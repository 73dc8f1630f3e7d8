"""A bench's device as something that verdicts have by turns: who is alone with it, and whether it is idle then.

Several verdicts are inside at once (`judging.gate`). What takes time has the device to itself, and a canary shows that
nobody else used it (`judging.idleness`); where something takes very long, it shows whose work that is
(`judging.inquest`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kerneldojo.judging.alone import Alone
from kerneldojo.judging.bench_memory import BenchMemory
from kerneldojo.judging.canary import Canary
from kerneldojo.judging.cores import Cores
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.idleness import measure_idle
from kerneldojo.judging.inquest import Inquest
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema.pace import Pace

RISE_SECONDS = 0.3
"""How long a device that had nothing to do may look busy: its clock rises within a third of that."""


class BenchTime(BenchMemory):
    """Memory and turns.

    Args:
        shares, cores, alone, pace, larger: see `gated_bench.Bench`.
    """

    def __init__(
        self,
        shares: Shares,
        cores: Collection[int] = (),
        alone: Sequence[Alone] = (),
        pace: Pace | None = None,
        larger: Sequence[Shares] = (),
    ) -> None:
        super().__init__(shares, alone, larger)
        self.pace = pace or Pace()
        several = [division.capacity for division in larger]
        self.gate = Gate(shares.capacity, Cores.of(cores), self.pace.windows_in_a_row, several, len(self.alone))
        """A timing window has the device to itself."""
        self._canary: Canary | None = None
        """None where nothing tells whether the device is idle."""

    def look_around(self, guest: Guest) -> None:
        """Before there is anything of a verdict that has nobody beside it: see whether a stranger uses the device."""
        if self._canary is not None and (guest.is_alone or self.gate.capacity == 1):
            guest.has_strangers = not self._canary.becomes_clean(RISE_SECONDS)

    def inquest(self, protocol: Protocol, guest: Guest) -> Inquest | None:
        """How a contestant's commands are looked into, where it can be told whether the device is idle."""
        if self._canary is None or guest.has_strangers:
            return None
        return Inquest(self._canary.becomes_clean, protocol.device_seconds)

    def measure_alone(
        self, guest: Guest, findings: Findings, action: Callable[[], None], of_candidate: Sequence[Session] = ()
    ) -> None:
        """Run `action` with the device to itself: see `idleness.measure_idle`."""
        for session in guest.sessions:  # All have cores reserved, or one side is timed on other cores than the other.
            session.wait_started()
        if self.gate.capacity == 1 or self._canary is None:
            with guest.window():
                action()  # Nobody else of ours is there, and the trials see strangers by themselves.
            return
        with guest.measuring():
            measure_idle(self._canary, guest, findings, action, of_candidate)
