"""Turns: a few at a time have something that there is not enough of for all. Whoever comes first has it first."""

from __future__ import annotations

import threading
from collections import deque


class Turn:
    """One place in line; from some time on it is the holder's turn, until it is given back."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def wait(self, seconds: float) -> bool:
        """Wait so long; whether it is its turn."""
        return self._turns.is_reached(self, seconds)

    def give_back(self) -> None:
        """It has had its turn, or does without one; once more does nothing."""
        self._turns.end(self)


class Turns:
    """Thread-safe.

    Args:
        num: how many have theirs at once.
    """

    def __init__(self, num: int) -> None:
        self._num = num
        self._changed = threading.Condition()
        self._line = deque[Turn]()

    def ask(self) -> Turn:
        """A place at the end of the line."""
        turn = Turn(self)
        with self._changed:
            self._line.append(turn)
        return turn

    def is_reached(self, turn: Turn, seconds: float) -> bool:
        """See `Turn.wait`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._line.index(turn) < self._num, seconds)

    def end(self, turn: Turn) -> None:
        """See `Turn.give_back`."""
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
            self._changed.notify_all()
