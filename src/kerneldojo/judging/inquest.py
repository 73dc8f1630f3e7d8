"""Whose work it is that a device does not get done with: all stand still, and who does not answer is ended.

A kernel that never ends takes its device from everybody: no window finds it idle, and half of the time of whatever else
runs is gone. Nobody can be asked whose it is. A process that waits for its own kernel looks like one that compiles, and
what it says of itself is a claim. But what stands still launches nothing. So where a command takes long, all processes
of the device are stopped and a canary is sung: what was launched has some seconds to run out, and a device that is idle
by then, as it is at once while somebody compiles, clears everybody. One that is still at work is at work on something
that no verdict has time for. Then the process whose command takes so long is ended. If the device is idle without it,
it was that one's work; if it is not, it was somebody else's, and the candidate is judged again alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kerneldojo.judging.ends import Infrastructure, Unfinished
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import Session

FIRST_PART = 0.5
"""Of the seconds that a device may work on, how long a command may take before it is looked into; then twice as long,
and so on. Most commands are answered in less."""
END_SECONDS = 1.0
"""How long a device may still look busy once the process is gone whose work it was."""


@dataclass(frozen=True)
class Inquest:
    """How the commands of a contestant are looked into."""

    becomes_idle: Callable[[float], bool]
    """Whether its device is idle now or within so many seconds."""
    seconds: float
    """How long a device may work on what was launched: see `Protocol.device_seconds`."""

    @property
    def first_seconds(self) -> float:
        """How long a command may take before it is looked into."""
        return FIRST_PART * self.seconds

    def hold(self, guest: Guest, session: Session) -> None:
        """See whether the device gets done with what was launched; else end the session.

        Raises:
            Unfinished: it did not, and the session was ended.
            Infrastructure: the same, but it is at work without it, too, and nobody else was there.
        """
        with guest.standstill():
            if self.becomes_idle(self.seconds):
                return
            session.kill()
            is_its_own = self.becomes_idle(END_SECONDS)
        if not is_its_own and not guest.had_company:
            raise Infrastructure("the device is at work on something that is nobody's here")
        raise Unfinished(self.seconds, is_its_own=is_its_own)
