"""What a contestant may have: its paths, devices and limits; and what became of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MIB = 1 << 20
GIB = 1 << 30


class SandboxError(Exception):
    """The enclosure could not be built or was lost: our fault, never the candidate's."""


@dataclass(frozen=True)
class Limits:
    """How much of the host one contestant with all its descendants may use."""

    memory_bytes: int = 8 * GIB
    """Host memory beyond what it shares with the fork server."""
    num_processes: int = 256
    """Processes and threads alive at once (processes only where neither a cgroup nor a uid of its own counts them)."""
    file_bytes: int = 1 * GIB
    """Size of any one file, memory-backed ones included."""
    num_open_files: int = 1024
    """Open descriptors of any one process."""
    scratch_bytes: int = 4 * GIB
    """Sum of the files in its scratch folder, unlinked but open ones included."""
    num_scratch_files: int = 50_000
    """Files and folders in its scratch folder."""
    output_bytes: int = 64 * 1024
    """What is kept of stdout and stderr together; the rest is read and dropped."""
    deadline_seconds: float | None = None
    """Wall time after which the keeper ends it by itself; None to leave that to the owner of `Contained`."""


@dataclass(frozen=True)
class Policy:
    """One contestant's world. Nothing outside of it is reachable, as far as the host offers the means."""

    scratch: Path
    """An existing folder, the only place where it may write; its home. Its owner may change while it runs."""
    readable: tuple[Path, ...]
    """Files and folders that it may read and execute; see `toolchain`. Missing ones are skipped."""
    device_nodes: tuple[Path, ...] = ()
    """Device nodes that it may use, beyond /dev/null, zero, full, random and urandom."""
    limits: Limits = field(default_factory=Limits)
    keep_fds: tuple[int, ...] = ()
    """Descriptors that it inherits (its channel, memory); every other one is closed."""
    gpu: bool = False
    """Whether the CUDA driver must work: adds what it reads of /sys and /proc."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables set over those of the fork server; HOME, TMPDIR and USER are set anyway."""


Cause = Literal["exited", "killed", "deadline", "memory", "processes", "scratch"]
"""Why it ended: by itself (crashes included), on request, or because a limit was exceeded."""


@dataclass(frozen=True)
class Ended:
    """How a contestant ended. When this exists, none of its processes does."""

    cause: Cause
    exit_code: int | None
    """Status of its main process: 0 when `main` returned, 1 when it raised; None if a signal ended it."""
    signal: int | None
    """Signal that ended its main process."""
    cpu_seconds: float
    """User and system time of all processes that were waited for."""
    wall_seconds: float
    max_rss_bytes: int
    """Peak memory: of the whole cgroup where there is one, else of the polled tree or its largest process."""
    survivors_killed: int
    """Descendants still alive when its main process ended."""
    output: str
    """Beginning of what it wrote to stdout and stderr. Hostile text: for a log, never for a verdict."""
    measures: tuple[str, ...]
    """What isolation actually held."""

    @property
    def oom(self) -> bool:
        """Whether it was ended for using more memory than allowed."""
        return self.cause == "memory"


_SYSTEM = (
    "/usr /lib /lib32 /lib64 /libx32 /bin /sbin /opt/cuda /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d "
    "/etc/alternatives /etc/passwd /etc/group /etc/nsswitch.conf /etc/localtime /etc/ssl/openssl.cnf "
    "/sys/devices/system/cpu /sys/devices/system/node"
)
_DRIVER = "/sys/devices /sys/bus /sys/class /sys/module /sys/kernel/mm /sys/dev /etc/nvidia"


def toolchain(*, gpu: bool = False) -> tuple[Path, ...]:
    """What Python, torch, Triton, gcc and nvcc read on this machine; with `gpu`, the CUDA driver too.

    System folders, this interpreter's prefixes, the site-packages on `sys.path`, the compilers that PATH and the usual
    variables name, and LD_LIBRARY_PATH. Deliberately not the rest of `sys.path`: a service's own code and working
    folder are no business of a contestant's.
    """
    paths = [*_SYSTEM.split(), sys.prefix, sys.base_prefix, sys.exec_prefix]
    paths += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    paths += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    paths += [entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
    paths += _compilers()
    paths += _DRIVER.split() if gpu else []
    found = dict.fromkeys(Path(path) for path in paths if os.path.exists(path))  # noqa: PTH110 - no error without access
    return tuple(path for path in found if path != Path("/"))


def _compilers() -> list[str]:
    """Folders in which compilers live: the whole prefix of one in `PREFIX/bin`, unless that prefix is a home."""
    named = [os.environ.get(name, "").split(" ")[0] for name in ("CC", "CXX", "CUDAHOSTCXX", "TRITON_PTXAS_PATH")]
    folders: list[str] = []
    for name in (*named, "gcc", "g++", "clang", "nvcc", "ninja"):
        program = shutil.which(name) if name else None
        if program is not None:
            folder = Path(program).resolve().parent
            private = folder.parent in (Path.home(), Path.home() / ".local")
            folders += [program, str(folder.parent if folder.name == "bin" and not private else folder)]
    return folders
