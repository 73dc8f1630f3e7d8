"""However a contestant behaves, it ends, says how, and leaves nothing: with every feature and with hardly any."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxed import BARE, FORKED, HOST, IS_ROOT, as_ordinary_user, has, inside, only, start

from kerneldojo.contestant.sandbox import Features, Limits, SandboxError

USR = (Path("/usr"),)
MIB = 1 << 20

ROOMS = [
    pytest.param(only(*names.split()) if names else BARE, id=names or "bare")
    for names in ("", "own_uid", "pid_namespace", "cgroup_v2", "cgroup_v1", "own_uid cgroup_v1")
    if has(*names.split())
] + [pytest.param(FORKED, id="all forked"), pytest.param(HOST, id="all")]
"""What differs between hosts when it comes to ending processes and holding limits."""

every_room = pytest.mark.parametrize("room", ROOMS)


def _groups_of(keepers: set[int]) -> list[str]:
    """Control groups of these keepers that are still there; those of other judges may come and go meanwhile."""
    names = tuple(f"dojo-{keeper}-" for keeper in keepers)
    return [name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders if name.startswith(names)]


class Trace:
    """A pipe whose write end every process of a contestant holds: at its end of file, none of them exists."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def let_go(self) -> None:
        os.close(self.writing)

    def all_gone(self) -> bool:
        """Read what was written; true if the end of file is there without waiting."""
        os.set_blocking(self.reading, False)
        try:
            while os.read(self.reading, 65536):
                pass
        except BlockingIOError:
            return False
        finally:
            os.close(self.reading)
        return True


def limits(**fields: Any) -> Limits:
    return Limits(**{"deadline_seconds": 60, **fields})


def test_exit_codes_and_signals(scratch: Path) -> None:
    def run(main: Any) -> tuple[int | None, int | None]:
        ended = start(main, scratch).result()
        assert ended.cause == "exited"
        return ended.exit_code, ended.signal

    assert run(lambda: None) == (0, None)
    assert run(lambda: os._exit(7)) == (7, None)
    assert run(lambda: 1 / 0) == (1, None)
    assert run(os.abort) == (None, signal.SIGABRT)
    assert run(lambda: os.kill(os.getpid(), signal.SIGKILL)) == (None, signal.SIGKILL)
    assert run(lambda: ctypes.string_at(0)) == (None, signal.SIGSEGV)


def test_traceback_of_main_is_in_the_output(scratch: Path) -> None:
    assert "ZeroDivisionError" in start(lambda: 1 / 0, scratch).result().output


def test_file_descriptor_tells_the_end(scratch: Path) -> None:
    reading, writing = os.pipe()
    contained = start(lambda: os.read(reading, 1) and None, scratch, keep_fds=(reading,))
    assert select.select([contained], [], [], 0.05)[0] == []
    os.write(writing, b"!")
    assert select.select([contained], [], [], 60)[0] == [contained]
    assert contained.result().exit_code == 0
    assert contained.kill() == contained.result()


def _leave_session(trace: Trace) -> None:
    """A grandchild in a session of its own that ignores what can be ignored."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.write(trace.writing, b"!")
            while True:
                time.sleep(60)
        os._exit(0)
    os.waitpid(child, 0)
    os.read(trace.reading, 1)


@every_room
def test_children_left_behind_are_killed(scratch: Path, room: Features) -> None:
    trace = Trace()
    keep = (trace.reading, trace.writing)
    contained = start(lambda: _leave_session(trace), scratch, room, keep_fds=keep, readable=USR)
    trace.let_go()
    ended = contained.result()
    assert trace.all_gone()
    assert ended.exit_code == 0
    assert ended.survivors_killed == 1


@every_room
def test_kill_ends_what_stops_itself_and_ignores_signals(scratch: Path, room: Features) -> None:
    trace = Trace()

    def main() -> None:
        _leave_session(trace)
        os.write(trace.writing, b"!")
        os.kill(os.getpid(), signal.SIGSTOP)

    contained = start(main, scratch, room, keep_fds=(trace.reading, trace.writing), readable=USR)
    os.read(trace.reading, 1)
    trace.let_go()
    ended = contained.kill()
    assert ended.cause == "killed"
    assert trace.all_gone()


@every_room
def test_deadline(scratch: Path, room: Features) -> None:
    def spin() -> None:
        while True:
            pass

    ended = start(spin, scratch, room, readable=USR, limits=limits(deadline_seconds=0.2)).result()
    assert ended.cause == "deadline"
    assert ended.wall_seconds >= 0.2


@pytest.fixture(scope="module", params=[0, 1 << 30], ids=["small", "large"])
def ballast(request: pytest.FixtureRequest) -> Iterator[None]:
    """Memory that whoever is forked meanwhile has too, every page of it present."""
    num_bytes: int = request.param
    with mmap.mmap(-1, num_bytes or 1) as memory:
        for _ in range(num_bytes // MIB):
            memory.write(b"x" * MIB)
        yield


@every_room
@pytest.mark.usefixtures("ballast")
def test_fork_bomb(scratch: Path, room: Features) -> None:
    """A slow one where only the poll counts: at full speed it outruns any poll, and the tests' host with it.

    There the count is what has to end it, so the deadline is far off. Each fork takes a token from a pipe, so that a
    count that fails fails the test, not the host. The memory of large processes takes long to measure.
    """
    trace = Trace()
    counted = room.own_uid or "pids" in room.cgroup_v1 + room.cgroup_v2
    pause = 0.0 if counted else 0.05
    tokens, giving = os.pipe()
    os.write(giving, b"t" * (10_000 if counted else 400))

    def bomb() -> None:
        while os.read(tokens, 1):
            time.sleep(pause)
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)

    bounds = limits(num_processes=30, deadline_seconds=0.5 if counted else 60)
    keep = (trace.writing, tokens, giving)  # a pipe with a writer left has no end, so that the last ones wait
    contained = start(bomb, scratch, room, keep_fds=keep, readable=USR, limits=bounds)
    trace.let_go()
    assert contained.result().cause == ("deadline" if counted else "processes")
    assert trace.all_gone()
    os.close(tokens)
    os.close(giving)


@pytest.mark.parametrize("room", [room for room in ROOMS if room.id in ("own_uid", "cgroup_v1", "all")])
def test_process_limit_binds(scratch: Path, room: Features) -> None:
    def forks() -> int:
        for count in range(100):
            try:
                if os.fork() == 0:
                    signal.pause()
            except BlockingIOError:
                return count
        return 100

    outcome = inside(forks, scratch, room, readable=USR, limits=limits(num_processes=20))
    assert 15 <= outcome.value < 20
    assert outcome.ended.survivors_killed == outcome.value


@every_room
@pytest.mark.parametrize("kind", ["anonymous", "shared", "in children"])
def test_memory_hog(scratch: Path, room: Features, kind: str) -> None:
    def hog() -> None:
        if kind == "in children" and os.fork() and os.fork():
            signal.pause()
        held: list[Any] = []
        while True:
            block = mmap.mmap(-1, 4 * MIB, mmap.MAP_SHARED if kind == "shared" else mmap.MAP_PRIVATE)
            for page in range(0, 4 * MIB, 4096):
                block[page] = 1
            held.append(block)
            time.sleep(0.002)

    bounds = limits(memory_bytes=160 * MIB)
    contained = start(hog, scratch, room, readable=USR, limits=bounds)
    ended = contained.result()
    assert ended.oom, ended
    assert ended.max_rss_bytes >= 140 * MIB


@pytest.mark.skipif(not HOST.own_uid, reason="needs root")
@pytest.mark.parametrize("room", [pytest.param(only("own_uid"), id="own_uid"), pytest.param(HOST, id="all")])
def test_memory_files_that_nobody_maps_count(scratch: Path, room: Features) -> None:
    def hog() -> None:
        held = []
        while True:
            held.append(os.memfd_create("hidden"))
            os.write(held[-1], bytes(4 * MIB))
            time.sleep(0.002)

    assert start(hog, scratch, room, readable=USR, limits=limits(memory_bytes=160 * MIB)).result().oom


def test_memory_in_use_is_told(scratch: Path) -> None:
    """What it takes is told: a fork also has its share of what the process of the tests holds, however much that is."""
    for room in (BARE, HOST):
        wanted, want = os.pipe()
        held, hold = os.pipe()

        def main(wanted: int = wanted, hold: int = hold) -> None:
            os.read(wanted, 1)
            block = b"x" * (64 * MIB)
            os.write(hold, b"!")
            time.sleep(60)
            del block

        contained = start(main, scratch, room, keep_fds=(wanted, hold), readable=USR)
        before = contained.memory_bytes()
        os.write(want, b"!")
        os.read(held, 1)
        assert 60 * MIB <= contained.memory_bytes() - before < 128 * MIB
        assert contained.kill().cause == "killed"
        assert contained.memory_bytes() == 0
        for descriptor in (wanted, want, held, hold):
            os.close(descriptor)


def test_output_flood_is_cut(scratch: Path) -> None:
    def flood() -> None:
        line = b"x" * 65536
        for _ in range(2000):
            os.write(1, line)
            os.write(2, line)

    ended = start(flood, scratch, limits=limits(output_bytes=10_000)).result()
    assert ended.exit_code == 0
    assert ended.output == "x" * 10_000


def test_output_is_text_whatever_it_is(scratch: Path) -> None:
    assert start(lambda: os.write(1, b"\xff\x00\n\x80") and None, scratch).result().output == "\ufffd\x00\n\ufffd"


def test_huge_file(scratch: Path) -> None:
    def write() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return (scratch / "huge").write_bytes(bytes(5 * MIB))

    assert inside(write, scratch, limits=limits(file_bytes=MIB)).errno == "EFBIG"


@pytest.mark.parametrize("room", [pytest.param(BARE, id="bare"), pytest.param(HOST, id="all")])
@pytest.mark.parametrize("kind", ["many files", "big files", "unlinked files", "shared memory folder"])
def test_scratch_is_limited(scratch: Path, kind: str, room: Features) -> None:
    if kind == "shared memory folder" and not room.mount_namespace:
        pytest.skip("/dev/shm is out of reach here")

    def fill() -> None:
        held = []
        for number in range(100_000):
            folder = Path("/dev/shm") if kind == "shared memory folder" else scratch
            held.append(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT))
            if kind == "many files":
                os.close(held.pop())
            else:
                os.write(held[-1], bytes(256 * 1024))
                time.sleep(0.002)
            if kind == "unlinked files":
                (folder / str(number)).unlink()
        time.sleep(60)

    bounds = limits(scratch_bytes=8 * MIB, num_scratch_files=500)
    assert start(fill, scratch, room, readable=USR, limits=bounds).result().cause == "scratch"


FREEZERS = [room for room in ROOMS if room.id in ("bare", "pid_namespace", "cgroup_v2", "cgroup_v1", "all")]


@pytest.mark.parametrize("room", FREEZERS)
def test_freeze_and_thaw(scratch: Path, room: Features) -> None:
    memory = os.memfd_create("counters")
    os.ftruncate(memory, 4096)
    counters = mmap.mmap(memory, 4096)

    def count() -> None:
        mine = int(os.fork() == 0)
        while True:
            counters[mine] = (counters[mine] + 1) % 256

    def moves() -> bool:
        before = counters[:2]
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if counters[0] != before[0] and counters[1] != before[1]:
                return True
        return False

    contained = start(count, scratch, room, keep_fds=(memory,), readable=USR)
    os.close(memory)
    assert moves()
    assert contained.freeze()
    before = counters[:2]
    time.sleep(0.1)
    assert counters[:2] == before
    assert contained.thaw()
    assert moves()
    assert contained.freeze()
    assert contained.kill().cause == "killed"
    assert not contained.freeze()


@every_room
def test_all_dies_with_the_fork_server(scratch: Path, room: Features) -> None:
    trace = Trace()
    keep = (trace.reading, trace.writing)

    def main() -> None:
        _leave_session(trace)
        os.write(trace.writing, b"!")
        time.sleep(60)

    server = os.fork()
    if server == 0:
        try:
            held = start(main, scratch, room, readable=USR, keep_fds=keep)
            time.sleep(60)
            held.kill()
        finally:
            os._exit(1)
    trace.let_go()
    assert select.select([trace.reading], [], [], 30)[0]
    time.sleep(0.1)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    while os.read(trace.reading, 4096):  # blocks until every writer is gone
        pass
    os.close(trace.reading)


@every_room
def test_kill_after_it_ended_by_itself(scratch: Path, room: Features) -> None:
    trace = Trace()
    contained = start(lambda: _leave_session(trace) or time.sleep(60), scratch, room, readable=USR,
                      keep_fds=(trace.reading, trace.writing), limits=limits(deadline_seconds=0.1))  # fmt: skip
    trace.let_go()
    assert select.select([contained], [], [], 60)[0]
    assert contained.kill().cause == "deadline"
    assert trace.all_gone()


@pytest.mark.parametrize("room", [room for room in ROOMS if room.id not in ("bare", "own_uid")])
def test_a_lost_keeper_is_our_fault_and_leaves_nothing(scratch: Path, room: Features) -> None:
    trace = Trace()

    def main() -> None:
        _leave_session(trace)
        os.write(trace.writing, b"!")
        time.sleep(60)

    keep = (trace.reading, trace.writing)
    contained = start(main, scratch, room, keep_fds=keep, readable=USR)
    trace.let_go()
    os.read(trace.reading, 1)
    os.kill(contained.keeper, signal.SIGKILL)
    with pytest.raises(SandboxError):
        contained.result()
    while os.read(trace.reading, 4096):  # blocks until every writer is gone
        pass
    os.close(trace.reading)
    assert not _groups_of({contained.keeper})


def test_contestants_side_by_side_are_apart(scratch: Path) -> None:
    folders = [scratch / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    reading, writing = os.pipe()
    contained = [
        start(lambda: os.read(reading, 1) and print(os.getuid()), folder, keep_fds=(reading,)) for folder in folders
    ]
    os.write(writing, b"!!!!")
    outputs = {c.result().output for c in contained}
    assert len(outputs) == (4 if HOST.own_uid else 1)
    keepers = {os.getpid(), *(c.keeper for c in contained)}
    assert not _groups_of(keepers)


@pytest.mark.parametrize("bare", [False, True], ids=["all", "bare"])
def test_as_an_ordinary_user(bare: bool) -> None:
    """The same promises without root: user namespaces where the host has them, Landlock and the filter anyway."""

    def work(folder: Path) -> dict[str, Any]:
        from kerneldojo.contestant.sandbox import probe

        room = BARE if bare else probe()
        outside, folder = folder, folder / "scratch"
        folder.mkdir()
        trace = Trace()
        contained = start(lambda: _leave_session(trace), folder, room, keep_fds=(trace.reading, trace.writing),
                          readable=USR)  # fmt: skip
        trace.let_go()
        left = contained.result()
        parent = os.getpid()
        # An ordinary user may not see which pages a contestant's processes share, so each counts the whole of what it
        # inherited, here all that the tests before this one left in memory: not what this limit is about.
        few = limits(num_processes=20, deadline_seconds=1, memory_bytes=1 << 50)
        little = limits(memory_bytes=200 * MIB)

        def hog() -> None:
            held = []
            while True:
                held.append(os.urandom(MIB))

        def bomb() -> None:
            while True:
                try:
                    os.fork()
                except OSError:
                    time.sleep(0.01)

        def refused(attempt: Any) -> bool:
            return inside(attempt, folder, room, readable=USR).refused

        return {
            "gone": trace.all_gone(),
            "survivors": left.survivors_killed,
            "hog": start(hog, folder, room, readable=USR, limits=little).result().cause,
            "bomb": start(bomb, folder, room, readable=USR, limits=few).result().cause,
            "signal": refused(lambda: os.kill(parent, 0)),
            "memory": refused(lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY)),
            "outside": [refused(lambda: (outside / "x").write_text("x")), (outside / "x").exists()],
            "scratch": refused(lambda: (folder / "x").touch()),
            "measures": left.measures,
            "expected": [bool(room.landlock_abi), room.seccomp],
        }

    answer = as_ordinary_user(work)
    assert answer["gone"]
    assert answer["survivors"] == 1
    assert answer["hog"] == "memory"
    assert answer["bomb"] in ("processes", "deadline")
    assert not answer["scratch"]
    if not bare:
        assert not answer["outside"][1]  # it may have written to a /tmp of its own
        assert answer["memory"]
        assert answer["signal"]
        assert ["landlock" in " ".join(answer["measures"]), "seccomp" in answer["measures"]] == answer["expected"]


def test_honest_work_passes(scratch: Path) -> None:
    """What Triton's launcher and `load_inline` do: compile in scratch, load the result, use threads and programs."""

    def work() -> int:
        import multiprocessing
        import threading

        source = scratch / "stub.c"
        source.write_text("#include <Python.h>\n#include <stdlib.h>\nint answer(void) { return 42; }\n")
        import sysconfig

        include = sysconfig.get_path("include")
        library = scratch / "stub.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f"-I{include}", str(source), "-o", str(library)], check=True)
        answers: list[int] = []
        loaded = ctypes.CDLL(str(library))
        threads = [threading.Thread(target=lambda: answers.append(loaded.answer())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tempfile.NamedTemporaryFile() as file:
            assert Path(file.name).is_relative_to(scratch)
        if HOST.mount_namespace:
            with multiprocessing.Lock():
                Path("/tmp/here").write_text("yes")
        os.kill(subprocess.Popen(["sleep", "60"]).pid, signal.SIGTERM)
        shell = subprocess.run("/sbin/ldconfig -p | head -1; echo out", shell=True, capture_output=True, check=True)
        assert b"out" in shell.stdout
        return sum(answers)

    outcome = inside(work, scratch)
    assert outcome.value == 4 * 42


COMPUTES = """
import sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from sandboxed import Limits, inside

def work():
    import torch
    import triton

    torch.set_num_threads(2)
    assert triton.__version__
    return float((torch.ones(300, 300) @ torch.ones(300, 300)).sum())

print(inside(work, Path({scratch!r}), limits=Limits(deadline_seconds=280)).value)
"""


@pytest.mark.slow
def test_torch_and_triton_pass(scratch: Path) -> None:
    """In forks of a fresh process: of one that has computed with threads of its own, a fork waits for them for ever."""
    pytest.importorskip("triton")
    script = COMPUTES.format(folder=str(Path(__file__).parent), scratch=str(scratch))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{300.0**3}\n"), done.stderr


def test_import_is_light() -> None:
    code = "import sys, kerneldojo.contestant.sandbox; print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"


def test_root_was_what_these_ran_as_or_not() -> None:
    assert HOST.own_uid <= IS_ROOT
