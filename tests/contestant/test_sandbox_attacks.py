"""Each attack works in a bare room, fails in one with a single measure that should stop it, and fails with all."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxed import BARE, FORKED, HOST, IS_ROOT, SECRET, Victim, has, inside, linux, only, raw, start, victim

from kerneldojo.contestant.sandbox import Features, SandboxError, probe

USR = (Path("/usr"),)
"""Readable by everyone, unlike perhaps the interpreter: a room with a uid of its own and no mounts needs that."""
X86 = linux.MACHINE == "x86_64"


def rooms(*layers: str) -> list[Any]:
    """One room for each layer (names joined by `+`) that this host has, and the room with everything."""
    chosen = [(layer, only(*layer.split("+"))) for layer in layers if has(*layer.split("+"))]
    return [pytest.param(features, id=name) for name, features in (*chosen, ("all forked", FORKED), ("all", HOST))]


def refused_in(*layers: str) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("room", rooms(*layers))


def check(attack: Callable[[], Any], scratch: Path, room: Features, **fields: Any) -> None:
    fields.setdefault("readable", USR)
    assert not inside(attack, scratch, BARE, **fields).refused, "the attack does not even work in a bare room"
    outcome = inside(attack, scratch, room, **fields)
    assert outcome.refused, outcome


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Reachable by every user, unlike pytest's own: a uid of its own needs the way to its scratch folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@refused_in("landlock_abi", "mount_namespace", "own_uid")
def test_secret_file_cannot_be_read(scratch: Path, tmp_path: Path, room: Features) -> None:
    (tmp_path / "seeds.json").write_bytes(SECRET)
    (tmp_path / "seeds.json").chmod(0o600)
    check(lambda: (tmp_path / "seeds.json").read_text(), scratch, room)


@refused_in("landlock_abi", "mount_namespace", "own_uid")
def test_nothing_is_written_outside_scratch(scratch: Path, tmp_path: Path, room: Features) -> None:
    target = tmp_path / "verdict.json"

    def attack() -> int:
        return target.write_text("passed")

    assert not inside(attack, scratch, BARE, readable=USR).refused
    target.unlink()
    inside(attack, scratch, room, readable=USR)
    assert not target.exists()


@refused_in("landlock_abi", "mount_namespace")
def test_readable_paths_are_read_only(scratch: Path, tmp_path: Path, room: Features) -> None:
    library = tmp_path / "library"
    library.mkdir(mode=0o777)
    library.chmod(0o777)
    tmp_path.chmod(0o755)
    check(lambda: (library / "sitecustomize.py").write_text("x"), scratch, room, readable=(library,))


@refused_in("landlock_abi", "own_uid", "pid_namespace+mount_namespace+fresh_proc")
def test_memory_of_another_process_through_proc(scratch: Path, room: Features) -> None:
    with victim() as target:

        def attack() -> bool:
            memory = os.open(f"/proc/{target.pid}/mem", os.O_RDONLY)
            return os.pread(memory, len(SECRET), target.address) == SECRET

        check(attack, scratch, room)


def _read_remotely(target: Victim) -> bool:
    local = ctypes.create_string_buffer(64)
    ours = (ctypes.c_size_t * 2)(ctypes.addressof(local), len(SECRET))
    theirs = (ctypes.c_size_t * 2)(target.address, len(SECRET))
    number = 310 if X86 else 270
    raw(number, target.pid, ctypes.addressof(ours), 1, ctypes.addressof(theirs), 1, 0)
    return local.value == SECRET


@refused_in("seccomp", "landlock_abi", "own_uid", "pid_namespace")
def test_process_vm_readv(scratch: Path, room: Features) -> None:
    with victim() as target:
        check(lambda: _read_remotely(target), scratch, room)


@refused_in("seccomp", "landlock_abi", "own_uid", "pid_namespace")
def test_ptrace(scratch: Path, room: Features) -> None:
    seize = 0x4206
    with victim() as target:
        check(lambda: raw(101 if X86 else 117, seize, target.pid, 0, 0), scratch, room)


@refused_in("seccomp", "landlock_abi", "own_uid", "pid_namespace")
def test_signals(scratch: Path, room: Features) -> None:
    if room.landlock_abi and room.landlock_abi < 6 and not room.seccomp:
        pytest.skip("Landlock scopes signals from ABI 6 on")
    with victim() as target:
        check(lambda: os.kill(target.pid, signal.SIGCONT), scratch, room)


@refused_in("seccomp", "own_uid", "pid_namespace")
def test_limits_and_priorities_of_others(scratch: Path, room: Features) -> None:
    with victim() as target:
        check(lambda: resource.prlimit(target.pid, resource.RLIMIT_CPU), scratch, room)
        check(lambda: os.sched_setaffinity(target.pid, os.sched_getaffinity(target.pid)), scratch, room)


@refused_in("mount_namespace+pid_namespace+fresh_proc", "landlock_abi")
def test_command_lines_of_the_host(scratch: Path, room: Features) -> None:
    with victim() as target:
        check(lambda: Path(f"/proc/{target.pid}/cmdline").read_text(), scratch, room)


def _connect_tcp(port: int) -> None:
    with socket.socket() as ours:
        ours.connect(("127.0.0.1", port))


@refused_in("net_namespace", "seccomp", "landlock_abi")
def test_tcp_to_a_service_of_the_host(scratch: Path, room: Features) -> None:
    if room.landlock_abi and room.landlock_abi < 4 and not room.seccomp:
        pytest.skip("Landlock covers TCP from ABI 4 on")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check(lambda: _connect_tcp(port), scratch, room)


def _connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(address)


@refused_in("net_namespace", "seccomp", "landlock_abi")
def test_abstract_socket_of_the_host(scratch: Path, room: Features) -> None:
    if room.landlock_abi and room.landlock_abi < 6 and not room.seccomp:
        pytest.skip("Landlock scopes abstract sockets from ABI 6 on")
    name = f"\0dojo-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        check(lambda: _connect(name), scratch, room)


@refused_in("mount_namespace", "seccomp", "own_uid")
def test_socket_file_of_the_host(scratch: Path, tmp_path: Path, room: Features) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "service.sock"))
        server.listen()
        check(lambda: _connect(str(tmp_path / "service.sock")), scratch, room)


@refused_in("landlock_abi", "mount_namespace")
def test_other_devices(scratch: Path, room: Features) -> None:
    check(lambda: os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)), scratch, room)


def test_listed_device_works_controls_included(scratch: Path) -> None:
    def use() -> int:
        get_entropy_count = 0x80045200
        return len(fcntl.ioctl(os.open("/dev/urandom", os.O_RDONLY), get_entropy_count, bytes(4)))

    assert inside(use, scratch, device_nodes=(Path("/dev/urandom"),)).value == 4
    if HOST.landlock_abi >= 5:
        assert inside(use, scratch).errno == "EACCES"


NULL = 0
CALLS = {  # name: (x86_64, aarch64, arguments, whether it works or fails otherwise for an unprivileged process)
    "unshare": (272, 97, (linux.CLONE_NEWUSER,), True),
    "unshare files": (272, 97, (0x400,), True),
    "setns": (308, 268, (-1, 0), True),
    "clone into a user namespace": (56, 220, (linux.CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0), False),
    "mount": (165, 40, (b"none", b"/", b"tmpfs", 0, NULL), False),
    "umount2": (166, 39, (b"/", 0), False),
    "open_tree": (428, 428, (-100, b"/", 1), False),
    "fsopen": (430, 430, (b"tmpfs", 0), False),
    "pivot_root": (155, 41, (b"/", b"/"), False),
    "chroot": (161, 51, (b"/",), False),
    "io_uring_setup": (425, 425, (1, NULL), True),
    "bpf": (321, 280, (0, NULL, 0), False),
    "perf_event_open": (298, 241, (NULL, 0, -1, -1, 0), False),
    "userfaultfd": (323, 282, (1,), False),
    "keyctl": (250, 219, (0, -3, 1), True),
    "add_key": (248, 217, (NULL, NULL, NULL, 0, 0), True),
    "personality": (135, 92, (0x0040000,), True),
    "open_by_handle_at": (304, 265, (-100, NULL, 0), False),
    "name_to_handle_at": (303, 264, (-100, NULL, NULL, NULL, 0), True),
    "pidfd_getfd": (438, 438, (-1, 0, 0), True),
    "process_madvise": (440, 440, (-1, NULL, 0, 0, 0), True),
    "kcmp": (312, 272, (1, 1, 0, 0, 0), False),
    "sethostname": (170, 161, (b"x", 1), False),
    "clock_settime": (227, 112, (0, NULL), False),
    "socket(AF_INET)": (41, 198, (socket.AF_INET, socket.SOCK_STREAM, 0), True),
    "socket(AF_NETLINK)": (41, 198, (socket.AF_NETLINK, socket.SOCK_RAW, 0), True),
    "socket(AF_ALG)": (41, 198, (38, socket.SOCK_SEQPACKET, 0), False),
    "prctl(PR_SET_PDEATHSIG)": (157, 167, (linux.PR_SET_PDEATHSIG, 0), True),
}


@pytest.mark.skipif(not HOST.seccomp, reason="no system call filter here")
def test_forbidden_system_calls(scratch: Path) -> None:
    def attack(name: str) -> str:
        x86, arm, arguments, _ = CALLS[name]
        try:
            result = raw(x86 if X86 else arm, *arguments)
        except OSError as error:
            return errno.errorcode[error.errno]
        if name.startswith("clone") and result == 0:
            os._exit(0)
        return "worked"

    def forked(name: str) -> str:
        reading, writing = os.pipe()  # each in a process of its own: what works would change the next
        child = os.fork()
        if child == 0:
            os.write(writing, attack(name).encode())
            os._exit(0)
        os.close(writing)  # or one that dies on the way would be waited for until the deadline, and nobody told which
        told = os.read(reading, 64).decode()
        os.close(reading)
        _, status = os.waitpid(child, 0)
        return told or f"died ({status})"

    filtered = inside(lambda: {name: forked(name) for name in CALLS}, scratch, only("seccomp")).value
    assert filtered == dict.fromkeys(CALLS, "EPERM")
    bare = inside(lambda: {name: forked(name) for name in CALLS}, scratch, BARE).value
    assert not [name for name, call in CALLS.items() if call[3] and bare[name] == "EPERM"]
    assert inside(lambda: raw(435, NULL, 0), scratch, only("seccomp")).errno == "ENOSYS"  # clone3: libc falls back


@pytest.mark.skipif(not (HOST.seccomp and X86), reason="system call filter on x86_64")
@pytest.mark.parametrize("number", [0x40000000 | 39, 169, 246, 175], ids=["x32 getpid", "reboot", "kexec", "module"])
def test_deadly_system_calls(scratch: Path, number: int) -> None:
    assert start(lambda: print(raw(number, 0, 0, 0)), scratch).result().signal == signal.SIGSYS


@pytest.mark.skipif(not (HOST.seccomp and X86), reason="system call filter on x86_64")
def test_calls_of_the_32_bit_architecture_are_deadly(scratch: Path) -> None:
    def attack() -> None:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()

    assert start(attack, scratch).result().signal == signal.SIGSYS


def test_no_privilege_is_left(scratch: Path) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in inside(lambda: Path("/proc/self/status").read_text(), scratch).value.splitlines()
        if ":\t" in line
    )
    assert [status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [""] * 4
    assert status["NoNewPrivs"] == "1"
    if IS_ROOT and HOST.own_uid:
        assert status["CapBnd"].strip("0") == ""
        assert "0" not in status["Uid"].split()
        assert status["Groups"].split() == []


def test_descriptors_are_not_inherited(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(SECRET)
    descriptor = os.open(tmp_path / "token", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    high = os.dup2(descriptor, 900)
    try:
        for leaked in (descriptor, high):
            assert inside(lambda fd=leaked: os.pread(fd, 5, 0).decode(), scratch).errno == "EBADF"
            kept = inside(lambda fd=leaked: os.pread(fd, 3, 0).decode(), scratch, keep_fds=(leaked,))
            assert kept.value == "the"
    finally:
        os.close(descriptor)
        os.close(high)


@pytest.mark.skipif(not HOST.own_uid, reason="needs root")
def test_scratch_is_closed_to_the_next_with_the_same_uid(scratch: Path) -> None:
    outcome = inside(lambda: (scratch / "mine").write_text("x") and os.getuid(), scratch, only("own_uid"), readable=USR)
    assert outcome.value >= 60600
    assert scratch.stat().st_uid == 0
    assert scratch.stat().st_mode & 0o777 == 0o700


def test_an_enclosure_that_cannot_be_built_is_our_fault(tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        start(lambda: None, tmp_path / "missing")


def test_probe_is_plain_and_explains_itself() -> None:
    features = probe()
    assert features == HOST
    assert json.loads(json.dumps(features.as_json()))["landlock_abi"] == features.landlock_abi
    assert all(": missing: " in line or line.endswith(": available") for line in Features().lines() + features.lines())
    assert sum(": missing: " in line for line in Features().lines()) == len(features.lines())
