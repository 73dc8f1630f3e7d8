"""The few Linux calls that Python's standard library lacks, through `ctypes`.

Every function raises `OSError` with the kernel's errno. Numbers and structures come from the kernel's user-space
headers; the system calls used here have the same numbers on x86_64 and aarch64 unless `SYSCALLS` says otherwise.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Generator

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)

MACHINE = platform.machine()
"""`x86_64` or `aarch64` where the sandbox works in full; elsewhere the system call filter is unavailable."""

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ANY_NAMESPACE = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4

_PIVOT_ROOT = {"x86_64": 155}.get(MACHINE, 41)
_CAPSET = {"x86_64": 126}.get(MACHINE, 91)
_MOUNT_SETATTR = 442
_LAST_CAPABILITY = 63


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call; integers are passed as 64 bits, buffers as pointers."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *passed)
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return result


def _checked(result: int, what: str) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` (`CLONE_NEW*`) for fresh ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def setns(descriptor: int, flags: int) -> None:
    """Enter namespaces (`CLONE_NEW*`) of the process that a pidfd names (Linux 5.8).

    Raises:
        OSError: as the kernel says. A PID namespace is entered by children only.
    """
    _checked(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(flags)), f"setns {flags:#x}")


@contextlib.contextmanager
def children_in(descriptor: int) -> Generator[None]:
    """While this lasts, what is forked is born in the PID namespace of the process that a pidfd names."""
    own = os.open("/proc/self/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(descriptor, CLONE_NEWPID)
        try:
            yield
        finally:
            setns(own, CLONE_NEWPID)
    finally:
        os.close(own)


def prctl(option: int, *arguments: int) -> None:
    """`prctl(2)`, missing arguments zero."""
    _checked(_libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]), f"prctl {option}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """`mount(2)`."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], flags, texts[3]), f"mount {kind} on {target}")


def detach_mount(target: str) -> None:
    """Unmount `target` and all below it, lazily."""
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root of this mount namespace and hang the old one at `put_old`."""
    syscall(_PIVOT_ROOT, os.fsencode(new_root), os.fsencode(put_old))


def restrict_mount(target: str, *, read_only: bool, devices: bool) -> None:
    """Forbid writing (`read_only`), set-uid programs and device nodes (unless `devices`) below a mount.

    With Linux 5.12 this covers mounts below `target` too; before, only `target` itself.
    """
    wanted = MS_NOSUID | (MS_RDONLY if read_only else 0) | (0 if devices else MS_NODEV)
    attributes = struct.pack("=QQQQ", wanted, 0, 0, 0)  # the MOUNT_ATTR_* bits of these three equal their MS_* bits
    at_current_folder, recursive = -100, 0x8000
    try:
        syscall(_MOUNT_SETATTR, at_current_folder, os.fsencode(target), recursive, attributes, len(attributes))
    except OSError:
        # A mount that came from a more privileged namespace keeps its flags: they have to be repeated.
        kept = os.statvfs(target).f_flag
        for theirs, ours in ((1, 1), (2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21)):
            wanted |= ours if kept & theirs else 0
        mount(None, target, None, MS_REMOUNT | MS_BIND | wanted)


def bound_capabilities() -> None:
    """Empty the bounding and ambient sets, so that no program can ever give a capability back. Before the others."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last one known here, or we never had CAP_SETPCAP and so nothing to bound


def drop_capabilities() -> None:
    """Give up every capability: permitted, effective, inheritable."""
    version_3 = struct.pack("=Ii", 0x20080522, 0)
    syscall(_CAPSET, version_3, bytes(24))


def map_own_user(uid: int, gid: int) -> None:
    """Right after `unshare(CLONE_NEWUSER)`: keep `uid` and `gid`, and know no other."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
