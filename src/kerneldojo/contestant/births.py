"""How fork servers come to be: executed small, warmed up, and those that a judge needs at once forked from the first.

Each is started by exec with a clean environment and no inherited descriptors but its control socket (a fork of the
judge would hold seeds and tokens). Those that a judge needs at once are *siblings*: the first imports what all of them
import, which is half of the work, and forks the others. Whatever forks often is made before that, while this process
is small; and until a server is warm, the kernel ends it with its judge.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import socket
import sys
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from kerneldojo.contestant import sandbox
from kerneldojo.contestant.forkserver import Server
from kerneldojo.contestant.sandbox import guests
from kerneldojo.contestant.warmth import import_what_all_need, settle_memory, warm_up
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError


@dataclass(frozen=True)
class Birth:
    """What a fork server is born with."""

    flavour: str
    control: Channel
    porter: sandbox.Porter | None

    @classmethod
    def of(cls, flavour: str, control_fd: int) -> Birth:
        """To be made while this process is small: its porter is forked from it.

        What uses a GPU has none and is forked as ever: where cores are reserved, processes are found by descent.
        """
        porter = None if flavour == "cuda" else sandbox.Porter()
        return cls(flavour, Channel(socket.socket(fileno=control_fd)), porter)

    def let_go(self) -> None:
        """Close what another process has been born with."""
        self.control.close()
        if self.porter is not None:
            self.porter.let_go()


def main(*servers: tuple[str, int]) -> None:
    """Be the first of these fork servers, and fork the others.

    Args:
        servers: flavour and control socket of each.
    """
    gc.disable()  # For good; searching what is being imported would be a fifth of the time until we are warm.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    own, *siblings = [Birth.of(*server) for server in servers]
    try:
        # While this process is small: it forks some thirty times, and with torch imported each takes ten milliseconds.
        sandbox.sweep_groups()
        features = sandbox.probe()
        with ending_with_the_judge(own.control):
            import_what_all_need()
            settle_memory()  # For all of them at once; what each imports itself is little.
        own = _with_siblings(own, siblings)
        _be(own, features)
    except ChannelClosed:
        return
    except Exception:
        # The judge prints it. If it is gone, its temporary folder is too, and nobody cares what failed for want of it.
        with contextlib.suppress(WireError):
            own.control.send({"failed": traceback.format_exc(limit=8)[-4000:]})
        sys.exit(1)


def _with_siblings(own: Birth, siblings: Sequence[Birth]) -> Birth:
    """Fork them; returns whose life this process is to live: in a fork, the sibling's."""
    for number, sibling in enumerate(siblings):
        pid = os.fork()
        if pid == 0:
            for other in (own, *siblings[number + 1 :]):
                other.let_go()
            os.setsid()
            guests.watch()
            return sibling
        guests.leave(pid)
        if sibling.porter is not None:
            guests.leave(sibling.porter.pid)
        sibling.let_go()
    return own


def _be(birth: Birth, features: sandbox.Features) -> None:
    """Warm up, then serve until the judge is gone."""
    control = birth.control
    with ending_with_the_judge(control):
        control.send({"born": os.getpid()})
        warm_up(birth.flavour)
    settle_memory()
    control.send({"ready": birth.flavour, "features": features.as_json()})
    Server(control, birth.flavour, features, birth.porter).serve()


@contextlib.contextmanager
def ending_with_the_judge(control: Channel) -> Generator[None]:
    """While this lasts, the kernel ends this process when the judge is gone: nobody is served by what it warms up.

    By SIGIO, which ends whoever does not handle it: the judge says nothing before it has heard of us, so all that can
    happen to the socket until then is that its other end is closed.
    """
    flags = fcntl.fcntl(control.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(control.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        poller = select.poll()
        poller.register(control.fileno(), 0)
        if poller.poll(0):  # It was gone before there was anybody to tell.
            raise ChannelClosed("the judge is gone")
        yield
    finally:
        fcntl.fcntl(control.fileno(), fcntl.F_SETFL, flags)
