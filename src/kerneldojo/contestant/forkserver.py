"""A process that has imported everything once, so that a fresh contestant costs a fork instead of four seconds.

It is started by exec with a clean environment and no inherited descriptors but its control socket (a fork of the
judge would hold seeds and tokens), runs with one thread (a parallel operation before a fork would hang the child's
first one for ever), never touches CUDA and never sees a candidate. One flavour interprets kernels, one compiles them
for a target, one runs them on CUDA: Triton cannot do two of these in one process.

The judge sends `{"op": "spawn", ...}` with the contestant's descriptors and a *leash*, a socket of its own for each
contestant: over it the judge says `kill`, `freeze` or `thaw`, and hears how the contestant ended. When a leash or the
control socket closes, what hangs on it is killed: nothing outlives the judge.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kerneldojo.contestant import sandbox
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError

FLAVOURS = ("interpret", "compile", "cuda")


@dataclass
class Slot:
    """A contestant that is alive, and the judge's leash on it."""

    contained: sandbox.Contained
    leash: Channel


def main(flavour: str, control_fd: int) -> None:
    """Warm up, then serve until the judge is gone."""
    control = Channel(socket.socket(fileno=control_fd))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        warm_up(flavour)
        settle_memory()
        features = sandbox.probe()
        control.send({"ready": flavour, "pid": os.getpid(), "features": features.as_json()})
        Server(control, flavour, features).serve()
    except ChannelClosed:
        return
    except Exception:
        traceback.print_exc()
        with contextlib.suppress(WireError):
            control.send({"failed": traceback.format_exc(limit=8)[-4000:]})
        sys.exit(1)


def settle_memory() -> None:
    """Leave nothing for a fork to collect.

    A descriptor whose owner is garbage here is closed by number when a child's collector finds the owner, and by then
    the number may be one of the child's own pipes. So garbage is collected here, before each fork, and never there
    until the child is itself. Frozen objects also keep their memory shared, for nobody's collector touches them.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def warm_up(flavour: str) -> None:
    """Import and run once whatever every contestant would otherwise import and run itself."""
    import torch

    torch.set_num_threads(1)
    from kerneldojo.contestant import rehearsal

    if flavour == "cuda":
        from kerneldojo.devices.cuda import warm

        rehearsal.rehearse(interpreted=False)
        warm.prepare()
        return
    from kerneldojo.devices import interpreter, target

    if flavour == "interpret":
        interpreter.prepare()
        interpreter.warm_up()
        rehearsal.rehearse(interpreted=True)
    else:
        target.warm_up()


def last_line(text: str) -> str:
    """The last line of a traceback: what was raised."""
    return text.strip().rpartition("\n")[2]


class Server:
    """The loop: spawn on request, pass leashes on, report ends."""

    def __init__(self, control: Channel, flavour: str, features: sandbox.Features) -> None:
        self._control = control
        self._flavour = flavour
        self._features = features
        self._slots: list[Slot] = []

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
                slot.contained.kill()

    def _turn(self) -> None:
        poller = select.poll()
        poller.register(self._control.fileno(), select.POLLIN)
        for slot in self._slots:
            poller.register(slot.contained.fileno(), select.POLLIN)
            poller.register(slot.leash.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poller.poll()}
        for slot in list(self._slots):
            if slot.contained.fileno() in ready:
                self._ended(slot)
            elif slot.leash.fileno() in ready:
                self._pulled(slot)
        if self._control.fileno() in ready:
            self._spawn(self._control.receive(timeout=30))

    def _spawn(self, request: dict[str, Any]) -> None:
        fds = self._control.received_fds[:]
        self._control.received_fds.clear()
        leash_fd, door_fd, *arena_fds = fds
        leash = Channel(socket.socket(fileno=leash_fd))
        environment: dict[str, str] = request["environment"]

        def contestant() -> None:
            from kerneldojo.contestant import runner

            runner.main(self._flavour, door_fd, arena_fds, Path(request["scratch"]), request["device"])

        policy = sandbox.Policy(
            scratch=Path(request["scratch"]),
            readable=tuple(Path(path) for path in request["readable"]),
            device_nodes=tuple(Path(path) for path in request["device_nodes"]),
            limits=sandbox.Limits(**request["limits"]),
            keep_fds=(door_fd, *arena_fds),
            gpu=self._flavour == "cuda",
            environment=environment,
        )
        gc.collect()
        try:
            contained = sandbox.launch(contestant, policy, self._features)
        except Exception as error:
            with contextlib.suppress(WireError):
                leash.send({"failed": f"{type(error).__name__}: {last_line(str(error))}"})
            leash.close()
            return
        finally:
            for fd in (door_fd, *arena_fds):
                os.close(fd)
        self._slots.append(Slot(contained, leash))
        self._answer(self._slots[-1], {"started": {"measures": list(contained.measures)}})

    def _pulled(self, slot: Slot) -> None:
        try:
            order = slot.leash.receive(timeout=5).get("op")
        except WireError:
            order = "kill"
        if order == "kill":
            slot.contained.ask_to_end()
            self._ended(slot)
        elif order == "freeze":
            slot.contained.freeze()
            self._answer(slot, {"frozen": True})
        elif order == "thaw":
            slot.contained.thaw()
            self._answer(slot, {"frozen": False})

    def _ended(self, slot: Slot) -> None:
        self._slots.remove(slot)
        try:
            self._answer(slot, {"ended": asdict(slot.contained.result())})
        except sandbox.SandboxError as error:  # Its keeper failed: our fault, and no reason to lose the others.
            self._answer(slot, {"failed": last_line(str(error))})
        slot.leash.close()

    def _answer(self, slot: Slot, message: dict[str, Any]) -> None:
        # The judge may have let go of this contestant: what was to be killed is dead all the same.
        with contextlib.suppress(WireError):
            slot.leash.send(message, timeout=5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
