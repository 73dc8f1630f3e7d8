"""What a host offers to lock a contestant in with, as found by trying.

The sandbox works with any subset, and every verdict names what held. A feature can be switched off with
`dataclasses.replace`, which is how the fallbacks are tested.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Way = Literal["direct", "user", ""]
"""How a namespace is had: `direct` as root, through a `user` namespace, or not at all."""


@dataclass(frozen=True)
class Features:
    """Result of `probe`; all fields JSON-able."""

    landlock_abi: int = 0
    """Version of Landlock; 0 for none. 4 adds TCP, 5 device controls, 6 signals and abstract sockets."""
    seccomp: bool = False
    """Whether our system call filter can be installed (and the machine is one that it is written for)."""
    user_namespace: bool = False
    pid_namespace: Way = ""
    net_namespace: Way = ""
    ipc_namespace: Way = ""
    mount_namespace: Way = ""
    """Whether a root file system of its own can be built."""
    fresh_proc: bool = False
    """Whether /proc can be mounted anew in a PID and a mount namespace (containers often mask it)."""
    own_uid: bool = False
    """Whether we may give each contestant a uid of its own (root only)."""
    cgroup_v2: tuple[str, ...] = ()
    """Of the unified hierarchy, what works below our own group: kill, freeze, memory, pids."""
    cgroup_v1: tuple[str, ...] = ()
    """Version 1 hierarchies in which we may make groups: memory, pids, freezer."""
    pidfd: bool = False
    guests: bool = False
    """Whether a process can be forked into namespaces that another one has made, by that one's pidfd (Linux 5.8)."""

    def as_json(self) -> dict[str, Any]:
        """Plain data; tuples become lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Features:
        """What `as_json` told."""
        told = {**told, "cgroup_v2": tuple(told["cgroup_v2"]), "cgroup_v1": tuple(told["cgroup_v1"])}
        return cls(**told)

    @property
    def uses_user_namespace(self) -> bool:
        """Whether a contestant will live in a user namespace (then with our uid, for only that one is mapped)."""
        ways = (self.pid_namespace, self.net_namespace, self.ipc_namespace, self.mount_namespace)
        return self.user_namespace and "user" in ways

    @property
    def takes_guests(self) -> bool:
        """Whether a contestant can be forked beside its keeper instead of below it.

        It is out of sight of what goes by descent, then: so only where the kernel kills it and all below it with the
        first process of its PID namespace, and freezes it by its control group.
        """
        freezes = "freeze" in self.cgroup_v2 or "freezer" in self.cgroup_v1
        is_direct = self.pid_namespace == "direct" and not self.uses_user_namespace
        return self.guests and self.pidfd and freezes and is_direct

    def lines(self) -> list[str]:
        """For `dojo doctor`: what, whether available, and what follows when missing; one line each."""
        memory = "memory" in self.cgroup_v2 + self.cgroup_v1
        pids = "pids" in self.cgroup_v2 + self.cgroup_v1
        freeze = "freeze" in self.cgroup_v2 or "freezer" in self.cgroup_v1
        namespaces = {
            "pid": (self.pid_namespace, "killing relies on the keeper's sweep, host processes are visible"),
            "net": (self.net_namespace, "sockets are limited by the system call filter alone"),
            "ipc": (self.ipc_namespace, "System V memory of the same user is reachable"),
            "mount": (self.mount_namespace, "the whole file system is visible, Landlock alone refuses access"),
        }
        rows = [
            (
                f"Landlock (ABI {self.landlock_abi})" if self.landlock_abi else "Landlock",
                bool(self.landlock_abi),
                "file access is limited by the mount namespace and file permissions alone",
            ),
            (
                "Landlock scope for signals and abstract sockets (ABI 6)",
                self.landlock_abi >= 6,
                "these rely on PID and network namespaces",
            ),
            ("system call filter (seccomp)", self.seccomp, "ptrace, io_uring, bpf, perf and others stay callable"),
            ("user namespaces", self.user_namespace, "without root there are no namespaces at all"),
            *(
                (f"{kind} namespace" + (f" ({way})" if way else ""), bool(way), missing)
                for kind, (way, missing) in namespaces.items()
            ),
            ("fresh /proc", self.fresh_proc, "command lines of the host's processes are readable"),
            ("a uid of its own", self.own_uid, "contestants run as the user who judges"),
            ("cgroup kill", "kill" in self.cgroup_v2, "the PID namespace or the keeper's sweep ends descendants"),
            ("cgroup freezer", freeze, "freezing falls back to SIGSTOP"),
            ("cgroup memory limit", memory, "memory is polled every 20 ms: a fast hog overshoots"),
            ("cgroup process limit", pids, "processes are limited by RLIMIT_NPROC, or polled where that does not bind"),
            ("pidfd", self.pidfd, "the end of a contestant is noticed up to 10 ms late"),
            ("entering namespaces by pidfd", self.guests, "a contestant costs three forks of a fork server, not one"),
        ]
        return [f"{what}: " + ("available" if held else f"missing: {missing}") for what, held, missing in rows]
