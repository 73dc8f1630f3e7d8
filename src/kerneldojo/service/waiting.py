"""Who waits for what: requests for certain tasks. Each holds no more memory than the ids that it asked for."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

from kerneldojo.service.acceptance import Busy
from kerneldojo.service.records import TaskState

WATCH_SECONDS = 1.0
"""How often a request that waits is looked at: whether its client is still there."""


class Waiters:
    """Requests that wait for tasks to end. Lives on the event loop's thread.

    Args:
        max_waiting: requests that may wait at once.
        states: the states of tasks by id, as the store has them.
    """

    def __init__(self, max_waiting: int, states: Callable[[list[str]], Mapping[str, TaskState]]) -> None:
        self._max_waiting, self._states = max_waiting, states
        self._mailboxes: defaultdict[str, set[asyncio.Queue[str | None]]] = defaultdict(set)
        self._open: set[asyncio.Queue[str | None]] = set()
        self._is_dismissed = False

    def __len__(self) -> int:
        return len(self._open)

    async def wait(
        self, task_ids: Sequence[str], timeout: float, is_abandoned: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Return when all of these tasks have ended, when `timeout` seconds have passed, or when the service stops.

        Also when nobody waits any more, which is asked about once a second: there are only so many places to wait.

        Raises:
            Busy: too many requests wait already.
        """
        asked_at = time.monotonic()
        async with aclosing(self.follow(task_ids, timeout=timeout, pulse=WATCH_SECONDS)) as ended:
            async for _ in ended:
                if time.monotonic() - asked_at >= WATCH_SECONDS:
                    if is_abandoned is not None and await is_abandoned():
                        return
                    asked_at = time.monotonic()

    async def follow(
        self, task_ids: Sequence[str], *, timeout: float = float("inf"), pulse: float = 15.0
    ) -> AsyncGenerator[str | None]:
        """Each of these tasks' ids as it ends, and None after every `pulse` seconds of nothing.

        Ends when all have ended, after `timeout` seconds, or when the service stops.

        Raises:
            Busy: too many requests wait already.
        """
        self.check()
        deadline = time.monotonic() + timeout
        pending = set(task_ids)
        mailbox = self._join(pending)
        try:
            # Joined first, read second: what ends in between is told twice, never missed.
            for task_id, state in self._states(list(pending)).items():
                if state.is_terminal:
                    mailbox.put_nowait(task_id)
            while pending and not (self._is_dismissed and mailbox.empty()):
                left = deadline - time.monotonic()
                try:
                    task_id = await asyncio.wait_for(mailbox.get(), max(0.001, min(left, pulse)))
                except TimeoutError:
                    if left <= pulse:
                        return
                    yield None
                    continue
                if task_id in pending:
                    pending.discard(task_id)
                    yield task_id
        finally:
            self._leave(mailbox, task_ids)

    def check(self) -> None:
        """Refuse one more request that waits where there are too many.

        Raises:
            Busy: there are.
        """
        if len(self) >= self._max_waiting:
            raise Busy("too many requests wait for results", 2)

    def tell(self, task_id: str) -> None:
        """A task has ended."""
        for mailbox in self._mailboxes.get(task_id, ()):
            mailbox.put_nowait(task_id)

    def dismiss(self) -> None:
        """The service stops."""
        self._is_dismissed = True
        for mailbox in self._open:
            mailbox.put_nowait(None)

    def _join(self, task_ids: Iterable[str]) -> asyncio.Queue[str | None]:
        """A mailbox that gets each id when its task ends, and None when the service stops."""
        mailbox: asyncio.Queue[str | None] = asyncio.Queue()
        for task_id in task_ids:
            self._mailboxes[task_id].add(mailbox)
        self._open.add(mailbox)
        return mailbox

    def _leave(self, mailbox: asyncio.Queue[str | None], task_ids: Iterable[str]) -> None:
        """Forget a mailbox."""
        self._open.discard(mailbox)
        for task_id in task_ids:
            mailboxes = self._mailboxes.get(task_id)
            if mailboxes is not None:
                mailboxes.discard(mailbox)
                if not mailboxes:
                    del self._mailboxes[task_id]
