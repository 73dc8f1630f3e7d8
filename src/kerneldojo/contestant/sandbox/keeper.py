"""The keeper: a trusted process beside each contestant that watches its limits and leaves nothing behind.

It is forked from the fork server, forks the contestant, and then does nothing but wait, drain output, look at the
meters and obey its owner. When the contestant ends, exceeds a limit, or the owner asks (or dies: the socket closes),
it kills every descendant, gives back the uid and the control group, and says how it went. It never reads anything
from the contestant but its output, which it cuts and passes on as text.
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
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from kerneldojo.contestant.sandbox import linux, processes
from kerneldojo.contestant.sandbox.cgroups import Group
from kerneldojo.contestant.sandbox.enclosure import Plan, close_all_but, make_folders, may_change_user, usable
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.inside import Exit, Pipes, run_inside, used_by_children
from kerneldojo.contestant.sandbox.leftovers import group_name
from kerneldojo.contestant.sandbox.meters import Meters
from kerneldojo.contestant.sandbox.policy import Cause, Ended, Policy
from kerneldojo.contestant.sandbox.users import HeldUid

_TICK_SECONDS = 0.02
_TICK_WHERE_HELD_SECONDS = 0.05
"""Where the kernel holds memory and processes, only the scratch folder is looked at, and no more often than this."""
_TICK_WITHOUT_PIDFD_SECONDS = 0.01
_TICK_AT_REST_SECONDS = 1.0
"""While it waits for work, which its owner says: then it runs nothing that could exceed a limit."""
_NICENESS = -15


def keep(
    main: Callable[[], None], policy: Policy, features: Features, events: socket.socket, control: socket.socket
) -> NoReturn:
    """Body of the keeper process. Ends it.

    Args:
        main: what the contestant runs once enclosed.
        policy: its world.
        features: what to use of the host.
        events: to the owner: one `{"ready": ...}`, then one `{"ended": ...}`; or `{"fault": text}`.
        control: requests of the owner: `kill`, `rest`, `wake`, `freeze`, `thaw`, `memory`; the last three are answered.
    """
    code = 0
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        close_all_but({events.fileno(), control.fileno(), *policy.keep_fds})
        keeper = Keeper(main, policy, features, control)
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

    def __init__(self, main: Callable[[], None], policy: Policy, features: Features, control: socket.socket) -> None:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.policy, self.control = policy, control
        features = usable(policy, features)
        self.started = time.monotonic()
        self.is_resting = False
        self.owner_uid = os.getuid()
        self.group: Group | None = None
        make_folders(policy.scratch)
        uid = HeldUid() if may_change_user(policy, features) else None
        self.plan = Plan(policy, features, uid)
        if uid is not None:
            uid.take(policy.scratch)
        if features.cgroup_v2 or features.cgroup_v1:
            self.group = Group(group_name(), features.cgroup_v2, features.cgroup_v1)
            self.group.limit(policy.limits.memory_bytes, policy.limits.num_processes)
        if self.plan.keeper_flags:
            gid = os.getgid()
            linux.unshare(self.plan.keeper_flags)
            if self.plan.in_user_namespace:
                linux.map_own_user(self.owner_uid, gid)
        self.meters = Meters(self.plan, self.group)
        self.output = bytearray()
        self._start(main)

    def _start(self, main: Callable[[], None]) -> None:
        ends = [os.pipe() for _ in range(3)]
        self._status, self._output, self._exit = (read for read, _ in ends)
        self.child = os.fork()
        if self.child == 0:
            run_inside(main, self.plan, self.group, Pipes(*(write for _, write in ends)))
        for _, write in ends:
            os.close(write)
        for descriptor in self.policy.keep_fds:
            os.close(descriptor)
        os.set_blocking(self._output, False)
        with contextlib.suppress(PermissionError):  # root alone may; a contestant must not starve its keeper
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)

    def wait_until_enclosed(self) -> dict[str, object]:
        """Block until the contestant is locked in and about to run `main`.

        Raises:
            RuntimeError: it could not be; nothing is left.
        """
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self._status, 4096)
            if not chunk:
                break
            line += chunk
        if line != b"\n":
            inside = self._read_exit()
            status = self._sweep()
            status = inside.status if inside else status
            self._clean_up()
            how = line.decode(errors="replace") or f"it died on the way (wait status {status:#x})"
            raise RuntimeError(f"the enclosure failed: {how}")
        os.close(self._status)
        inside = processes.children(self.child) if self.plan.features.pid_namespace else [self.child]
        folders = [str(folder) for folder in self.group.folders.values()] if self.group else []
        return {"pid": inside[0] if inside else None, "measures": self.measures(), "groups": folders}

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
            pidfd = os.pidfd_open(self.child)
            poll.register(pidfd, select.POLLIN)
        tick = _TICK_SECONDS if pidfd >= 0 else _TICK_WITHOUT_PIDFD_SECONDS
        if pidfd >= 0 and self.group is not None and self.group.limits_memory and self.group.limits_processes:
            tick = _TICK_WHERE_HELD_SECONDS
        cause: Cause | None = None
        while cause is None:
            pause = _TICK_AT_REST_SECONDS if self.is_resting else tick
            ready = {descriptor for descriptor, _ in poll.poll(pause * 1000)}
            if self._output in ready and not self._drain():
                poll.unregister(self._output)
            if self.control.fileno() in ready and not self._obey():
                cause = "killed"
            elif self._has_ended():
                cause = "exited"
            else:
                cause = self._exceeded()
        return self._finish(cause)

    def _exceeded(self) -> Cause | None:
        deadline = self.policy.limits.deadline_seconds
        if deadline is not None and time.monotonic() - self.started > deadline:
            return "deadline"
        return self.meters.exceeded()

    def _has_ended(self) -> bool:
        """Whether our child has, without reaping it yet: until then its id stays its own."""
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
        elif request in (b"freeze", b"thaw"):
            self._set_frozen(request == b"freeze")
            self.control.send(b"done")
        else:
            return False
        return True

    def _set_frozen(self, frozen: bool) -> None:
        if self.group is not None and self.group.set_frozen(frozen):
            return
        if not frozen:
            processes.send(processes.descendants(os.getpid()), signal.SIGCONT)
            return
        stopped: set[int] = set()
        while fresh := set(processes.descendants(os.getpid())) - stopped:
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh

    def _finish(self, cause: Cause) -> Ended:
        left = processes.descendants(os.getpid())
        survivors = sum(processes.is_alive(pid) for pid in left) if cause == "exited" else 0
        status = self._sweep()
        self._drain()
        cpu_seconds, largest = used_by_children()
        inside = self._read_exit()
        if inside is not None:
            status, survivors = inside.status, inside.survivors
            cpu_seconds, largest = max(cpu_seconds, inside.cpu_seconds), max(largest, inside.max_rss_bytes)
        if cause == "exited" and self.group is not None and self.group.num_oom_kills():
            cause = "memory"
        peak = max(self.meters.peak_bytes, self.group.peak_bytes() if self.group else 0)
        self._clean_up()
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

    def _read_exit(self) -> Exit | None:
        """The report of the first process inside, if there was one and it lived to make it."""
        if not self.plan.features.pid_namespace:
            return None
        report = os.read(self._exit, 4096)
        return Exit(**json.loads(report)) if report else None

    def _sweep(self) -> int:
        """Kill everything below us until nothing is left; returns the wait status of our child."""
        status = 0
        pause = 0.0002
        while True:
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

    def _strike(self) -> None:
        if self.plan.features.pid_namespace:
            processes.send([self.child], signal.SIGKILL)  # the kernel kills the namespace with its first process
        elif self.group is None or not self.group.kill():
            if self.plan.uid is not None:
                self._kill_user(self.plan.uid)
            # Stop before killing: what is stopped cannot fork behind our back while we go through the list.
            below = processes.descendants(os.getpid())
            processes.send(below, signal.SIGSTOP)
            processes.send({*below, *processes.descendants(os.getpid())}, signal.SIGKILL)
        if self.group is not None and not self.group.kills:
            self.group.set_frozen(False)  # a frozen process of version 1 dies only once thawed

    def _kill_user(self, uid: HeldUid) -> None:
        """As that user, kill all that it may kill: one call, which no fork escapes."""
        helper = os.fork()
        if helper == 0:
            try:
                uid.become(())
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(helper, 0)

    def _clean_up(self) -> None:
        if self.group is not None:
            self.group.remove()
        if self.plan.uid is not None:
            # The number will serve another contestant, which must not find this folder open to it.
            os.chown(self.policy.scratch, self.owner_uid, -1)
            Path(self.policy.scratch).chmod(0o700)
            self.plan.uid.close()
