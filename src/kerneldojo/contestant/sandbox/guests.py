"""Children of this process that are contestants: forked by it into the room that a keeper has made.

The first process of their PID namespace cannot end before they have been reaped, and its keeper waits for that. So
they are reaped at once, whatever this process is waiting for, by a handler of SIGCHLD; how they ended is kept for
whoever asks. Other children are left to those who wait for them, or reaped here if nobody does (`leave`).

A handler written in Python runs between two instructions. A signal that arrives after the last one before a system call
that waits is handled when that returns; and if what is waited for comes only once the guest has been reaped, never. So
whoever waits here waits for the *alarm* too, a pipe into which Python writes whenever a signal arrives.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.contestant.sandbox import linux
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.inside import Pipes, run_guest

PATIENCE_SECONDS = 1.0
"""How long anybody waits without a look at its guests: something else may have taken the alarm for itself."""


@dataclass(frozen=True)
class Death:
    """What the kernel tells of a guest when it is reaped."""

    code: int
    """Exit status, or minus the number of the signal that ended it."""
    cpu_seconds: float
    """Of its own and of all children that it waited for."""
    max_rss_bytes: int


_living: dict[int, bool] = {}
"""Guests that were not reaped yet, and whether anybody will ask how they ended."""
_dead: dict[int, Death] = {}
_left: set[int] = set()
"""Children that nobody will ask for."""
_alarm: tuple[int, int] | None = None
"""Both ends of the pipe; None where nobody watches."""


def watch() -> None:
    """Reap guests from now on. In the main thread."""
    global _alarm
    _alarm = _alarm or os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(_alarm[1], warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _reap)


def _be_born() -> None:
    """In a fork, whose signals and children are its own."""
    global _alarm
    _living.clear()
    _dead.clear()
    _left.clear()
    if _alarm is not None:
        signal.set_wakeup_fd(-1)
        for descriptor in _alarm:
            os.close(descriptor)
        _alarm = None


os.register_at_fork(after_in_child=_be_born)


def wait(poller: select.poll) -> set[int]:
    """Which of the descriptors of `poller` are ready, as soon as some are; guests that end meanwhile are reaped."""
    alarm = _alarm[0] if _alarm is not None else -1
    if alarm >= 0:
        poller.register(alarm, select.POLLIN)
    ready = set[int]()
    while not ready:
        ready = {descriptor for descriptor, _ in poller.poll(1000 * PATIENCE_SECONDS if _living else None)}
        if alarm in ready or not ready:
            if alarm >= 0:
                with contextlib.suppress(BlockingIOError):
                    while os.read(alarm, 512):
                        pass
            _reap()
            ready.discard(alarm)
    if alarm >= 0:
        poller.unregister(alarm)
    return ready


def wait_for(descriptor: int) -> None:
    """Wait until it is readable, or its other end is closed; guests that end meanwhile are reaped."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    wait(poller)


def fork(main: Callable[[], None], plan: Plan, groups: Sequence[Path], first: int, pipes: Pipes) -> tuple[int, int]:
    """Fork a contestant into the room that is there for it; returns its process id and a pidfd.

    Args:
        main: what it runs once enclosed.
        plan: its world, as its keeper has it.
        groups: folders of its control groups.
        first: pidfd of the first process inside.
        pipes: to its keeper.

    Raises:
        OSError: it could not be forked; the room may be gone.
    """
    with linux.children_in(first):
        pid = os.fork()
        if pid == 0:
            run_guest(main, plan, groups, first, pipes)
    pidfd = os.pidfd_open(pid)
    _living[pid] = True
    _reap()  # It may have ended before it was listed.
    return pid, pidfd


def death_of(pid: int) -> Death:
    """How a guest ended, told once; waits for it."""
    if pid in _living:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        _reap()
    return _dead.pop(pid)


def leave(pid: int) -> None:
    """Reap a child that is no guest when it ends, too; nobody here waits for it."""
    _left.add(pid)
    _reap()  # It may have ended before it was listed.


def forget(pid: int) -> None:
    """Reap a guest when it ends, and tell nobody; waits for nothing."""
    if _dead.pop(pid, None) is None and pid in _living:
        _living[pid] = False


def _reap(*_: object) -> None:
    for pid in list(_living):
        with contextlib.suppress(ChildProcessError):  # Reaped by the handler, while this went through the list.
            reaped, status, usage = os.wait4(pid, os.WNOHANG)
            if reaped and _living.pop(pid):
                _dead[pid] = _death(status, usage)
    for pid in list(_left):
        with contextlib.suppress(ChildProcessError):  # As above.
            if os.waitpid(pid, os.WNOHANG)[0]:
                _left.discard(pid)


def _death(status: int, usage: resource.struct_rusage) -> Death:
    return Death(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
