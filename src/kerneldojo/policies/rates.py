"""How often and how much an endpoint may be asked: requests and tokens a minute, as providers count them.

An allowance refills steadily and holds at most one minute's worth (a token bucket). Nobody knows how long an answer
will be, so an estimate is taken beforehand and settled afterwards; the balance may fall below zero, and then whoever
comes next waits longer.
"""

from __future__ import annotations

import asyncio
import time


class Allowance:
    """Something of which so much a minute may be used; first come, first served."""

    def __init__(self, per_minute: float | None) -> None:
        """None means without limit."""
        self.per_minute = per_minute
        self._balance = per_minute or 0.0
        self._seen = time.monotonic()
        self._turn = asyncio.Lock()

    def _refill(self) -> None:
        assert self.per_minute is not None
        now = time.monotonic()
        self._balance = min(self.per_minute, self._balance + (now - self._seen) * self.per_minute / 60)
        self._seen = now

    async def take(self, amount: float) -> None:
        """Wait until `amount` may be used, and use it. More than a minute's worth waits for a full minute's."""
        if self.per_minute is None:
            return
        async with self._turn:
            needed = min(amount, self.per_minute)
            self._refill()
            while self._balance < needed:
                await asyncio.sleep((needed - self._balance) * 60 / self.per_minute)
                self._refill()
            self._balance -= amount

    def settle(self, excess: float) -> None:
        """Correct the estimate afterwards: `excess` more was used than taken, or less where it is negative."""
        if self.per_minute is not None:
            self._refill()
            self._balance = min(self.per_minute, self._balance - excess)
