"""A control group's freezer: files by which all that is in the group is stopped at once, and goes on.

A keeper opens it whenever it is told to. Whoever times many windows holds it open, and asks nobody.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

UNIFIED, VERSION_1 = "cgroup.freeze", "freezer.state"
"""Names of the file that orders are written to."""
_HOLDS_SECONDS = 1.0
"""How long an order may take to hold: what is in the driver is stopped when it comes back from there."""
_SPIN_SECONDS = 1e-4
"""An order holds sooner as a rule, and a nap, however short, takes as long."""


class Freezer:
    """One group's, open. `order` first, then `wait`; both raise `OSError` once the group is gone.

    Args:
        file: where orders are written, `cgroup.freeze` or `freezer.state` in the group's folder.

    Raises:
        OSError: it may not be opened, or there is no such group.
    """

    def __init__(self, file: Path) -> None:
        self._is_unified = file.name == UNIFIED
        self._orders = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._state = self._orders
        if self._is_unified:
            try:
                self._state = os.open(file.with_name("cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)
            except BaseException:
                os.close(self._orders)
                raise

    def order(self, frozen: bool) -> None:
        """Begin to stop what is in the group, or to let it go on."""
        words = (b"0", b"1") if self._is_unified else (b"THAWED", b"FROZEN")
        os.pwrite(self._orders, words[frozen], 0)

    def holds(self, frozen: bool) -> bool:
        """Whether all in it stand still, or none is kept from running."""
        words = (b"frozen 0", b"frozen 1") if self._is_unified else (b"THAWED", b"FROZEN")
        return words[frozen] in os.pread(self._state, 4096, 0)

    def wait(self, frozen: bool) -> None:
        """Wait until an order holds, for `_HOLDS_SECONDS` at most."""
        started, pause = time.monotonic(), _SPIN_SECONDS / 4
        while not self.holds(frozen) and (waited := time.monotonic() - started) < _HOLDS_SECONDS:
            if waited > _SPIN_SECONDS:
                time.sleep(pause)
                pause = min(2 * pause, 0.001)

    def close(self) -> None:
        """Close its files; what stands still stays so."""
        for descriptor in {self._orders, self._state}:
            os.close(descriptor)
