"""The steps by which a process locks itself in, in the only order that works.

Namespaces and mounts need privilege, so they come first; then the user changes and every capability goes; then
`no_new_privs`, Landlock and the system call filter, each of which also survives exec and fork. Nothing of the
candidate is read before the last step.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kerneldojo.contestant.sandbox import landlock, linux, processes, syscalls
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.filesystem import (
    HARMLESS_DEVICES,
    build_root,
    shared_memory_folder,
    temporary_folder,
)
from kerneldojo.contestant.sandbox.policy import Policy
from kerneldojo.contestant.sandbox.users import User, lets_everyone_through, open_to_everyone

_NAME_OF_OWN_USER = "contestant"
_PROC_FOR_ALL = (
    "/proc/cpuinfo /proc/meminfo /proc/stat /proc/filesystems /proc/version /proc/loadavg /proc/sys/vm "
    "/proc/sys/kernel/osrelease"
)
_PROC_FOR_DRIVER = "/proc/driver /proc/devices /proc/modules"


@dataclass(frozen=True)
class Plan:
    """Which of the host's features this contestant will use; they can exclude each other."""

    policy: Policy
    features: Features
    uid: User | None

    @property
    def in_user_namespace(self) -> bool:
        """Whether it lives in a user namespace, as our own user."""
        return self.features.uses_user_namespace

    @property
    def keeper_flags(self) -> int:
        """What the keeper leaves before it forks."""
        flags = linux.CLONE_NEWUSER if self.in_user_namespace else 0
        return flags | (linux.CLONE_NEWPID if self.features.pid_namespace else 0)

    @property
    def inner_flags(self) -> int:
        """What the first process inside leaves."""
        features, flags = self.features, 0
        flags |= linux.CLONE_NEWNET if features.net_namespace else 0
        flags |= linux.CLONE_NEWIPC if features.ipc_namespace else 0
        return flags | (linux.CLONE_NEWNS if features.mount_namespace else 0)

    @property
    def counts_processes_by_user(self) -> bool:
        """Whether RLIMIT_NPROC counts this contestant alone, and binds (it never does for root)."""
        return self.uid is not None or (self.in_user_namespace and os.getuid() != 0)

    def measures(self) -> Iterator[str]:
        """Names of what holds, for the verdict; limits are named by the keeper."""
        features = self.features
        if features.landlock_abi:
            yield f"landlock-{features.landlock_abi}"
        if features.seccomp:
            yield "seccomp"
        for kind in ("pid", "net", "ipc", "mount"):
            if getattr(features, f"{kind}_namespace"):
                yield f"{kind}-namespace"
        if features.mount_namespace and features.fresh_proc:
            yield "fresh-proc"
        if self.uid is not None:
            yield "own-uid"
        if self.in_user_namespace:
            yield "user-namespace"
        yield "no-capabilities"


def usable(policy: Policy, features: Features) -> Features:
    """`features` without what this contestant could not live with.

    The CUDA driver looks itself up in /proc by its own process id, so that a PID namespace needs a /proc to match.
    """
    matching_proc = features.mount_namespace and features.fresh_proc
    return replace(features, pid_namespace="") if policy.gpu and not matching_proc else features


def may_change_user(policy: Policy, features: Features) -> bool:
    """Whether a uid of its own is possible and the toolchain is within reach of one.

    Without a mount namespace, an interpreter in a private home cannot be reached by another user; then the contestant
    keeps ours, and the other measures have to do.
    """
    if not features.own_uid or features.uses_user_namespace:
        return False
    if features.mount_namespace:
        return True
    paths = [path for path in policy.readable if path.exists()]
    return all(map(open_to_everyone, paths)) and lets_everyone_through(policy.scratch.resolve().parent)


def make_folders(scratch: Path) -> None:
    """Folders for temporary files and shared memory."""
    temporary_folder(scratch).mkdir(exist_ok=True)
    shared_memory_folder(scratch).mkdir(exist_ok=True)


def leave_host(plan: Plan) -> None:
    """Step 1, privileged: namespaces, and a root file system of its own."""
    if plan.inner_flags:
        linux.unshare(plan.inner_flags)
    if plan.features.mount_namespace:
        build_root(plan.policy, fresh_proc=plan.features.fresh_proc and bool(plan.features.pid_namespace))


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor above 2 that is not in `keep`."""
    low = 3
    for descriptor in sorted(keep):
        if descriptor >= low:
            os.closerange(low, descriptor)
            low = descriptor + 1
    os.closerange(low, max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], low))


def settle(plan: Plan) -> None:
    """Step 2: home, environment, limits, user, capabilities."""
    policy = plan.policy
    Path("/proc/self/oom_score_adj").write_text("1000")  # if the host runs out of memory, this goes first
    _set_environment(policy)
    _set_limits(plan)
    os.umask(0o077)
    linux.bound_capabilities()
    if plan.uid is not None:
        plan.uid.become(policy.device_nodes)
    linux.drop_capabilities()
    if not (plan.features.pid_namespace or plan.features.landlock_abi):
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # with a uid of its own it already is; else hides it from its peers
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    os.chdir(policy.scratch)


def lock(plan: Plan) -> None:
    """Step 3, for good: no new privileges, Landlock, system call filter."""
    features = plan.features
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if features.landlock_abi:
        landlock.restrict(min(features.landlock_abi, landlock.abi()), grants(plan))
    if features.seccomp:
        syscalls.install(call_filter(plan))


def call_filter(plan: Plan) -> bytes:
    """The system call filter of this process. The same for most, which find it done if it was asked for before."""
    features = plan.features
    scoped = features.landlock_abi >= 6
    deny_signals = not (features.pid_namespace or plan.uid is not None or scoped)
    return syscalls.program(
        deny_signals=deny_signals,
        deny_unix_connect=not (features.mount_namespace and (features.net_namespace or scoped)),
        keep_unix_sockets=plan.policy.gpu,
        own_pid=os.getpid() if deny_signals else 0,
    )


def grants(plan: Plan) -> Iterator[tuple[Path, int]]:
    """What Landlock leaves."""
    policy = plan.policy
    for path in policy.readable:
        yield path, landlock.USE
    yield policy.scratch, landlock.OWN
    if plan.features.mount_namespace:
        yield Path("/tmp"), landlock.OWN
        yield Path("/dev/shm"), landlock.OWN
        yield Path("/dev"), landlock.READ_DIR
    for device in HARMLESS_DEVICES:
        yield device, landlock.READ_FILE | landlock.WRITE_FILE
    for device in policy.device_nodes:
        yield device, landlock.DEVICE
    # Threads are named by writing below /proc/self, and the CUDA driver gives up where that fails. This is the folder
    # of this process, not of what it will fork.
    yield Path("/proc/self"), landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE
    if plan.features.mount_namespace and plan.features.fresh_proc:
        yield Path("/proc"), landlock.READ
    else:
        for name in (_PROC_FOR_ALL + " " + (_PROC_FOR_DRIVER if policy.gpu else "")).split():
            yield Path(name), landlock.READ


def _set_environment(policy: Policy) -> None:
    temporary = str(temporary_folder(policy.scratch))
    os.environ.update(HOME=str(policy.scratch), TMPDIR=temporary, USER=_NAME_OF_OWN_USER, LOGNAME=_NAME_OF_OWN_USER)
    os.environ.update(policy.environment)
    tempfile.tempdir = None  # may have been looked up before the fork


def _set_limits(plan: Plan) -> None:
    limits = plan.policy.limits
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.num_open_files,
    }
    if plan.counts_processes_by_user:
        wanted[resource.RLIMIT_NPROC] = limits.num_processes + (2 if plan.uid is None else 0)  # keeper and init
    elif os.getuid() != 0:
        # It counts all that this user runs: a loose bound, but one that a fork bomb cannot outrun. Root has none.
        wanted[resource.RLIMIT_NPROC] = limits.num_processes + processes.num_tasks_of(os.getuid())
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
