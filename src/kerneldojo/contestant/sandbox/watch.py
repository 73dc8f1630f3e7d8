"""What a keeper does while its contestant runs: wait, drain output, look at the meters, obey its owner.

It wakes only as often as a limit could be exceeded in between, for a machine has dozens of keepers and most of their
contestants wait for work.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.cgroups import Group
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.meters import Meters
from kerneldojo.contestant.sandbox.policy import Cause

_TICK_SECONDS = 0.02
_TICK_WHERE_HELD_SECONDS = 0.05
"""Where the kernel holds memory and processes, only the scratch folder is looked at, and no more often than this."""
_TICK_WITH_ROOM_SECONDS = 0.1
"""The same while much is left of that folder: see `Meters.has_room`."""
_TICK_WITHOUT_PIDFD_SECONDS = 0.01
_TICK_AT_REST_SECONDS = 1.0
"""While it waits for work, which its owner says: then it runs nothing that could exceed a limit."""
_FROZEN_AT_REST_SECONDS = 60.0
"""One that has rested for a tick is stopped where the kernel can do that, and not looked at for so long; then it runs
for another tick, so that it notices what time it is."""


class Watch:
    """One contestant from its first line to its end."""

    def __init__(
        self, plan: Plan, group: Group | None, meters: Meters, child: int, control: socket.socket, output: int
    ) -> None:
        """Prepare to watch.

        Args:
            plan: the contestant's world.
            group: its control groups, if any.
            meters: its limits.
            child: the keeper's own child, which is the contestant or the first process of its namespace.
            control: requests of the owner: `kill`, `rest`, `wake`, `freeze`, `thaw`, `memory`; see `keeper.keep`.
            output: where what it writes is read; reading it does not block.
        """
        self._plan, self._group, self._meters, self._child = plan, group, meters, child
        self._control, self._output = control, output
        self._is_resting = self._is_stopped_at_rest = self._is_frozen = False
        self.output = bytearray()
        """The beginning of what it wrote."""

    def until_it_ends(self, started: float) -> Cause:
        """Watch until the contestant has ended, has exceeded a limit, or is to be killed: which of these.

        Args:
            started: when its deadline began to run, by the monotonic clock.
        """
        poll, pidfd = select.poll(), -1
        for descriptor in (self._control.fileno(), self._output):
            poll.register(descriptor, select.POLLIN)
        if self._plan.features.pidfd:
            pidfd = self._meters.guest.pidfd if self._meters.guest else os.pidfd_open(self._child)
            poll.register(pidfd, select.POLLIN)
        tick = _TICK_SECONDS if pidfd >= 0 else _TICK_WITHOUT_PIDFD_SECONDS
        if pidfd >= 0 and self._group is not None and self._group.limits_memory and self._group.limits_processes:
            tick = _TICK_WHERE_HELD_SECONDS
        cause: Cause | None = None
        while cause is None:
            was_resting = self._is_resting
            ready = {descriptor for descriptor, _ in poll.poll(self._pause(tick) * 1000)}
            if self._is_resting and not ready:
                self._stop_at_rest(not self._is_stopped_at_rest)
            if self._output in ready and not self.drain():
                poll.unregister(self._output)
            if self._control.fileno() in ready and not self._obey():
                cause = "killed"
            elif self._has_ended():
                cause = "exited"
            elif self._is_resting or not was_resting:  # Who was woken just now has its turn a tick later.
                cause = self._exceeded(started)
        return cause

    def _pause(self, tick: float) -> float:
        """Seconds until its limits have to be looked at again."""
        if self._is_stopped_at_rest:
            return _FROZEN_AT_REST_SECONDS
        if self._is_resting:
            return _TICK_AT_REST_SECONDS
        has_time = tick == _TICK_WHERE_HELD_SECONDS and self._plan.policy.limits.deadline_seconds is None
        return _TICK_WITH_ROOM_SECONDS if has_time and self._meters.has_room else tick

    def _stop_at_rest(self, stop: bool) -> None:
        """Stop what rests or let it go on: what does not run exceeds no limit, and costs its keeper nothing.

        Only by the unified hierarchy, in which what is frozen can be killed all the same, whoever kills it.
        """
        can_stop = "freeze" in self._plan.features.cgroup_v2 and self._plan.policy.limits.deadline_seconds is None
        if can_stop and self._group is not None and not self._is_frozen:
            self._group.set_frozen(stop)
            self._is_stopped_at_rest = stop

    def _exceeded(self, started: float) -> Cause | None:
        deadline = self._plan.policy.limits.deadline_seconds
        if deadline is not None and time.monotonic() - started > deadline:
            return "deadline"
        return self._meters.exceeded()

    def _has_ended(self) -> bool:
        """Whether our guest has, or our child, without reaping it yet: until then its id stays its own."""
        if self._meters.guest is not None:
            return self._meters.guest.has_ended()
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def drain(self) -> bool:
        """Read what it wrote, keep the beginning; False once every writer is gone."""
        for _ in range(16):  # at most a MiB a round: a flood must not keep us from the meters
            try:
                chunk = os.read(self._output, 65536)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.output += chunk[: max(self._plan.policy.limits.output_bytes - len(self.output), 0)]
        return True

    def _obey(self) -> bool:
        """Carry out a request; False if it is to end (asked for, or the owner is gone)."""
        request = self._control.recv(64)
        if request == b"memory":
            self._control.send(str(self._meters.memory_bytes()).encode())
        elif request in (b"rest", b"wake"):
            self._is_resting = request == b"rest"
            if self._is_stopped_at_rest:
                self._stop_at_rest(False)
        elif request in (b"freeze", b"thaw"):
            self._is_stopped_at_rest, self._is_frozen = False, request == b"freeze"
            self._set_frozen(self._is_frozen)
            self._control.send(b"done")
        else:
            return False
        return True

    def _set_frozen(self, frozen: bool) -> None:
        if self._group is not None and self._group.set_frozen(frozen):
            return
        if not frozen:
            processes.send(self._meters.below(), signal.SIGCONT)
            return
        stopped: set[int] = set()
        while fresh := set(self._meters.below()) - stopped:
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh
