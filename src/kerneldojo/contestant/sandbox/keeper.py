"""The keeper: a trusted process beside each contestant that watches its limits and leaves nothing behind.

It is forked from the fork server, or from its porter, which is smaller; forks the contestant, or makes room for it and
has its owner fork it; and then does nothing but wait, drain output, look at the meters and obey its owner. When the
contestant ends, exceeds a limit, or the owner asks (or dies: the socket closes), it kills every descendant, gives back
the uid and the control group, and says how it went. It never reads anything from the contestant but its output, which
it cuts and passes on as text.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import NoReturn

from kerneldojo.contestant.sandbox import linux, processes
from kerneldojo.contestant.sandbox.cgroups import Group
from kerneldojo.contestant.sandbox.enclosure import Plan, close_all_but, make_folders, may_change_user, usable
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.inside import Exit, Pipes, run_host, run_inside, used_by_children
from kerneldojo.contestant.sandbox.leftovers import group_name
from kerneldojo.contestant.sandbox.meters import Guest, Meters
from kerneldojo.contestant.sandbox.policy import Cause, Ended, Policy
from kerneldojo.contestant.sandbox.sweeping import Broom
from kerneldojo.contestant.sandbox.users import HeldUid

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
_NICENESS = -15
_LAST_WORDS_SECONDS = 2.0
"""How long the first process may take to end what a guest left and to report."""


def keep(
    main: Callable[[], None] | None,
    policy: Policy,
    features: Features,
    events: socket.socket,
    control: socket.socket,
    given: Collection[tuple[int, int]],
) -> NoReturn:
    """Body of the keeper process. Ends it.

    Args:
        main: what the contestant runs once enclosed; None if its owner is to fork it.
        policy: its world.
        features: what to use of the host.
        events: to the owner: one `{"ready": ...}`, then one `{"ended": ...}`; or `{"fault": text}`. Before these,
            for a contestant that its owner forks, one `{"room": ...}`, which is answered; see `Keeper.invite`.
        control: requests of the owner: `kill`, `rest`, `wake`, `freeze`, `thaw`, `memory`; the last three are answered.
        given: (device, inode) of files that the contestant is given.
    """
    code = 0
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        close_all_but({events.fileno(), control.fileno(), *policy.keep_fds})
        keeper = Keeper(main, policy, features, control, given)
        if main is None:
            keeper.invite(events)
        ready = keeper.wait_until_enclosed()
        _tell(events, {"ready": ready})
        _tell(events, {"ended": asdict(keeper.watch())})
    except BaseException:
        code = 1
        with contextlib.suppress(OSError):
            _tell(events, {"fault": traceback.format_exc()[-8000:]})
    os._exit(code)


def _tell(events: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the owner is gone; we still end in order
        events.send(json.dumps(message).encode())


class Keeper:
    """One contestant from its fork to its end.

    Raises:
        OSError: a namespace, group or uid that the features promise could not be had.
    """

    def __init__(
        self,
        main: Callable[[], None] | None,
        policy: Policy,
        features: Features,
        control: socket.socket,
        given: Collection[tuple[int, int]],
    ) -> None:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.policy, self.control = policy, control
        features = usable(policy, features)
        self.started = time.monotonic()
        self.is_resting = self.is_stopped_at_rest = self.is_frozen = False
        self.owner_uid = os.getuid()
        self.group: Group | None = None
        make_folders(policy.scratch)
        self.uid = HeldUid() if may_change_user(policy, features) else None
        self.plan = Plan(policy, features, self.uid)
        if self.uid is not None:
            self.uid.take(policy.scratch)
        if features.cgroup_v2 or features.cgroup_v1:
            self.group = Group(group_name(), features.cgroup_v2, features.cgroup_v1)
            self.group.limit(policy.limits.memory_bytes, policy.limits.num_processes)
        if self.plan.keeper_flags:
            gid = os.getgid()
            linux.unshare(self.plan.keeper_flags)
            if self.plan.in_user_namespace:
                linux.map_own_user(self.owner_uid, gid)
        self.meters = Meters(self.plan, self.group, given)
        self.output = bytearray()
        self._start(main)

    def _start(self, main: Callable[[], None] | None) -> None:
        ends = [os.pipe() for _ in range(3)]
        self._status, self._output, self._exit = (read for read, _ in ends)
        pipes = Pipes(*(write for _, write in ends))
        orders, self._orders = os.pipe() if main is None else (-1, -1)
        self.child = os.fork()
        if self.child == 0:
            if main is None:
                run_host(self.plan, orders, pipes)
            run_inside(main, self.plan, self.group, pipes)
        for descriptor in (pipes.exit, pipes.status, *([pipes.output] if main else [orders]), *self.policy.keep_fds):
            os.close(descriptor)
        self._guests_output = -1 if main else pipes.output
        os.set_blocking(self._output, False)
        with contextlib.suppress(PermissionError):  # root alone may; a contestant must not starve its keeper
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)

    def invite(self, events: socket.socket) -> None:
        """Wait until there is room, have the owner fork the contestant into it, and learn who it is.

        The owner gets `{"room": ...}` with four descriptors (pidfds of this process and of the first one inside, the
        write ends of the contestant's status and output), and answers with a process id and a pidfd.

        Raises:
            RuntimeError: there is no room, or nobody comes; nothing is left.
        """
        self._wait_status("room could not be made")
        status, theirs = os.pipe()
        myself, first = os.pidfd_open(os.getpid()), os.pidfd_open(self.child)
        room = {"keeper": os.getpid(), "uid": self.uid and self.uid.number, "groups": self._folders()}
        descriptors = [myself, first, theirs, self._guests_output]
        try:
            socket.send_fds(events, [json.dumps({"room": room}).encode()], descriptors)
            answer, received, _, _ = socket.recv_fds(events, 64, 1)
        except (BrokenPipeError, ConnectionResetError):
            answer, received = b"", []
        for descriptor in descriptors:
            os.close(descriptor)
        self._status = status
        if not received:
            self._broom().sweep()
            self._broom().clean_up()
            raise RuntimeError("the owner left, or could not fork")
        self.meters.guest = Guest(int(answer), received[0])

    def _folders(self) -> list[str]:
        return [str(folder) for folder in self.group.folders.values()] if self.group else []

    def wait_until_enclosed(self) -> dict[str, object]:
        """Block until the contestant is locked in and about to run `main`.

        Raises:
            RuntimeError: it could not be; nothing is left.
        """
        self._wait_status("the enclosure failed")
        inside = processes.children(self.child) if self.plan.features.pid_namespace else [self.child]
        if self.meters.guest is not None:
            inside = [self.meters.guest.pid]
        return {"pid": inside[0] if inside else None, "measures": self.measures(), "groups": self._folders()}

    def _wait_status(self, failing: str) -> None:
        """Wait for the empty line by which a process inside says that it has done its part."""
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self._status, 4096)
            if not chunk:
                break
            line += chunk
        if line != b"\n":
            inside = self._read_exit() if self._orders < 0 else None
            status = self._broom().sweep()
            status = inside.status if inside else status
            self._broom().clean_up()
            how = line.decode(errors="replace") or f"it died on the way (wait status {status:#x})"
            raise RuntimeError(f"{failing}: {how}")
        os.close(self._status)

    def measures(self) -> list[str]:
        """What isolation holds, limits included."""
        group, plan = self.group, self.plan
        found = list(plan.measures())
        found.append("cgroup-kill" if group and group.kills else "subreaper-kill")
        found.append("memory-by-cgroup" if group and group.limits_memory else "memory-polled")
        by_user = "rlimit" if plan.counts_processes_by_user else "polled"
        found.append("processes-by-" + ("cgroup" if group and group.limits_processes else by_user))
        return found

    def watch(self) -> Ended:
        """Run until the contestant has ended, by itself or not, and all of its processes with it."""
        poll, pidfd = select.poll(), -1
        for descriptor in (self.control.fileno(), self._output):
            poll.register(descriptor, select.POLLIN)
        if self.plan.features.pidfd:
            pidfd = self.meters.guest.pidfd if self.meters.guest else os.pidfd_open(self.child)
            poll.register(pidfd, select.POLLIN)
        tick = _TICK_SECONDS if pidfd >= 0 else _TICK_WITHOUT_PIDFD_SECONDS
        if pidfd >= 0 and self.group is not None and self.group.limits_memory and self.group.limits_processes:
            tick = _TICK_WHERE_HELD_SECONDS
        cause: Cause | None = None
        while cause is None:
            was_resting = self.is_resting
            ready = {descriptor for descriptor, _ in poll.poll(self._pause(tick) * 1000)}
            if self.is_resting and not ready:
                self._stop_at_rest(not self.is_stopped_at_rest)
            if self._output in ready and not self._drain():
                poll.unregister(self._output)
            if self.control.fileno() in ready and not self._obey():
                cause = "killed"
            elif self._has_ended():
                cause = "exited"
            elif self.is_resting or not was_resting:  # Who was woken just now has its turn a tick later.
                cause = self._exceeded()
        return self._finish(cause)

    def _pause(self, tick: float) -> float:
        """Seconds until its limits have to be looked at again."""
        if self.is_stopped_at_rest:
            return _FROZEN_AT_REST_SECONDS
        if self.is_resting:
            return _TICK_AT_REST_SECONDS
        has_time = tick == _TICK_WHERE_HELD_SECONDS and self.policy.limits.deadline_seconds is None
        return _TICK_WITH_ROOM_SECONDS if has_time and self.meters.has_room else tick

    def _stop_at_rest(self, stop: bool) -> None:
        """Stop what rests or let it go on: what does not run exceeds no limit, and costs its keeper nothing.

        Only by the unified hierarchy, in which what is frozen can be killed all the same, whoever kills it.
        """
        can_stop = "freeze" in self.plan.features.cgroup_v2 and self.policy.limits.deadline_seconds is None
        if can_stop and self.group is not None and not self.is_frozen:
            self.group.set_frozen(stop)
            self.is_stopped_at_rest = stop

    def _exceeded(self) -> Cause | None:
        deadline = self.policy.limits.deadline_seconds
        if deadline is not None and time.monotonic() - self.started > deadline:
            return "deadline"
        return self.meters.exceeded()

    def _has_ended(self) -> bool:
        """Whether our guest has, or our child, without reaping it yet: until then its id stays its own."""
        if self.meters.guest is not None:
            return self.meters.guest.has_ended()
        return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _drain(self) -> bool:
        """Read what it wrote, keep the beginning; False once every writer is gone."""
        for _ in range(16):  # at most a MiB a round: a flood must not keep us from the meters
            try:
                chunk = os.read(self._output, 65536)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.output += chunk[: max(self.policy.limits.output_bytes - len(self.output), 0)]
        return True

    def _obey(self) -> bool:
        """Carry out a request; False if it is to end (asked for, or the owner is gone)."""
        request = self.control.recv(64)
        if request == b"memory":
            self.control.send(str(self.meters.memory_bytes()).encode())
        elif request in (b"rest", b"wake"):
            self.is_resting = request == b"rest"
            if self.is_stopped_at_rest:
                self._stop_at_rest(False)
        elif request in (b"freeze", b"thaw"):
            self.is_stopped_at_rest, self.is_frozen = False, request == b"freeze"
            self._set_frozen(self.is_frozen)
            self.control.send(b"done")
        else:
            return False
        return True

    def _set_frozen(self, frozen: bool) -> None:
        if self.group is not None and self.group.set_frozen(frozen):
            return
        if not frozen:
            processes.send(self.meters.below(), signal.SIGCONT)
            return
        stopped: set[int] = set()
        while fresh := set(self.meters.below()) - stopped:
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh

    def _finish(self, cause: Cause) -> Ended:
        survivors = 0
        if cause == "exited" and not self.plan.features.pid_namespace:  # Else the first process counts them.
            survivors = sum(map(processes.is_alive, self.meters.below()))
        if cause == "exited" and self._orders >= 0:
            self._have_reported()
        status = self._broom().sweep()
        self._drain()
        cpu_seconds, largest = used_by_children()
        inside = self._read_exit()
        if inside is not None:
            status, survivors = inside.status, inside.survivors
            cpu_seconds, largest = max(cpu_seconds, inside.cpu_seconds), max(largest, inside.max_rss_bytes)
        if cause == "exited" and self.group is not None and self.group.num_oom_kills():
            cause = "memory"
        peak = max(self.meters.peak_bytes, self.group.peak_bytes() if self.group else 0)
        self._broom().clean_up()
        code = os.waitstatus_to_exitcode(status)
        return Ended(
            cause=cause,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            cpu_seconds=cpu_seconds,
            wall_seconds=time.monotonic() - self.started,
            max_rss_bytes=peak or largest,
            survivors_killed=survivors,
            output=self.output.decode(errors="replace"),
            measures=tuple(self.measures()),
        )

    def _have_reported(self) -> None:
        """Tell the first process that the guest has ended; returns when it has killed what was left, and ended too."""
        os.close(self._orders)
        self._orders = -1
        Guest(self.child, os.pidfd_open(self.child)).has_ended(_LAST_WORDS_SECONDS)

    def _broom(self) -> Broom:
        return Broom(self.plan, self.child, self.group, self.uid, self.owner_uid, self.meters.guest, self.control)

    def _read_exit(self) -> Exit | None:
        """The report of the first process inside, if there was one and it lived to make it."""
        if not self.plan.features.pid_namespace:
            return None
        report = os.read(self._exit, 4096)
        return Exit(**json.loads(report)) if report else None
