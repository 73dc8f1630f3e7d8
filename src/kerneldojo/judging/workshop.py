"""A verdict's workshop as the judge holds it: where an extension is compiled once, for the contestant and for its twin.

`contestant.workshop` is what runs in it, and says why it is a process of its own. The judge makes the lines, gives one
end of each to whom it is for, and has no part in what is said on them.
"""

from __future__ import annotations

import logging
import socket

from kerneldojo.judging.ends import Died, HostedEnd, Infrastructure
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.gated_session import GatedSession
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.ruling import LIMITS
from kerneldojo.languages import Language

NUM_LINES = 7
"""One of who has imported the source before anybody else, if somebody has (`judging.ahead`), and `NUM_SIDES` in each of
three rooms: in more of them hardly any verdict begins."""
NUM_SIDES = 2
"""Contestant and twin."""
COUNT_SECONDS = 10.0
"""For saying how much it has built."""

log = logging.getLogger(__name__)


class Lines:
    """Sockets between a workshop and those that it works for. A session holds them as others hold an arena."""

    is_left = False

    def __init__(self) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(NUM_LINES)]
        self._workshops = [ours for ours, _ in pairs]
        self._theirs = [theirs for _, theirs in pairs]

    @property
    def fds(self) -> list[int]:
        """The workshop's own ends."""
        return [end.fileno() for end in self._workshops]

    @property
    def num_left(self) -> int:
        """How many of the other ends nobody was given."""
        return len(self._theirs)

    def take(self) -> socket.socket:
        """One of the other ends, to be given away."""
        return self._theirs.pop(0)

    def hand_over(self) -> None:
        """The workshop has its ends: with ours open, nobody would see it end."""
        for end in self._workshops:
            end.close()

    def close(self) -> None:
        """Close what was not given away."""
        self.hand_over()
        for end in self._theirs:
            end.close()


class Workshop:
    """One verdict's. Nothing is made before somebody asks for a line."""

    def __init__(self) -> None:
        self._lines: Lines | None = None
        self._session: GatedSession | None = None
        self._stands_still = False

    def line(self) -> socket.socket:
        """A line to it; what is said on it waits until the workshop opens."""
        self._lines = self._lines or Lines()
        return self._lines.take()

    def open(self, bench: Bench, protocol: Protocol, guest: Guest) -> list[GatedSession]:
        """Start it if somebody has a line to it; its session, which is to end with the verdict's others."""
        if self._lines is None:
            return []
        self._session = bench.workshop(self._lines, protocol, guest)
        self._lines.hand_over()
        return [self._session]

    @property
    def is_open(self) -> bool:
        """Whether it is there, so that a line to it is worth having."""
        return self._session is not None

    @property
    def is_ready(self) -> bool:
        """Whether it may serve in one more room."""
        if self._lines is None or self._session is None or self._stands_still:
            return False
        return self._lines.num_left >= NUM_SIDES and not self._session.has_ended()

    def stand_still(self) -> None:
        """Do nothing while time is taken, for a twin that comes later; it is nobody's to stop or to give a core to."""
        self._stands_still = True
        if self._session is not None:
            self._session.part()
            self._session.freeze()

    def go_on(self) -> None:
        """The twin comes now."""
        self._stands_still = False
        if self._session is not None:
            self._session.thaw()

    def check(self) -> None:
        """See whether it has had its share in what went wrong: who loses it builds alone, and may come too late.

        Raises:
            Infrastructure: something other than the work it was given has ended it.
        """
        if self._session is None or not self._session.has_ended():
            return
        end = Died(self._session.ended or {})
        if end.cause not in ("memory", *LIMITS):
            raise Infrastructure(f"a workshop ended: {end}")

    def close(self) -> tuple[int, int] | None:
        """End it: all have what they ordered, and what runs while time is taken takes part of it.

        Returns:
            how many orders it has built, and how many libraries it has given; None if there was none to say so.
        """
        session, self._session = self._session, None
        if session is None:
            return None
        try:
            counts = session.ask("count", timeout=COUNT_SECONDS)
            return int(counts["num_built"]), int(counts["num_given"])
        except HostedEnd as end:
            log.warning("a workshop could not say what it has built: %s", end)
            return None
        finally:
            session.close()

    def abandon(self) -> None:
        """Close the lines that nobody was given."""
        if self._lines is not None:
            self._lines.close()


def is_slow_to_build(language: Language, protocol: Protocol) -> bool:
    """Whether importing a source of this language may take long, for it is compiled then."""
    return language.build_seconds > protocol.load_timeout


def build_seconds(language: Language, protocol: Protocol) -> float:
    """How long importing a source may take."""
    return max(protocol.load_timeout, language.build_seconds)
