"""Landlock: a process gives up, for itself and its descendants, all of the file system but what it lists.

It needs no privilege and no namespace, sees through every path and link, and from ABI 6 on also keeps signals and
abstract sockets inside. See `Documentation/userspace-api/landlock.rst` of the kernel.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from kerneldojo.contestant.sandbox import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1

READ = READ_FILE | READ_DIR
"""Read files and list folders."""
USE = READ | EXECUTE
"""Read, list and execute: what a toolchain needs."""
OWN = (_FIRST_ABI | REFER | TRUNCATE) & ~(MAKE_CHAR | MAKE_BLOCK)
"""All but making device nodes: what a scratch folder needs."""
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
"""Use a device node."""
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


def abi() -> int:
    """Version of Landlock that this kernel offers, 0 for none."""
    try:
        return linux.syscall(_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict(version: int, grants: Iterable[tuple[Path, int]]) -> None:
    """Confine this process to `grants`: (path, rights below it), and to no TCP, outside signals or abstract sockets.

    Needs `no_new_privs`. A path that does not exist is skipped: there is nothing to grant.

    Args:
        version: ABI to use, at most `abi()`.
        grants: the only paths that stay reachable.
    """
    handled = _FIRST_ABI
    handled |= REFER if version >= 2 else 0
    handled |= TRUNCATE if version >= 3 else 0
    handled |= IOCTL_DEV if version >= 5 else 0
    tcp = 3 if version >= 4 else 0
    scoped = 3 if version >= 6 else 0
    attributes = struct.pack("=QQQ", handled, tcp, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = linux.syscall(_CREATE, attributes, len(attributes), 0)
    try:
        for path, rights in grants:
            _grant(ruleset, path, rights & handled)
        linux.syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        path_beneath = 1
        linux.syscall(_ADD, ruleset, path_beneath, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
