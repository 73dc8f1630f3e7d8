"""A hosted process that stands still while another verdict is timed."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from kerneldojo.judging.guest import Guest
from kerneldojo.judging.inquest import Inquest
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
        self.inquest: Inquest | None = None
        """How commands that take long are looked into; None for not at all."""
        self._has_loaded = False
        """Whether anything of a candidate's may have run in it: before, nothing that takes long is its doing."""
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

    def post(self, operation: str, descriptors: Sequence[int] = (), **fields: Any) -> None:
        """See `Session.post`."""
        self._has_loaded = self._has_loaded or operation == "load"
        super().post(operation, descriptors, **fields)

    def collect(self, timeout: float) -> dict[str, Any]:
        """See `Session.collect`.

        Raises:
            Unfinished, Infrastructure: an inquest found the device at work on what does not end.
        """
        if self._guest is not None:
            timeout = self._wait(self._guest, timeout)
        return super().collect(timeout)

    def _wait(self, guest: Guest, timeout: float) -> float:
        """Wait for its answer, and look into it where that takes long; seconds that are left, 0 if there is none."""
        inquest = self.inquest if self._has_loaded else None
        part = timeout if inquest is None else inquest.first_seconds
        while True:
            part = min(part, timeout)
            left = guest.wait(self._door.has_frame, part)
            timeout -= part - left
            if left or timeout <= 0 or inquest is None:
                return timeout
            inquest.hold(guest, self)
            part *= 2

    def close(self) -> None:
        """See `Session.close`."""
        self.part()
        super().close()
