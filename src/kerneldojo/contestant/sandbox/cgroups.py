"""One control group per contestant, below the group that we are in ourselves.

Version 2 gives limits, freezing and an atomic kill in one hierarchy; version 1 has a hierarchy for each; many hosts
mix them. What may be written depends on who we are and how we were started, so nothing is assumed: `host_groups`
looks up where we are, and the probe tries each operation.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.contestant.sandbox.freezer import UNIFIED, VERSION_1, Freezer


@dataclass(frozen=True)
class HostGroups:
    """Folders of the groups that this process is in; None where there is no such hierarchy."""

    unified: Path | None
    memory: Path | None
    pids: Path | None
    freezer: Path | None


def host_groups() -> HostGroups:
    """Look up our own groups in /proc/self/mountinfo and /proc/self/cgroup."""
    return _folders_of(Path("/proc/self/cgroup").read_text())


@functools.lru_cache(maxsize=4)
def _folders_of(groups: str) -> HostGroups:
    """Folders of the groups that /proc/self/cgroup names; where the hierarchies are mounted does not change."""
    mounts: dict[str, tuple[str, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        _, _, _, root, point, *_ = left.split(" ")
        names = [""] if kind == "cgroup2" else options.split(" ")[-1].split(",") if kind == "cgroup" else []
        for name in names:
            mounts.setdefault(name, (root, Path(point)))
    found: dict[str, Path] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in mounts:
                root, point = mounts[name]
                inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else "/"
                folder = point / inside.lstrip("/")
                if folder.is_dir():
                    found[name] = folder
    return HostGroups(found.get(""), found.get("memory"), found.get("pids"), found.get("freezer"))


class Group:
    """A contestant's groups, one folder in each hierarchy that the features allow.

    Args:
        name: folder name, unique on this host.
        v2: what the unified hierarchy can do: any of `kill`, `freeze`, `memory`, `pids`.
        v1: which version 1 hierarchies may be written: any of `memory`, `pids`, `freezer`.

    Raises:
        OSError: a folder could not be made although the features say so.
    """

    def __init__(self, name: str, v2: Iterable[str], v1: Iterable[str]) -> None:
        host = host_groups()
        self._v2 = frozenset(v2)
        self._cpu = -1
        self.folders: dict[str, Path] = {}
        parents = {"memory": host.memory, "pids": host.pids, "freezer": host.freezer}
        chosen = {kind: parents[kind] for kind in v1 if kind not in self._v2}
        if self._v2:
            chosen["unified"] = host.unified
            enable_controllers(host.unified, self._v2)
        for kind, parent in chosen.items():
            if parent is not None:
                folder = parent / name
                try:
                    folder.mkdir()
                except FileExistsError:  # Left by a keeper that was killed, whose process id is now another's.
                    folder.rmdir()
                    folder.mkdir()
                self.folders[kind] = folder

    def _memory(self) -> Path | None:
        return self.folders.get("unified") if "memory" in self._v2 else self.folders.get("memory")

    @property
    def limits_memory(self) -> bool:
        """Whether the kernel holds the memory limit."""
        return self._memory() is not None

    @property
    def limits_processes(self) -> bool:
        """Whether the kernel holds the limit of processes and threads."""
        return "pids" in self._v2 or "pids" in self.folders

    @property
    def freezes(self) -> bool:
        """Whether the group can be stopped as a whole."""
        return self.freezer is not None

    @property
    def kills(self) -> bool:
        """Whether the group can be killed as a whole."""
        return "kill" in self._v2

    def limit(self, memory_bytes: int, num_processes: int) -> None:
        """Set both limits, swap included, where the kernel holds them."""
        memory = self._memory()
        if memory is not None and "memory" in self._v2:
            (memory / "memory.max").write_text(str(memory_bytes))
            (memory / "memory.oom.group").write_text("1")
            self._if_there(memory / "memory.swap.max", "0")
        elif memory is not None:
            (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            self._if_there(memory / "memory.memsw.limit_in_bytes", str(memory_bytes))
        for kind in ("unified", "pids"):
            if kind in self.folders and (kind == "pids" or "pids" in self._v2):
                (self.folders[kind] / "pids.max").write_text(str(num_processes))

    @staticmethod
    def _if_there(file: Path, text: str) -> None:
        if file.exists():
            file.write_text(text)

    def enter(self) -> None:
        """Move the calling process in."""
        enter(self.folders.values())

    def processes(self) -> set[int]:
        """Process ids inside."""
        pids: set[int] = set()
        for folder in self.folders.values():
            with contextlib.suppress(FileNotFoundError):
                pids.update(int(line) for line in (folder / "cgroup.procs").read_text().split() if line != "0")
        return pids

    def kill(self) -> bool:
        """Kill all inside at once; False where the kernel cannot."""
        if self.kills:
            (self.folders["unified"] / "cgroup.kill").write_text("1")
        return self.kills

    @property
    def freezer(self) -> Path | None:
        """Where orders to stop all inside are written; see `Freezer`."""
        if "freeze" in self._v2:
            return self.folders["unified"] / UNIFIED
        return self.folders["freezer"] / VERSION_1 if "freezer" in self.folders else None

    def set_frozen(self, frozen: bool) -> bool:
        """Stop or resume all inside, and wait up to a second for it to hold; False where the kernel cannot."""
        if self.freezer is None:
            return False
        with contextlib.closing(Freezer(self.freezer)) as freezer:
            freezer.order(frozen)
            freezer.wait(frozen)
        return True

    def memory_bytes(self) -> int | None:
        """Memory charged now, in bytes; None where the kernel does not count."""
        memory = self._memory()
        if memory is None:
            return None
        return int((memory / ("memory.current" if "memory" in self._v2 else "memory.usage_in_bytes")).read_text())

    def peak_bytes(self) -> int:
        """Highest memory charged so far, in bytes; 0 where the kernel does not say."""
        memory = self._memory()
        file = memory and memory / ("memory.peak" if "memory" in self._v2 else "memory.max_usage_in_bytes")
        return int(file.read_text()) if file and file.exists() else 0

    def num_oom_kills(self) -> int:
        """How often the kernel killed inside for want of memory."""
        memory = self._memory()
        if memory is None:
            return 0
        text = (memory / ("memory.events" if "memory" in self._v2 else "memory.oom_control")).read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))

    def used_microseconds(self) -> int | None:
        """Processor time that all inside have used so far; None where the kernel does not count it."""
        if "unified" not in self.folders:
            return None
        try:
            if self._cpu < 0:
                self._cpu = os.open(self.folders["unified"] / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
            name, value, *_ = os.pread(self._cpu, 64, 0).split(maxsplit=2)
        except (OSError, ValueError):  # There is no such file, or the group is gone.
            return None
        return int(value) if name == b"usage_usec" else None

    def remove(self) -> None:
        """Remove the folders; all inside must be gone. The kernel may need a moment to notice."""
        if self._cpu >= 0:
            os.close(self._cpu)
            self._cpu = -1
        for folder in self.folders.values():
            for attempt in range(200):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if attempt == 199:
                        raise
                    time.sleep(0.005)


def enter(folders: Iterable[Path]) -> None:
    """Move the calling process into the groups with these folders."""
    for folder in folders:
        (folder / "cgroup.procs").write_text("0")


def enable_controllers(unified: Path | None, wanted: Iterable[str]) -> None:
    """Hand the wanted controllers down to our children. Refused (silently: the probe tells) where others live too."""
    if unified is None:
        return
    control = unified / "cgroup.subtree_control"
    for name in {"memory", "pids"} & set(wanted):
        if name not in control.read_text().split() and os.access(control, os.W_OK):
            with contextlib.suppress(OSError):
                control.write_text(f"+{name}")
