"""A process that has imported everything once, so that a fresh contestant costs a fork instead of four seconds.

It runs with one thread (a parallel operation before a fork would hang the child's first one for ever), never touches
CUDA and never sees a candidate. How it came to be is in `births`, what it has imported in `warmth`.

The judge sends `{"op": "learn", ...}` for what later contestants should find ready (`devices.cuda.launchers`), and
`{"op": "spawn", ...}` with the descriptors of a contestant (or of a workshop, which compiles for contestants) and a
*leash*, a socket of its own for each: over it the judge says `kill`, `freeze`, `rest` and the like, and hears how the
contestant ended. When a leash or the control socket closes, what hangs on it is killed: nothing outlives the judge.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kerneldojo.contestant import sandbox
from kerneldojo.contestant.pages import collapse_memory
from kerneldojo.contestant.sandbox import guests
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError

MANY = 30
"""Spawns after which huge pages would have paid: they are 0.4 s of work, and each spawn then takes 13 ms less of 45.
Whoever has come that far is likely to go on; most who have one candidate never do."""


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


def _contest(flavour: str, request: dict[str, Any], given: list[int]) -> None:
    """Be a contestant, or a reference runner, with these descriptors: its door, its arena's, its line if it has one."""
    from kerneldojo.contestant import serving
    from kerneldojo.contestant.workshop import Line

    line = Line(given.pop()) if request["has_line"] else None
    serving.main(flavour, given[0], given[1:], Path(request["scratch"]), request["device"], line)


def _work(flavour: str, request: dict[str, Any], given: list[int]) -> None:
    """Be a workshop with these descriptors: its door, and its lines."""
    from kerneldojo.contestant import flavours, workshop
    from kerneldojo.devices.cuda.compiler import Compiler
    from kerneldojo.devices.cuda.precompiled import Precompiled

    compiled: str | None = request.get("precompiled")
    precompiled = Precompiled(Path(compiled)) if compiled else None
    compiler = Compiler(flavours.find_toolchain(flavour, request["device"]), precompiled)
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
                started = {
                    "measures": list(contained.measures),
                    "keeper": contained.keeper,
                    "pid": contained.pid,
                    "freezer": contained.freezer,
                }
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
