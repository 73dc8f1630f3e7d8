"""The brake on a hosted process: it stands still while others are timed, and dozens of times while its reference is.

Its keeper can stop it. But an order to a keeper wakes its fork server and then the keeper, and the answer comes back
the same way: a millisecond where cores are slow, or as long as the fork server takes to fork somebody else. So who
judges writes the order into the process' control group itself.

A keeper stops by itself what rests, and lets it go on again. Two that write the same order do not know of each other;
so the group is written to only while the keeper leaves it alone: not from when it is told that its process rests until
it has answered an order that it got after having been told that work begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kerneldojo.contestant.sandbox.freezer import Freezer


class Brake:
    """Of one process.

    Args:
        tell: gives its keeper an order: `freeze` and `thaw`, which are answered, `rest` and `wake`, which are not. In
            the order in which they are given they are carried out.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._freezer: Freezer | None = None
        self._is_resting = False
        self.is_held = False
        """Whether it is we who have stopped it, not its keeper."""
        self._num_told = self._num_answered = 0
        self._num_needed = 0
        """Orders by the last of which, once answered, its keeper shows that it leaves the group alone."""

    def fit(self, file: str | None) -> None:
        """Take hold of its group's freezer, once; without one, or where it may not be opened, its keeper does it all.

        Args:
            file: as for `Freezer`; None if there is none.
        """
        if file is not None:
            with contextlib.suppress(OSError):
                self._freezer = Freezer(Path(file))

    @property
    def is_direct(self) -> bool:
        """Whether it is stopped without its keeper now."""
        is_left_alone = not self._is_resting and not self.is_owed and self._num_told >= self._num_needed
        return self._freezer is not None and is_left_alone

    @property
    def is_owed(self) -> bool:
        """Whether its keeper has orders that it has not answered."""
        return self._num_answered < self._num_told

    def stop(self) -> None:
        """Begin to stop it: `wait_stopped` waits until it stands still, if nothing `is_owed` any more.

        Raises:
            WireError: its keeper cannot be told.
        """
        if not self.stop_directly():
            self._tell_keeper("freeze")

    def stop_directly(self) -> bool:
        """Begin to stop it if that can be done without its keeper now; whether it was."""
        if self.is_direct:
            assert self._freezer is not None
            with contextlib.suppress(OSError):  # The group is gone: its keeper knows how it ended.
                self._freezer.order(True)
                self.is_held = True
                return True
        return False

    def wait_stopped(self) -> None:
        """Wait until it stands still, if it is we who stop it."""
        if self.is_held and self._freezer is not None:
            with contextlib.suppress(OSError):  # It has ended: then it stands still, too.
                self._freezer.wait(True)

    def release(self) -> None:
        """Let it go on, at once or soon.

        Raises:
            WireError: its keeper cannot be told.
        """
        if not self.is_held:
            self._tell_keeper("thaw")
            return
        self.is_held = False
        if self._freezer is not None:
            with contextlib.suppress(OSError):  # It has ended.
                self._freezer.order(False)

    def rest(self, resting: bool) -> None:
        """Tell its keeper that it waits for work, or that work begins. One that is stopped stays so.

        Raises:
            WireError: its keeper cannot be told.
        """
        if self.is_held:  # Its keeper must know of that, or it might let it go on.
            self._tell_keeper("freeze")
            self.is_held = False
        self._is_resting = resting
        self._tell("rest" if resting else "wake")
        self._num_needed = self._num_told + 1

    def hear_answer(self) -> None:
        """Its keeper has carried out the first order that it had not answered yet."""
        self._num_answered += 1

    def _tell_keeper(self, order: str) -> None:
        self._tell(order)
        self._num_told += 1

    def close(self) -> None:
        """Let go of its group; it must have ended, or be nobody's to stop any more."""
        freezer, self._freezer = self._freezer, None
        if freezer is not None:
            freezer.close()
