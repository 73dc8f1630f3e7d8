"""A root file system that contains nothing but what a policy lists.

In a mount namespace of its own the contestant sees an empty memory-backed root in which the readable paths are bound
read-only at their usual places, its scratch folder writable, the listed device nodes, and a /proc that knows only its
own processes. That hides sockets, other users' files and the host's processes even where Landlock is missing, and it
lets a contestant with a uid of its own use a toolchain that lies in a private home.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from kerneldojo.contestant.sandbox import linux
from kerneldojo.contestant.sandbox.policy import Policy

HARMLESS_DEVICES = tuple(Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom"))
_OLD = "/.host"


def temporary_folder(scratch: Path) -> Path:
    """What the contestant gets as /tmp."""
    return scratch / "tmp"


def shared_memory_folder(scratch: Path) -> Path:
    """What the contestant gets as /dev/shm, where there is a mount namespace."""
    return scratch / "shm"


def build_root(policy: Policy, *, fresh_proc: bool) -> None:
    """Replace this process's view of the file system by the policy's. Needs a mount namespace of its own.

    Args:
        policy: paths and device nodes.
        fresh_proc: whether /proc can be mounted anew (needs a PID namespace too); else the host's is bound.
    """
    readable, outermost = resolved(policy.readable)
    scratch = policy.scratch.resolve()
    devices = [path for path in (*HARMLESS_DEVICES, *policy.device_nodes) if path.exists()]

    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    base = next(folder for folder in ("/tmp", "/mnt", "/run", "/dev") if Path(folder).is_dir())
    linux.mount("tmpfs", base, "tmpfs", linux.MS_NOSUID, "mode=755,size=1m,nr_inodes=16384")
    Path(base + _OLD).mkdir()
    linux.pivot_root(base, base + _OLD)
    os.chdir("/")

    # These two first, for what follows may lie below /tmp (then its mount points are made in the scratch folder).
    _bind(temporary_folder(scratch), read_only=False, at=Path("/tmp"))
    _bind(shared_memory_folder(scratch), read_only=False, at=Path("/dev/shm"))
    for real in outermost:
        _bind(real, read_only=True)
    for path, real in readable.items():
        _link(path, real)
    for device in devices:
        _bind(device, read_only=False, devices=True)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path("/dev", name).symlink_to(f"/proc/self/{target}")
    _bind(scratch, read_only=False)
    _link(policy.scratch, scratch)
    Path("/proc").mkdir(exist_ok=True)
    if fresh_proc:
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    else:
        linux.mount(f"{_OLD}/proc", "/proc", None, linux.MS_BIND | linux.MS_REC)

    linux.detach_mount(_OLD)
    Path(_OLD).rmdir()
    linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)


@functools.lru_cache(maxsize=16)
def resolved(readable: tuple[Path, ...]) -> tuple[dict[Path, Path], list[Path]]:
    """Where readable paths really are, and those that lie below no other.

    The same for every contestant of a fork server, which looks it up before it forks.
    """
    found = {path.absolute(): path.resolve() for path in readable if path.exists()}
    return found, _outermost(found.values())


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """`folders` without those that lie below another."""
    kept: list[Path] = []
    for path in sorted(set(folders), key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(parent) for parent in kept):
            kept.append(path)
    return kept


def _bind(real: Path, *, read_only: bool, devices: bool = False, at: Path | None = None) -> None:
    """Show the host's `real` (free of symbolic links) at the same place, or `at` another, in the new root."""
    source, target = f"{_OLD}{real}", at or real
    is_folder = stat.S_ISDIR(os.stat(source).st_mode)  # noqa: PTH116 - a plain string, `/.host` + an absolute path
    os.makedirs(target if is_folder else target.parent, exist_ok=True)  # noqa: PTH103 - two dozen times a contestant
    if not is_folder:
        target.touch(exist_ok=True)
    linux.mount(source, str(target), None, linux.MS_BIND | linux.MS_REC)
    linux.restrict_mount(str(target), read_only=read_only, devices=devices)


def _link(path: Path, real: Path) -> None:
    """Where the host reaches `real` through a symbolic link, so does the contestant."""
    if path == real or os.path.lexists(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(real)
