"""The keeper: a trusted process beside each contestant that watches its limits and leaves nothing behind.

It is forked from the fork server, or from its porter, which is smaller; forks the contestant, or makes room for it and
has its owner fork it; and then does nothing but watch over it (`watch.py`). When the contestant ends, exceeds a limit,
or the owner asks (or dies: the socket closes), it kills every descendant, gives back the uid and the control group, and
says how it went. It never reads anything from the contestant but its output, which it cuts and passes on as text.
"""

from __future__ import annotations

import contextlib
import json
import os
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
from kerneldojo.contestant.sandbox.watch import Watch

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
        freezer = self.group.freezer if self.group else None
        return {
            "pid": inside[0] if inside else None,
            "measures": self.measures(),
            "groups": self._folders(),
            "freezer": str(freezer) if freezer else None,
        }

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
        """Wait until the contestant has ended, by itself or not, and end all of its processes with it."""
        watch = Watch(self.plan, self.group, self.meters, self.child, self.control, self._output)
        return self._finish(watch.until_it_ends(self.started), watch)

    def _finish(self, cause: Cause, watch: Watch) -> Ended:
        survivors = 0
        if cause == "exited" and not self.plan.features.pid_namespace:  # Else the first process counts them.
            survivors = sum(map(processes.is_alive, self.meters.below()))
        if cause == "exited" and self._orders >= 0:
            self._have_reported()
        status = self._broom().sweep()
        watch.drain()
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
            output=watch.output.decode(errors="replace"),
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
