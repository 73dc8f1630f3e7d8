"""Find out what this host offers, each thing by doing it in a child that is thrown away.

Versions, configuration files and capability bits say what ought to work; containers, security modules and kernel
settings decide what does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kerneldojo.contestant.sandbox import cgroups, landlock, linux, processes, syscalls
from kerneldojo.contestant.sandbox.features import Features, Way
from kerneldojo.contestant.sandbox.filesystem import build_root, shared_memory_folder, temporary_folder
from kerneldojo.contestant.sandbox.leftovers import group_name
from kerneldojo.contestant.sandbox.policy import Policy
from kerneldojo.contestant.sandbox.users import FIRST_UID

PATIENCE_SECONDS = 60.0
"""For one attempt, which takes a few milliseconds on a host that is not busy. Where others keep all cores busy, the
kernel takes seconds until nobody looks at what a namespace or a group was before (`synchronize_rcu`; 5 were seen)."""
NUM_ATTEMPTS = 2
"""A busy host may once refuse what it has; to believe it would leave every contestant less locked in."""


def probe() -> Features:
    """Try every measure; takes a tenth of a second in a small process, and leaves nothing behind.

    Call it in a process with one thread, while it is small: it forks some thirty times.
    """
    user = _works(lambda: _enter(linux.CLONE_NEWUSER, "user"))
    pid = _namespace(linux.CLONE_NEWPID, user, _forks)
    mount = _namespace(linux.CLONE_NEWNS, user, lambda: _builds_root(fresh_proc=False))
    v2, v1 = _control_groups()
    return Features(
        landlock_abi=landlock.abi() if _works(_locks_landlock) else 0,
        seccomp=linux.MACHINE in ("x86_64", "aarch64") and _works(_filters),
        user_namespace=user,
        pid_namespace=pid,
        net_namespace=_namespace(linux.CLONE_NEWNET, user),
        ipc_namespace=_namespace(linux.CLONE_NEWIPC, user),
        mount_namespace=mount,
        fresh_proc=bool(pid and mount) and _works(lambda: _mounts_proc(pid, mount)),
        own_uid=os.geteuid() == 0 and _works(_changes_user),
        cgroup_v2=v2,
        cgroup_v1=v1,
        pidfd=_works(lambda: os.close(os.pidfd_open(os.getpid()))),
        guests=pid == "direct" and _works(_takes_guest),
    )


def _works(attempt: Callable[[], None]) -> bool:
    """Whether `attempt` returns, in a child, in time; it is made again if it fails, and not if it hangs."""
    for _ in range(NUM_ATTEMPTS):
        if (worked := _has_worked(attempt)) is not False:
            return worked is True
    return False


def _has_worked(attempt: Callable[[], None]) -> bool | None:
    """None if it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            attempt()
            status = 0
        except OSError:
            pass
        finally:
            os._exit(status)
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        reaped, status = os.waitpid(child, os.WNOHANG)
        if reaped:
            return status == 0
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.0005)


def _enter(flags: int, way: Way) -> None:
    if way == "user":
        uid, gid = os.getuid(), os.getgid()
        linux.unshare(flags | linux.CLONE_NEWUSER)
        linux.map_own_user(uid, gid)
    else:
        linux.unshare(flags)


def _namespace(flag: int, user: bool, then: Callable[[], None] = lambda: None) -> Way:
    def attempt(way: Way) -> None:
        _enter(flag, way)
        then()

    if _works(lambda: attempt("direct")):
        return "direct"
    return "user" if user and _works(lambda: attempt("user")) else ""


def _forks() -> None:
    if not _works(lambda: None if os.getpid() == 1 else os._exit(1)):
        raise OSError("not the first process of its namespace")


def _builds_root(*, fresh_proc: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="dojo-probe-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        temporary_folder(scratch).mkdir()
        shared_memory_folder(scratch).mkdir()

        # In a child, so that the folder is removed from outside the new root.
        if not _works(lambda: _build_and_look(scratch, fresh_proc)):
            raise OSError("no root of its own")


def _build_and_look(scratch: Path, fresh_proc: bool) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    build_root(Policy(scratch=scratch, readable=(Path("/usr"),)), fresh_proc=fresh_proc)
    if Path("/root").exists() or not (scratch / "tmp").is_dir() or not Path("/proc/self/status").exists():
        raise OSError("the new root is not what was asked for")


def _mounts_proc(pid: Way, mount: Way) -> None:
    _enter(linux.CLONE_NEWPID | linux.CLONE_NEWNS, "user" if "user" in (pid, mount) else "direct")
    if not _works(lambda: _builds_root(fresh_proc=True)):
        raise OSError("no /proc of its own")


def _takes_guest() -> None:
    """Fork a process into the namespaces of another one, which nobody may look into."""
    others = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC
    reading, writing = os.pipe()
    linux.unshare(linux.CLONE_NEWPID)
    first = os.fork()
    if first == 0:
        with contextlib.suppress(OSError):
            linux.unshare(others)
            linux.prctl(linux.PR_SET_DUMPABLE, 0)
            os.write(writing, b"!")
            signal.pause()
        os._exit(1)
    os.close(writing)
    os.read(reading, 1)
    descriptor = os.pidfd_open(first)
    try:
        with linux.children_in(descriptor):
            entered = _works(lambda: linux.setns(descriptor, others) if os.getpid() == 2 else os._exit(1))
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    if not entered:
        raise OSError("a guest could not enter")


def _locks_landlock() -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(landlock.abi(), [(Path("/usr"), landlock.USE)])
    with contextlib.suppress(PermissionError):
        os.listdir("/proc/self/fd")  # noqa: PTH208
        raise OSError("Landlock refused nothing")


def _filters() -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    policy = syscalls.rules(deny_signals=True, deny_unix_connect=True, keep_unix_sockets=False, own_pid=os.getpid())
    syscalls.install(syscalls.assemble(policy, linux.MACHINE))
    with contextlib.suppress(PermissionError):
        os.sched_setaffinity(os.getppid(), {0})
        raise OSError("the filter refused nothing")


def _changes_user() -> None:
    folder = tempfile.mkdtemp(prefix="dojo-probe-")
    try:
        os.chown(folder, FIRST_UID, FIRST_UID)
    finally:
        os.rmdir(folder)  # noqa: PTH106
    os.setgroups([])
    os.setresgid(FIRST_UID, FIRST_UID, FIRST_UID)
    os.setresuid(FIRST_UID, FIRST_UID, FIRST_UID)


def _control_groups() -> tuple[tuple[str, ...], tuple[str, ...]]:
    v2 = tuple(kind for kind in ("kill", "freeze", "memory", "pids") if _works(lambda k=kind: _groups((k,), ())))
    v1 = tuple(kind for kind in ("memory", "pids", "freezer") if _works(lambda k=kind: _groups((), (k,))))
    return v2, v1


def _groups(v2: tuple[str, ...], v1: tuple[str, ...]) -> None:
    """Make a group with one capability, put a sleeping child in, use it, and remove it again."""
    group = cgroups.Group(group_name("dojo-probe"), v2, v1)
    if not group.folders:
        raise OSError("no such hierarchy")
    sleeper = os.fork()
    if sleeper == 0:
        try:
            group.enter()
            signal.pause()
        finally:
            os._exit(1)
    try:
        until = time.monotonic() + PATIENCE_SECONDS / 2
        while sleeper not in group.processes():
            if time.monotonic() > until or not processes.is_alive(sleeper):
                raise OSError("could not enter the group")
            time.sleep(0.0005)
        group.limit(1 << 30, 100)
        if (group.freezes and not (group.set_frozen(True) and group.set_frozen(False))) or (
            group.limits_memory and group.memory_bytes() is None
        ):
            raise OSError("the group does not do what it should")
        if group.kills:
            group.kill()
        else:
            os.kill(sleeper, signal.SIGKILL)
    except BaseException:
        os.kill(sleeper, signal.SIGKILL)
        raise
    finally:
        os.waitpid(sleeper, 0)
        group.remove()
