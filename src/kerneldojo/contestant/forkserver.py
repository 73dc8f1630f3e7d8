"""A process that has imported everything once, so that a fresh contestant costs a fork instead of four seconds.

It is started by exec with a clean environment and no inherited descriptors but its control socket (a fork of the
judge would hold seeds and tokens), runs with one thread (a parallel operation before a fork would hang the child's
first one for ever), never touches CUDA and never sees a candidate. One flavour interprets kernels, one compiles them
for a target, one runs them on CUDA: Triton cannot do two of these in one process. Those that a judge needs at once are
*siblings*: the first imports what all of them import, which is half of the work, and forks the others.

The judge sends `{"op": "learn", ...}` for what later contestants should find ready (`devices.cuda.launchers`), and
`{"op": "spawn", ...}` with the descriptors of a contestant (or of a workshop, which compiles for contestants) and a
*leash*, a socket of its own for each: over it the judge says `kill`, `freeze`, `rest` and the like, and hears how the
contestant ended. When a leash or the control socket closes, what hangs on it is killed: nothing outlives the judge.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from kerneldojo.contestant import sandbox
from kerneldojo.contestant.pages import collapse_memory
from kerneldojo.contestant.sandbox import guests
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError

FLAVOURS = ("interpret", "compile", "cuda")
MANY = 8
"""Spawns after which huge pages pay: they are half a second's work, and spare a fork some ten milliseconds."""


@dataclass
class Slot:
    """A contestant that is alive, and the judge's leash on it."""

    contained: sandbox.Contained
    leash: Channel
    descriptors: list[int] = field(default_factory=list[int])
    """What it is given, until it has been forked."""
    watched: set[int] = field(default_factory=set[int])
    """Descriptors that the server waits for: its keeper's events and, until it is ending, its leash."""
    is_ending: bool = False
    """Whether it was told to end: nothing more is heard from its leash."""

    def let_go(self) -> None:
        """Close what was kept for it."""
        while self.descriptors:
            os.close(self.descriptors.pop())


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
            _import_what_all_need()
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


def settle_memory() -> None:
    """Leave nothing for a fork to collect.

    A descriptor whose owner is garbage here is closed by number when a child's collector finds the owner, and by then
    the number may be one of the child's own pipes. So garbage is collected here, before each fork, and never there
    until the child is itself. Frozen objects also keep their memory shared, for nobody's collector touches them.
    """
    gc.collect()
    gc.freeze()


def _import_what_all_need() -> None:
    """Without Triton, whose flavour is not settled yet."""
    import torch

    torch.set_num_threads(1)
    import_module("kerneldojo.contestant.rehearsal")


def warm_up(flavour: str) -> None:
    """Import and run once whatever every contestant would otherwise import and run itself."""
    if flavour == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported.
    # What is compiled here must really be compiled: a result from an earlier server's cache leaves the compiler cold.
    with tempfile.TemporaryDirectory(prefix="dojo-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            _rehearse(flavour)
        finally:
            del os.environ["TRITON_CACHE_DIR"]


def _rehearse(flavour: str) -> None:
    from kerneldojo.contestant import rehearsal

    if flavour == "cuda":
        from kerneldojo.devices.cuda import warm

        rehearsal.rehearse(interpreted=False)
        import_module("torch._dynamo")  # A second, which whatever is compared with torch.compile would pay each time.
        warm.prepare()
        return
    from kerneldojo.devices import interpreter, target

    if flavour == "interpret":
        interpreter.prepare()
        interpreter.warm_up()
        rehearsal.rehearse(interpreted=True)
    else:
        rehearsal.rehearse(interpreted=False, calls=False)
        target.warm_up()
        interpreter.pose()


def _contest(flavour: str, request: dict[str, Any], given: list[int]) -> None:
    """Be a contestant, or a reference runner, with these descriptors: its door, its arena's, its line if it has one."""
    from kerneldojo.contestant import runner
    from kerneldojo.contestant.workshop import Line

    line = Line(given.pop()) if request["has_line"] else None
    runner.main(flavour, given[0], given[1:], Path(request["scratch"]), request["device"], line)


def _work(flavour: str, request: dict[str, Any], given: list[int]) -> None:
    """Be a workshop with these descriptors: its door, and its lines."""
    from kerneldojo.contestant import platform, workshop
    from kerneldojo.devices.cuda.compiler import Compiler
    from kerneldojo.devices.cuda.precompiled import Precompiled

    compiled: str | None = request.get("precompiled")
    precompiled = Precompiled(Path(compiled)) if compiled else None
    compiler = Compiler(platform.find_toolchain(flavour, request["device"]), precompiled)
    workshop.main(given[0], given[1:], Path(request["scratch"]), compiler)


def last_line(text: str) -> str:
    """The last line of a traceback: what was raised."""
    return text.strip().rpartition("\n")[2]


class Server:
    """The loop: spawn on request, pass leashes on, report ends."""

    def __init__(
        self, control: Channel, flavour: str, features: sandbox.Features, porter: sandbox.Porter | None
    ) -> None:
        self._control = control
        self._flavour = flavour
        self._features = features
        self._porter = porter
        self._slots: list[Slot] = []
        self._num_spawned = 0
        self._learning: set[int] = set()
        # One for good: with a hundred sessions at rest, naming them all anew at every turn took longer than the turn.
        self._poller = select.poll()
        self._poller.register(control.fileno(), select.POLLIN)

    def serve(self) -> None:
        """Run until the control socket closes, then kill whatever is left."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle.
        try:
            while True:
                self._turn()
        except ChannelClosed:
            pass
        finally:
            for slot in self._slots:
                slot.contained.ask_to_end()
            for slot in self._slots:
                with contextlib.suppress(sandbox.SandboxError):  # One that failed leaves nothing, or said so before.
                    slot.contained.result()

    def _turn(self) -> None:
        ready = guests.wait(self._poller)
        owed: list[tuple[Slot, bool]] = []
        for slot in [slot for slot in self._slots if not ready.isdisjoint(slot.watched)]:
            if slot.contained.fileno() in ready:
                self._heard(slot)
            else:
                self._pulled(slot, owed)
        for slot, frozen in owed:  # All keepers were asked before any is waited for: windows freeze many at once.
            slot.contained.wait_frozen()
            self._answer(slot, {"frozen": frozen})
        for done in self._learning & ready:
            self._learning.remove(done)
            self._poller.unregister(done)
            self._launchers().finish(done)
        if self._control.fileno() in ready:
            order = self._control.receive(timeout=30)
            if order["op"] == "learn":
                begun = {done for types in order["launchers"] if (done := self._launchers().begin(types))}
                for done in begun:
                    self._poller.register(done, select.POLLIN)
                self._learning |= begun
            else:
                self._spawn(order)

    def _launchers(self) -> Any:
        from kerneldojo.devices.cuda import warm

        return warm.launchers()

    def _spawn(self, request: dict[str, Any]) -> None:
        fds = self._control.received_fds[:]
        self._control.received_fds.clear()
        leash_fd, *given = fds
        leash = Channel(socket.socket(fileno=leash_fd))
        environment: dict[str, str] = request["environment"]
        is_workshop: bool = request["is_workshop"]

        policy = sandbox.Policy(
            scratch=Path(request["scratch"]),
            readable=tuple(Path(path) for path in request["readable"]),
            device_nodes=tuple(Path(path) for path in request["device_nodes"]),
            limits=sandbox.Limits(**request["limits"]),
            keep_fds=tuple(given),
            gpu=self._flavour == "cuda" and not is_workshop,
            environment=environment,
        )
        gc.collect()
        self._num_spawned += 1
        if self._num_spawned == MANY:
            collapse_memory()
        try:
            main = partial(_work if is_workshop else _contest, self._flavour, request, given[:])
            contained = sandbox.begin(main, policy, self._features, self._porter)
        except OSError as error:
            with contextlib.suppress(WireError):
                leash.send({"failed": f"{type(error).__name__}: {last_line(str(error))}"})
            leash.close()
            for fd in given:
                os.close(fd)
            return
        slot = Slot(contained, leash, given)
        if contained.is_forked:
            slot.let_go()
        slot.watched = {contained.fileno(), leash.fileno()}
        for descriptor in slot.watched:
            self._poller.register(descriptor, select.POLLIN)
        self._slots.append(slot)

    def _heard(self, slot: Slot) -> None:
        """Its keeper has something to say: there is room for it, the sandbox has closed, and last how it ended."""
        try:
            if slot.contained.is_enclosed:
                message = {"ended": asdict(slot.contained.result())}
            else:
                if not slot.contained.is_forked:
                    gc.collect()
                slot.contained.hear()
                if not slot.contained.is_enclosed:
                    return
                contained = slot.contained
                started = {"measures": list(contained.measures), "keeper": contained.keeper, "pid": contained.pid}
                message = {"started": started}
        except sandbox.SandboxError as error:  # Its keeper failed: our fault, and no reason to lose the others.
            message = {"failed": f"{type(error).__name__}: {last_line(str(error))}"}
        finally:
            slot.let_go()
        self._answer(slot, message)
        if "started" not in message:
            self._slots.remove(slot)
            for descriptor in slot.watched:
                self._poller.unregister(descriptor)
            slot.leash.close()

    def _pulled(self, slot: Slot, owed: list[tuple[Slot, bool]]) -> None:
        """Carry out what its leash says: every order that has arrived, for a second one would not wake the poller.

        Orders to freeze or to thaw are begun only, and what is to be answered when they hold is added to `owed`.
        """
        self._obey(slot, owed)
        while not slot.is_ending and slot.leash.has_unread():
            self._obey(slot, owed)

    def _obey(self, slot: Slot, owed: list[tuple[Slot, bool]]) -> None:
        try:
            order = slot.leash.receive(timeout=5).get("op")
        except WireError:
            order = "kill"
        if order == "kill":
            slot.is_ending = True
            slot.watched.remove(slot.leash.fileno())
            self._poller.unregister(slot.leash.fileno())
            slot.contained.ask_to_end()
        elif order in ("rest", "wake"):
            slot.contained.rest(order == "rest")
        elif order in ("freeze", "thaw"):
            slot.contained.ask_to_freeze(order == "freeze")
            owed.append((slot, order == "freeze"))

    def _answer(self, slot: Slot, message: dict[str, Any]) -> None:
        # The judge may have let go of this contestant: what was to be killed is dead all the same.
        with contextlib.suppress(WireError):
            slot.leash.send(message, timeout=5)
