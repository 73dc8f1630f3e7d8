"""A workshop builds for two sides that trust neither each other nor each other's files, and outlives neither."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from descriptors import open_files
from kerneldojo.contestant import workshop
from kerneldojo.contestant.sandbox.processes import is_alive
from kerneldojo.contestant.wire import Channel
from kerneldojo.contestant.workshop import MAX_ORDERS, Line
from kerneldojo.devices.cuda import toolchain
from kerneldojo.devices.cuda.build import Builder, ExtensionError, UnsupportedOnDevice
from kerneldojo.devices.cuda.compiler import Compiler, Order
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.workshop import Lines

SOURCE = """#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "quick", "", -1, methods};
PyMODINIT_FUNC PyInit_quick() { return PyModule_Create(&module); }
"""
"""An extension that compiles in a moment: without torch's headers."""


def order(answer: int | str = 42, *cxx: str, **flags: Any) -> Order:
    return Order("quick", {"main.cpp": SOURCE}, Flags(cxx=(f"-DANSWER={answer}", *cxx), **flags))


class Shop:
    """A workshop in its sandbox, and the two ends that a judge would give away."""

    def __init__(self, server: ForkServer, **limits: int) -> None:
        lines = Lines()
        wanted = request(Protocol(), "h100")
        wanted["limits"] |= limits
        self.session = Session(server, lines, wanted, is_workshop=True)
        lines.hand_over()
        self.ends = [lines.take(), lines.take()]

    def lines(self) -> list[Line]:
        return [Line(end.detach()) for end in self.ends]

    def num_built(self) -> int:
        return int(self.session.ask("count", timeout=60.0)["num_built"])

    def num_given(self) -> int:
        return int(self.session.ask("count", timeout=60.0)["num_given"])

    def close(self) -> None:
        self.session.close()
        for end in self.ends:
            end.close()


@pytest.fixture
def shop(server: ForkServer) -> Generator[Shop]:
    shop = Shop(server)
    yield shop
    shop.close()


def builder(folder: Path, line: Line | None) -> Builder:
    return Builder(toolchain.find((9, 0)), folder, workshop=line)


def load(builder: Builder, answer: int | str = 42, source: str = SOURCE, **options: Any) -> Any:
    options = {"extra_cflags": [f"-DANSWER={answer}", ""], "extra_ldflags": [""], **options}
    return builder.load_inline("quick", source, no_implicit_headers=True, **options)


def test_equal_orders_are_built_once_whoever_asks_first(shop: Shop) -> None:
    first, second = shop.lines()
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(line, order()) for line in (first, second)]
        libraries = [result.result() for result in results]
    assert libraries[0]
    assert libraries[0] == libraries[1]
    assert shop.num_built() == 1
    assert shop.num_given() == 2
    assert first(order(43)) != libraries[0]
    assert second(order(43)) == first(order(43))
    assert shop.num_built() == 2


def test_a_side_that_overwrites_its_own_files_changes_nothing_for_the_other(shop: Shop, tmp_path: Path) -> None:
    contestant, twin = (
        builder(tmp_path / name, line) for name, line in zip(("contestant", "twin"), shop.lines(), strict=True)
    )
    assert load(contestant).answer() == 42
    (written,) = contestant.libraries
    content = written.read_bytes()
    for file in (tmp_path / "contestant").rglob("*"):
        if file.is_file():
            file.unlink()
            file.write_bytes(b"a decoy")
    assert load(twin).answer() == 42
    assert twin.libraries[0].read_bytes() == content
    assert shop.num_built() == 1


def test_what_was_handed_out_cannot_be_written_to(shop: Shop) -> None:
    ours, theirs = shop.ends
    channels = Channel(ours), Channel(theirs)
    for channel in channels:
        channel.send(order().as_json())
        assert channel.receive(60.0) == {"built": True}
    (mine,) = channels[0].received_fds
    with pytest.raises(PermissionError):
        os.pwrite(mine, b"\x7fELF", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(mine, 0)
    with pytest.raises(OSError, match="not permitted"), Path(f"/proc/self/fd/{mine}").open("r+b") as again:
        again.write(b"\x7fELF" * 4096)
    assert os.pread(channels[1].received_fds[0], 4, 0) == b"\x7fELF"
    for channel in channels:
        channel.close()


def test_an_error_is_the_compilers_own_and_found_once(shop: Shop, tmp_path: Path) -> None:
    errors: list[str] = []
    lines = shop.lines()
    for number, line in enumerate((*lines, None)):
        with pytest.raises(ExtensionError) as caught:
            load(builder(tmp_path / str(number), line), "nothing")
        errors.append(str(caught.value))
    assert "was not declared in this scope" in errors[0]
    assert errors[0] == errors[1] == errors[2]
    assert shop.num_built() == 1


@pytest.mark.parametrize(
    "flags",
    [
        Flags(cxx=("-fplugin=/tmp/evil.so",)),
        Flags(cxx=("-wrapper", "/tmp/evil")),
        Flags(link=("-B/tmp",)),
        Flags(includes=("/tmp",)),
    ],
)
def test_options_that_could_run_something_are_not_taken_even_from_who_sends_them_all_the_same(
    shop: Shop, flags: Flags
) -> None:
    hostile = Order("quick", {"main.cpp": SOURCE}, flags)
    channel = Channel(shop.ends[0])
    channel.send(hostile.as_json())
    assert channel.receive(60.0) == {"refused": "it is not plain"}
    assert shop.num_built() == 0
    channel.close()


def test_what_the_workshop_does_not_take_is_built_here(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.h").write_text("#define ANSWER 7\n")
    mine = builder(tmp_path / "mine", shop.lines()[0])
    by_name, by_path = f'#include "mine.h"\n{SOURCE}', f'#include "{tmp_path}/mine.h"\n{SOURCE}'
    assert load(mine, source=by_name, extra_cflags=[], extra_include_paths=[str(tmp_path)]).answer() == 7
    with monkeypatch.context() as patch:
        patch.setenv("CPATH", str(tmp_path))
        assert load(mine, source=by_name, extra_cflags=[]).answer() == 7
    assert shop.num_built() == 0
    assert load(mine, source=by_path, extra_cflags=[]).answer() == 7
    assert shop.num_built() == 1, "what the file is missed by is the workshop"


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def asking(**changes: Any) -> bytes:
    return frame(json.dumps({**order().as_json(), **changes}).encode())


def half_a_frame(end: socket.socket) -> None:
    end.sendall(b"\x00\x01\x00\x00{")


def many_descriptors(end: socket.socket) -> None:
    """More than any process may have open, beside the bytes of one frame."""
    end.settimeout(60.0)
    end.sendall(struct.pack("<I", 1 << 20))
    for _ in range(1000):
        socket.send_fds(end, [b" "], [0, 1, 2])


@pytest.mark.parametrize(
    "attack",
    [
        lambda end: end.sendall(b"\xff\xff\xff\xff"),
        half_a_frame,
        lambda end: end.sendall(frame(b"{")),
        lambda end: end.sendall(frame(b"[" * 100_000)),
        lambda end: end.sendall(frame(b"\xff\xfe")),
        lambda end: end.sendall(asking(name="../../up")),
        lambda end: end.sendall(asking(texts={"../main.cpp": SOURCE})),
        lambda end: end.sendall(asking(texts={"main.cpp": 3})),
        lambda end: end.sendall(asking(flags={"cxx": "-O3"})),
        lambda end: end.sendall(asking(flags=[1])),
        many_descriptors,
        lambda end: end.close(),
    ],
)
def test_nonsense_on_one_line_is_answered_there_and_nowhere_else(
    in_process: workshop.Workshop, attack: Callable[[socket.socket], None]
) -> None:
    bad, good = served(in_process), served(in_process)
    line = Line(good.detach())
    hanging = Channel(bad.dup())
    attack(bad)
    assert line(order()), "the other line is served"
    if bad.fileno() >= 0 and attack is not half_a_frame and attack is not many_descriptors:
        assert "refused" in hanging.receive(10.0)
    hanging.close()
    bad.close()
    line.close()
    assert in_process.num_built == 1


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> workshop.Workshop:
    """One without a sandbox, for what concerns its lines."""
    return workshop.Workshop(Compiler(toolchain.find((9, 0))), tmp_path_factory.mktemp("orders"))


def served(works: workshop.Workshop) -> socket.socket:
    """One end of a line that it serves."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    line = Channel(theirs, takes_descriptors=False)
    threading.Thread(target=works.serve, args=[line], daemon=True).start()
    return ours


def test_one_line_has_no_more_than_its_share(shop: Shop) -> None:
    greedy, modest = shop.lines()
    orders = [Order("quick", {"main.cpp": "#error\n"}, Flags(cxx=(f"-DN={n}",))) for n in range(MAX_ORDERS + 1)]
    for one in orders[:MAX_ORDERS]:
        with pytest.raises(ExtensionError):
            greedy(one)
    assert greedy(orders[-1]) is None
    assert modest(order())


def test_who_loses_the_workshop_builds_alone(shop: Shop, tmp_path: Path) -> None:
    first, second = shop.lines()
    assert load(builder(tmp_path / "1", first)).answer() == 42
    shop.session.wait_started()
    os.kill(max(shop.session.pids()), signal.SIGKILL)
    assert load(builder(tmp_path / "2", second), 43).answer() == 43
    until = time.monotonic() + 30
    while not shop.session.has_ended():
        assert time.monotonic() < until
    assert shop.session.ended is not None
    assert shop.session.ended["cause"] == "exited"


def test_a_source_that_takes_all_the_memory_takes_it_from_the_workshop_only(server: ForkServer, tmp_path: Path) -> None:
    hungry = Order("quick", {"main.cpp": '#include "/dev/zero"\n'}, Flags())
    shop = Shop(server, memory_bytes=256 << 20)
    first, second = shop.lines()
    assert first(hungry) is None
    assert load(builder(tmp_path, second)).answer() == 42
    shop.close()


def test_a_fork_of_who_orders_builds_alone(shop: Shop) -> None:
    line = shop.lines()[0]
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"none" if line(order()) is None else b"some")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 4) == b"none"
    os.close(reading)
    os.close(writing)
    assert shop.num_built() == 0


def test_nothing_is_left(server: ForkServer) -> None:
    before = open_files()
    shop = Shop(server)
    lines = shop.lines()
    slow = threading.Thread(target=lines[0], args=[order(1, "-O3", "-DSLOW")])
    assert lines[1](order())
    shop.session.wait_started()
    pids = shop.session.pids()
    slow.start()
    scratch = shop.session._scratch
    assert pids
    shop.close()
    slow.join(60)
    for line in lines:
        line.close()
    assert not any(map(is_alive, pids))
    assert not scratch.exists()
    assert open_files() - before == set()


def test_an_order_crosses_unchanged() -> None:
    strange = Order(
        "quick", {"main.cpp": "// \udcff \0 \u2028\n", "cuda.cu": ""}, Flags.of({"extra_cflags": '-DX=\\"y\\"'})
    )
    assert Order.read(json.loads(json.dumps(strange.as_json()))) == strange
    assert not strange.is_plain
    assert strange.flags.cxx == ('-DX="y"',)


def test_what_is_built_here_and_there_is_the_same(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    here = order().build(Compiler(toolchain.find((9, 0))), tmp_path / "here")
    assert shop.lines()[0](order()) == here.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.skipif(torch.version.cuda is not None, reason="about machines without a GPU")
def test_nvcc_works_there_without_a_device(shop: Shop, tmp_path: Path) -> None:
    kernel = "__global__ void twice(float* a, int n) { int i = threadIdx.x; if (i < n) a[i] *= 2; }"
    for line in shop.lines():
        with pytest.raises(UnsupportedOnDevice, match="compiles; running it needs a CUDA device"):
            builder(tmp_path, line).load_inline(
                "bare", "void f();", kernel, no_implicit_headers=True, extra_cuda_cflags=["-O3", "--use_fast_math"]
            )
    assert shop.num_built() == 1
