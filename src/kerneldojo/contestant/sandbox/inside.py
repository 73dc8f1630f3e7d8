"""The two processes inside: the first one of the PID namespace, and the contestant.

Being the first process of a PID namespace has its price: signals are ignored and orphans pile up. So, where there is
such a namespace, the first process is a dozen lines of ours that wait, reap, and at the end kill and count what the
contestant left behind; the contestant is its child and behaves like any process. Without one, the contestant is the
keeper's child, and the keeper does the same from outside.

A contestant may also be a *guest*: forked by another process into the namespaces that a first process has furnished
(`run_host`, `run_guest`). It is not the first one's child then, so the keeper says when it has ended; whatever it
leaves behind becomes the first one's child all the same, and dies with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from kerneldojo.contestant.sandbox import linux
from kerneldojo.contestant.sandbox.cgroups import Group, enter
from kerneldojo.contestant.sandbox.enclosure import Plan, close_all_but, leave_host, lock, settle


@dataclass(frozen=True)
class Exit:
    """What the first process reports when the contestant ended."""

    status: int
    """Wait status of the contestant; 0 of a guest, which the first process does not wait for."""
    survivors: int
    cpu_seconds: float
    max_rss_bytes: int


@dataclass(frozen=True)
class Pipes:
    """Write ends that lead to the keeper."""

    status: int
    """One line: empty once enclosed, else what went wrong. Closed before any candidate code runs."""
    output: int
    """stdout and stderr."""
    exit: int
    """An `Exit` as JSON, from the first process of a PID namespace."""


def used_by_children() -> tuple[float, int]:
    """(CPU seconds, largest resident size in bytes) of all children waited for so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def run_inside(main: Callable[[], None], plan: Plan, group: Group | None, pipes: Pipes) -> NoReturn:
    """Body of the keeper's child. Ends the process."""
    try:
        _reset_signals()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if group is not None:
            group.enter()
        leave_host(plan)
        child = os.fork() if plan.features.pid_namespace else 0
    except BaseException:
        _fail(pipes.status)
    if child == 0:
        _run_contestant(main, plan, pipes)
    _run_first(child, pipes)


def run_host(plan: Plan, orders: int, pipes: Pipes) -> NoReturn:
    """Body of a keeper's child that makes room for a guest. Ends the process.

    Args:
        plan: what to furnish.
        orders: read end of a pipe: when the keeper closes the other one, the guest has ended.
        pipes: `status` says when there is room, or what went wrong; `output` is not used.
    """
    try:
        _reset_signals()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        leave_host(plan)
        _let_go({orders, pipes.status, pipes.exit})
        signal.signal(signal.SIGCHLD, _reap)
        os.write(pipes.status, b"\n")
        os.close(pipes.status)
    except BaseException:
        _fail(pipes.status)
    os.read(orders, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_all(0, pipes)


def run_guest(main: Callable[[], None], plan: Plan, groups: Iterable[Path], first: int, pipes: Pipes) -> NoReturn:
    """Body of a process that was forked into the PID namespace of a first process. Ends it.

    Args:
        main: what to run once enclosed.
        plan: the one that the first process furnished.
        groups: folders of the control groups to enter.
        first: pidfd of the first process.
        pipes: as in `run_inside`; `exit` is not used.
    """
    try:
        _reset_signals()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        enter(groups)
        if plan.inner_flags:
            linux.setns(first, plan.inner_flags)
    except BaseException:
        _fail(pipes.status)
    _run_contestant(main, plan, pipes)


def _reap(*_: object) -> None:
    """Handler of SIGCHLD in a first process whose guest is not its child: all that end are orphans."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _let_go(keep: set[int]) -> None:
    """Have nothing of the keeper's but these descriptors, and be nobody's to look into."""
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    close_all_but(keep)


def _run_first(contestant: int, pipes: Pipes) -> NoReturn:
    """Wait for the contestant, reaping whatever else ends; then kill and count the rest and report."""
    _let_go({pipes.exit})
    ended, status = os.waitpid(-1, 0)
    while ended != contestant:
        ended, status = os.waitpid(-1, 0)
    _end_all(status, pipes)


def _end_all(status: int, pipes: Pipes) -> NoReturn:
    """Kill and count what the contestant left behind, and report."""
    if os.getpid() != 1:
        os._exit(125)  # never: what follows would kill all of the host
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    survivors = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            survivors += os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) == -signal.SIGKILL
    cpu_seconds, max_rss_bytes = used_by_children()
    os.write(pipes.exit, json.dumps(asdict(Exit(status, survivors, cpu_seconds, max_rss_bytes))).encode())
    os._exit(0)


def _run_contestant(main: Callable[[], None], plan: Plan, pipes: Pipes) -> NoReturn:
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(pipes.output, 1)
        os.dup2(pipes.output, 2)
        # New objects, for the inherited ones may hold what the fork server had not yet flushed.
        sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)
        close_all_but({pipes.status, *plan.policy.keep_fds})
        settle(plan)
        lock(plan)
        os.write(pipes.status, b"\n")
        os.close(pipes.status)
    except BaseException:
        _fail(pipes.status)
    code = 1
    try:
        main()
        code = 0
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else int(request.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _fail(status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(status, traceback.format_exc()[-3000:].replace("\n", " | ").encode() + b"\n")
    os._exit(125)


def _reset_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
