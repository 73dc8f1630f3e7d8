"""The silent twin on its way: a second contestant, in which the candidate's own kernels are no-ops from birth.

Only a candidate that passes its rounds needs one, and its context is what a GPU cannot make many of. So it sets out
when a first round was passed with a kernel of the candidate's own, and takes its steps between the rounds that follow:
each is begun, and looked at again after the next round, so that nobody waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager

from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.ruling import Ruling

OPEN_SECONDS = 60.0
"""For making one context, while others make theirs."""


class Twin:
    """One twin, from the moment it is locked in until the candidate's source is loaded and its device open.

    Args:
        contestant: its process.
        build_seconds: how long it may take to load.
        opening: around making its context where the source is loaded before: says whose fault a failure is.
        is_loading: whether the source is being loaded already; else that comes after the context.
        is_beside_windows: whether its context may be made while another verdict is timed.
    """

    def __init__(
        self,
        contestant: Contestant,
        build_seconds: float,
        opening: Callable[[], AbstractContextManager[None]],
        *,
        is_loading: bool = False,
        is_beside_windows: bool = False,
    ) -> None:
        self.contestant = contestant
        self._build_seconds = build_seconds
        self._opening = opening
        self._is_beside_windows = is_beside_windows
        self._has_set_out = False
        self._outcome: bool | None = None
        self._steps = self._open_loaded() if is_loading else self._open_and_load()

    def advance(self) -> None:
        """Set out, or take whatever steps need no waiting.

        Raises:
            Infrastructure: it broke where nothing of the candidate's had run in it.
        """
        while self._outcome is None and (not self._has_set_out or self.contestant.hosted.session.has_answered()):
            self._step()

    def arrive(self) -> bool:
        """Wait until it is there. False if the candidate broke in it: what needs its kernels to load depends on them.

        Raises:
            Infrastructure: as `advance`.
        """
        while self._outcome is None:
            self._step()
        return self._outcome

    def _step(self) -> None:
        self._has_set_out = True
        try:
            next(self._steps)
        except StopIteration as end:
            self._outcome = end.value

    def _open_and_load(self) -> Generator[None, None, bool]:
        """Each `yield` is a wait for an answer; returns whether all went well."""
        twin = self.contestant
        twin.wait_ready(self._build_seconds)
        with ours():
            twin.post_open(beside_windows=self._is_beside_windows)
        yield
        with ours():
            twin.collect_open(OPEN_SECONDS)
        try:
            twin.post_load()
            yield
            twin.collect_load(self._build_seconds)
        except (Ruling, HostedEnd):
            return False
        return True

    def _open_loaded(self) -> Generator[None, None, bool]:
        twin = self.contestant
        try:
            yield
            twin.collect_load(self._build_seconds)
            with self._opening():
                twin.post_open()
                yield
                twin.collect_open(OPEN_SECONDS)
        except (Ruling, HostedEnd):
            return False
        return True


@contextlib.contextmanager
def ours() -> Generator[None]:
    """Nothing of the candidate's has run in it: whatever ends it is a fault of ours."""
    try:
        yield
    except HostedEnd as end:
        raise Infrastructure(f"a process that had seen nothing could not open its device: {end}") from None
