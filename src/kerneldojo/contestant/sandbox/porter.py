"""A small process beside a large one, from which keepers are forked.

A keeper, and the first process of a PID namespace, need nothing of what a fork server has imported; but a fork of a
fork server costs milliseconds for its page tables alone, and as many when it ends. So the fork server leaves a porter
behind before it grows, and forks from itself only what runs candidates.

The porter knows nobody: it is told what to keep, hands the keeper its two sockets, and has no part in what follows. It
ends when the fork server that it works for does, or closes it; its keepers watch their owner by themselves.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from kerneldojo.contestant.pages import collapse_memory
from kerneldojo.contestant.sandbox import guests
from kerneldojo.contestant.sandbox.cgroups import host_groups
from kerneldojo.contestant.sandbox.enclosure import close_all_but
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.filesystem import resolved
from kerneldojo.contestant.sandbox.keeper import keep
from kerneldojo.contestant.sandbox.policy import Limits, Policy

_LARGEST_ORDER = 1 << 18


class Porter:
    """Forks a porter from this process, which should be small now, and have one thread.

    From now on the children of this process that are guests are reaped as they end (see `guests`). A fork of this
    process may take it over.
    """

    def __init__(self) -> None:
        guests.watch()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs)
        theirs.close()

    def have_kept(self, policy: Policy, features: Features, events: socket.socket, control: socket.socket) -> None:
        """Have a keeper forked that makes room for a guest.

        Args:
            policy: its world.
            features: what to use of the host.
            events: as in `keeper.keep`.
            control: as in `keeper.keep`.

        Raises:
            OSError: the porter is gone, or does not listen.
        """
        given = [(status.st_dev, status.st_ino) for status in map(os.fstat, policy.keep_fds)]
        order = {"policy": _as_json(policy), "features": features.as_json(), "given": given}
        message = json.dumps(order).encode()
        if len(message) > _LARGEST_ORDER:
            raise OSError(f"an order of {len(message)} bytes is too long for a porter")
        socket.send_fds(self._socket, [message], [events.fileno(), control.fileno()])

    def let_go(self) -> None:
        """Leave it to a fork of this process, or to the one that this is a fork of. It ends when all have let go."""
        self._socket.close()

    def close(self) -> None:
        """End it, and wait for that. Its keepers go on."""
        self._socket.close()
        os.waitpid(self.pid, 0)


def _as_json(policy: Policy) -> dict[str, Any]:
    """What a keeper has to know of a policy: the environment and the descriptors are for the contestant alone."""
    return {
        "scratch": str(policy.scratch),
        "readable": [str(path) for path in policy.readable],
        "device_nodes": [str(path) for path in policy.device_nodes],
        "limits": asdict(policy.limits),
        "gpu": policy.gpu,
    }


def _policy(told: dict[str, Any]) -> Policy:
    return Policy(
        scratch=Path(told["scratch"]),
        readable=tuple(map(Path, told["readable"])),
        device_nodes=tuple(map(Path, told["device_nodes"])),
        limits=Limits(**told["limits"]),
        gpu=told["gpu"],
    )


def _serve(orders: socket.socket) -> NoReturn:
    """Body of the porter. Ends the process."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)  # Of SIGCHLD: the kernel reaps keepers.
        close_all_but({orders.fileno()})
        gc.collect()
        gc.freeze()
        gc.disable()
        host_groups()  # So that its forks find done what is the same for all.
        collapse_memory()
        while True:
            message, descriptors, _, _ = socket.recv_fds(orders, _LARGEST_ORDER, 2)
            if not message:
                break
            _fork_keeper(json.loads(message), descriptors)
            gc.collect()
        code = 0
    finally:
        os._exit(code)


def _fork_keeper(order: dict[str, Any], descriptors: Collection[int]) -> None:
    """One keeper; that it could not be forked is told by its sockets, which close."""
    policy = _policy(order["policy"])
    resolved(policy.readable)  # Here, so that the next one finds it done.
    try:
        if os.fork() == 0:
            events, control = (socket.socket(fileno=descriptor) for descriptor in descriptors)
            given = {(device, inode) for device, inode in order["given"]}
            keep(None, policy, Features.from_json(order["features"]), events, control, given)
    except OSError:
        pass
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
