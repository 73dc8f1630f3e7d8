"""A hosted process that stands still while another verdict is timed."""

from __future__ import annotations

import socket
from typing import Any

from kerneldojo.judging.ends import Unfinished
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import ForkServer, Session


class GatedSession(Session):
    """A session whose process may be frozen for another verdict's sake, at no cost to its deadlines."""

    def __init__(
        self,
        server: ForkServer,
        arena: Any,
        request: dict[str, Any],
        guest: Guest | None = None,
        line: socket.socket | None = None,
        *,
        is_workshop: bool = False,
    ) -> None:
        self._guest: Guest | None = None
        super().__init__(server, arena, request, line, is_workshop=is_workshop)
        if guest is not None:
            self.attend(guest)

    def attend(self, guest: Guest) -> None:
        """Belong to this verdict from now on."""
        self._guest = guest
        guest.sessions.append(self)

    def part(self) -> None:
        """Belong to no verdict: nobody will freeze or thaw it for another's sake."""
        if self._guest is not None and self in self._guest.sessions:
            self._guest.sessions.remove(self)
        self._guest = None

    def collect(self, timeout: float) -> dict[str, Any]:
        """See `Session.collect`.

        Raises:
            Unfinished: hosted code was done with the command, and the device was not `device_seconds` later. Whoever
                says so falsely shortens its own time.
        """
        if self._guest is not None:
            timeout = self._guest.wait(self._has_returned, timeout)
            if timeout and not self._door.has_frame(0.0):
                left = self._guest.wait(self._door.has_frame, min(timeout, self.device_seconds))
                if not left and timeout > self.device_seconds:
                    self.kill()
                    raise Unfinished(self.device_seconds)
                timeout = left
        return super().collect(timeout)

    def _has_returned(self, seconds: float) -> bool:
        """Wait up to so long; whether its answer is there, or will be once the device is done, as it says."""
        return self._door.has_frame(seconds) or self.arena.has_returned(self._number)

    def close(self) -> None:
        """See `Session.close`."""
        self.part()
        super().close()
