"""Leaving nothing behind: how a keeper kills all that is below it, and gives back what it had borrowed.

What the kernel offers is used in this order: the first process of a PID namespace takes all others in it along; a
control group can be killed as a whole; a user of its own may kill all that is its own, in one call which no fork
escapes; and what descends from us is stopped before it is killed, so that it cannot fork while we go through the list.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.cgroups import Group
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.meters import Guest
from kerneldojo.contestant.sandbox.users import HeldUid

_ORPHANED_SECONDS = 5.0
"""How long a keeper whose owner is gone waits for whoever inherits its dead guest to notice."""


@dataclass(frozen=True)
class Broom:
    """Sweeps below this process, a keeper."""

    plan: Plan
    child: int
    """Process id of the first process inside, or of the contestant where there is none."""
    group: Group | None
    uid: HeldUid | None
    owner_uid: int
    guest: Guest | None
    """The contestant, where the owner has forked it."""
    control: socket.socket
    """To the owner: closed when it is gone."""

    def sweep(self) -> int:
        """Kill everything until nothing is left; returns the wait status of the child."""
        status = 0
        pause = 0.0002
        started = time.monotonic()
        while not self._is_stranded(started):
            self._strike()
            try:
                while True:
                    pid, its_status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    if pid == self.child:
                        status = its_status
            except ChildProcessError:
                return status
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return status

    def _is_stranded(self, since: float) -> bool:
        """Whether all is dead, and whoever should reap our guest does not: its owner is gone, too.

        The first process of a PID namespace ends only when all in it have been reaped, and the guest is not its child.
        """
        if self.guest is None or not self.guest.has_ended() or time.monotonic() - since < _ORPHANED_SECONDS:
            return False
        try:
            return not self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def _strike(self) -> None:
        if self.plan.features.pid_namespace:
            processes.send([self.child], signal.SIGKILL)  # the kernel kills the namespace with its first process
        elif self.group is None or not self.group.kill():
            if self.uid is not None:
                _kill_user(self.uid)
            # Stop before killing: what is stopped cannot fork behind our back while we go through the list.
            below = processes.descendants(os.getpid())
            processes.send(below, signal.SIGSTOP)
            processes.send({*below, *processes.descendants(os.getpid())}, signal.SIGKILL)
        if self.group is not None and not self.group.kills:
            self.group.set_frozen(False)  # a frozen process of version 1 dies only once thawed

    def clean_up(self) -> None:
        """Give back group, user and folder, once nothing is left."""
        scratch = Path(self.plan.policy.scratch)
        if self.group is not None:
            self.group.remove()
        if self.uid is not None:
            # The number will serve another contestant, which must not find this folder open to it.
            os.chown(scratch, self.owner_uid, -1)
            scratch.chmod(0o700)
            self.uid.close()


def _kill_user(uid: HeldUid) -> None:
    """As that user, kill all that it may kill: one call, which no fork escapes."""
    helper = os.fork()
    if helper == 0:
        try:
            uid.become(())
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(helper, 0)
