"""The system call filter: what generated code has no business asking the kernel for.

A deny list, for torch, Triton, gcc, nvcc and the CUDA driver between them use most harmless calls. It removes what
reads or steers other processes, what makes namespaces and mounts, what loads code into the kernel, and the
subsystems with a history of holes (io_uring, bpf, perf, userfaultfd, keyrings). Everything denied fails with EPERM,
so that a library that merely tries falls back; a few calls that nobody tries by accident kill the process.

The filter is classic BPF, assembled here by hand; see `seccomp(2)` and `linux/filter.h`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kerneldojo.contestant.sandbox import linux

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (number on x86_64, number on aarch64); None where the call does not exist.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "prlimit64": (302, 261), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "fcntl": (72, 25), "prctl": (157, 167),
    # subsystems
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "fanotify_init": (300, 262),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435), "mount": (165, 40),
    "umount2": (166, 39), "mount_setattr": (442, 442), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree_attr": (467, 467), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # the machine
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58), "personality": (135, 92),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
    "nfsservctl": (180, 42), "lookup_dcookie": (212, 18),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106),
    # sockets and devices
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "ioctl": (16, 29),
}  # fmt: skip

_SIGNALS = "kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal"
_FORBIDDEN = (
    "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp io_uring_setup "
    "io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl add_key request_key fanotify_init "
    "unshare setns mount umount2 mount_setattr move_mount open_tree fsopen fsconfig fsmount fspick open_tree_attr "
    "pivot_root chroot open_by_handle_at name_to_handle_at swapon swapoff acct quotactl quotactl_fd settimeofday "
    "clock_settime sethostname setdomainname syslog vhangup personality iopl ioperm modify_ldt uselib nfsservctl "
    "lookup_dcookie"
)
_DEADLY = "reboot kexec_load kexec_file_load init_module finit_module delete_module"

_F_SETOWN, _F_SETOWN_EX = 8, 15
_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
_CLONE_UNTRACED = 0x00800000


@dataclass(frozen=True)
class Rule:
    """One line of the filter: this system call, under this condition on one argument, is answered with `action`."""

    call: str
    action: int
    argument: int = -1
    """Index of the argument looked at (its low 32 bits); -1 for no condition."""
    test: Literal["equal", "not in", "any bit"] = "equal"
    values: tuple[int, ...] = ()


def rules(*, deny_signals: bool, deny_unix_connect: bool, keep_unix_sockets: bool, own_pid: int) -> Iterator[Rule]:
    """The policy.

    Args:
        deny_signals: nothing else keeps signals and priorities of other processes out of reach (no PID namespace,
            no user of its own, no Landlock scope), so that only signals to itself are let through.
        deny_unix_connect: nothing else keeps sockets in the file system out of reach (no mount namespace).
        keep_unix_sockets: leave it Unix sockets that connect to nothing: the CUDA driver binds one and insists.
        own_pid: process id of the contestant as it sees it.
    """
    refuse = _ERRNO | errno.EPERM
    for call in _FORBIDDEN.split():
        yield Rule(call, refuse)
    for call in _DEADLY.split():
        yield Rule(call, _KILL)
    yield Rule("clone3", _ERRNO | errno.ENOSYS)  # its flags lie in memory, out of a filter's sight; libc falls back
    yield Rule("clone", refuse, 0, "any bit", (linux.ANY_NAMESPACE | _CLONE_UNTRACED,))
    yield Rule("socket", refuse, 0, "not in", (socket.AF_UNIX,))
    yield Rule("socketpair", refuse, 0, "not in", (socket.AF_UNIX,))
    for request in (_TIOCSTI, _TIOCLINUX):
        yield Rule("ioctl", refuse, 1, "equal", (request,))
    for option in (linux.PR_SET_PDEATHSIG, linux.PR_SET_DUMPABLE):
        yield Rule("prctl", refuse, 0, "equal", (option,))
    if deny_unix_connect:
        # The contestant's channels come to it connected; a datagram socket could still name an address per message.
        yield Rule("connect", refuse)
        if not keep_unix_sockets:
            yield Rule("socket", refuse)
            yield Rule("bind", refuse)
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            for flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
                yield Rule("socketpair", refuse, 1, "equal", (kind | flags,))
    if deny_signals:
        for call in _SIGNALS.split():
            yield Rule(call, refuse, 0, "not in", (own_pid,))
        yield Rule("tgkill", refuse, 0, "not in", (own_pid,))
        for call in ("prlimit64", "sched_setscheduler", "sched_setattr", "sched_setparam", "sched_setaffinity"):
            yield Rule(call, refuse, 0, "not in", (0, own_pid))
        for call in ("setpriority", "ioprio_set", "move_pages", "migrate_pages"):
            yield Rule(call, refuse)
        for command in (_F_SETOWN, _F_SETOWN_EX):
            yield Rule("fcntl", refuse, 1, "equal", (command,))
        for request in (_FIOSETOWN, _SIOCSPGRP):
            yield Rule("ioctl", refuse, 1, "equal", (request,))


@functools.lru_cache(maxsize=8)
def program(*, deny_signals: bool, deny_unix_connect: bool, keep_unix_sockets: bool, own_pid: int) -> bytes:
    """`rules` compiled for this machine; without `deny_signals` the process id does not matter."""
    policy = rules(
        deny_signals=deny_signals,
        deny_unix_connect=deny_unix_connect,
        keep_unix_sockets=keep_unix_sockets,
        own_pid=own_pid,
    )
    return assemble(policy, linux.MACHINE)


def assemble(policy: Iterator[Rule], machine: str) -> bytes:
    """Compile rules to BPF for `machine` (`x86_64` or `aarch64`): 8 bytes an instruction."""
    column = ("x86_64", "aarch64").index(machine)
    program = [
        _instruction(_LOAD, 4),  # seccomp_data.arch
        _instruction(_JUMP_EQUAL, _AUDIT_ARCHITECTURE[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, 0),  # seccomp_data.nr
    ]
    if machine == "x86_64":
        program += [_instruction(_JUMP_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL)]
    for rule in policy:
        number = _NUMBERS[rule.call][column]
        if number is not None:
            body = _body(rule)
            program += [_instruction(_JUMP_EQUAL, number, 0, len(body)), *body]
    program.append(_instruction(_RETURN, _ALLOW))
    return b"".join(program)


def install(program: bytes) -> None:
    """Put this process and all that descend from it under the filter, for good. Needs `no_new_privs`."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    holder = ctypes.create_string_buffer(header, len(header))
    filter_mode = 2
    linux.prctl(linux.PR_SET_SECCOMP, filter_mode, ctypes.addressof(holder))


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _body(rule: Rule) -> list[bytes]:
    """Instructions run once the call's number matched: return the action or reload the number and fall through."""
    refuse = _instruction(_RETURN, rule.action)
    if rule.argument < 0:
        return [refuse]
    reload = _instruction(_LOAD, 0)
    load_argument = _instruction(_LOAD, 16 + 8 * rule.argument)  # seccomp_data.args, little-endian low half
    match rule.test:
        case "equal":
            tests = [_instruction(_JUMP_EQUAL, rule.values[0], 0, 1)]
        case "any bit":
            tests = [_instruction(_JUMP_ANY_BIT, rule.values[0], 0, 1)]
        case "not in":
            count = len(rule.values)
            tests = [_instruction(_JUMP_EQUAL, v, count - i, 0) for i, v in enumerate(rule.values)]
    return [load_argument, *tests, refuse, reload]
