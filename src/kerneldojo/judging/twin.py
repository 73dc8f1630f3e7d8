"""The silent twin on its way: a second contestant, in which the candidate's own kernels are no-ops from birth.

Only a candidate that passes its rounds needs one, and its context is what a GPU cannot make many of. Most need none
(`silence`): then it sets out when it is asked, if it is. Where it is to be asked in any case it sets out when a first
round was passed with a kernel of the candidate's own, and takes its steps between the rounds that follow: each is
begun, and looked at again after the next round, so that nobody waits for it. The last is a first call, in which its
kernels are compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Literal

from kerneldojo.judging.blanks import OPEN_SECONDS
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, Infrastructure, frameless
from kerneldojo.judging.ruling import Ruling

TWIN_SECONDS = 20.0
"""For a first call; one that hangs without its kernels depends on them."""

Begun = Literal["open", "loading", "enclosed"]
"""How far its process is at first: it has a device, or the source is being loaded in it, or it has nothing yet."""


class Twin:
    """One twin, from the moment it is locked in until the candidate's source is loaded and its device open.

    Args:
        bring: gives its process, as far as `begun` says; None if there is none yet, unless told to wait for it.
        build_seconds: how long it may take to load.
        opening: around making its context where the source is loaded before: says whose fault a failure is.
        begun: how far its process is.
    """

    def __init__(
        self,
        bring: Callable[[bool], Contestant | None],
        build_seconds: float,
        opening: Callable[[Contestant], AbstractContextManager[None]],
        begun: Begun = "enclosed",
    ) -> None:
        self.contestant: Contestant | None = None
        """Its process, once it has set out."""
        self.rehearse: Callable[[Contestant], bool] = lambda _: False
        """Begins a first call of it, once it is loaded; whether it got so far. What comes of it says nothing."""
        self._bring = bring
        self._build_seconds = build_seconds
        self._opening = opening
        self._outcome: bool | None = None
        self._begun: Begun = begun
        self._steps: Generator[None, None, bool] | None = None

    def advance(self) -> None:
        """Set out, or take whatever steps need no waiting.

        Raises:
            Infrastructure: it broke where nothing of the candidate's had run in it.
        """
        if not self._has_set_out(is_waiting=False):
            return
        assert self.contestant is not None
        while self._outcome is None and self.contestant.hosted.session.has_answered():
            self._step()

    def arrive(self) -> bool:
        """Wait until it is there. False if the candidate broke in it: what needs its kernels to load depends on them.

        Raises:
            Infrastructure: as `advance`.
        """
        self._has_set_out(is_waiting=True)
        while self._outcome is None:
            self._step()
        return self._outcome

    def _has_set_out(self, *, is_waiting: bool) -> bool:
        """Whether it has; else it does, if there is a process for it."""
        if self._steps is None and (found := self._bring(is_waiting)) is not None:
            self.contestant = found
            ways = {"open": self._load_opened, "loading": self._open_loaded, "enclosed": self._open_and_load}
            self._steps = ways[self._begun](found)
            self._step()
        return self._steps is not None

    def _step(self) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            self._outcome = end.value

    def _load_opened(self, twin: Contestant) -> Generator[None, None, bool]:
        """Each `yield` is a wait for an answer; returns whether all went well."""
        if not twin.is_furnished:
            twin.post_furnish()
            yield
            twin.collect_furnish(OPEN_SECONDS)
        return (yield from self._load(twin))

    def _open_and_load(self, twin: Contestant) -> Generator[None, None, bool]:
        twin.furnish(self._build_seconds)
        with ours():
            twin.post_open()
        yield
        with ours():
            twin.collect_open(OPEN_SECONDS)
        return (yield from self._load(twin))

    def _load(self, twin: Contestant) -> Generator[None, None, bool]:
        try:
            twin.post_load()
            yield
            twin.collect_load(self._build_seconds)
        except (Ruling, HostedEnd):
            return False
        if self.rehearse(twin):
            yield
            with contextlib.suppress(Ruling):  # Without its kernels it may break, and how does not matter.
                twin.collect_call(TWIN_SECONDS)
        return True

    def _open_loaded(self, twin: Contestant) -> Generator[None, None, bool]:
        try:
            yield
            twin.collect_load(self._build_seconds)
            with self._opening(twin):
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
        reason = f"a process that had seen nothing could not open its device: {frameless(end)}"
        raise Infrastructure(reason) from None
