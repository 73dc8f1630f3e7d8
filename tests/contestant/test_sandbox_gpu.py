"""The CUDA driver, torch and Triton work inside the finished sandbox, and memory crosses into it as a descriptor."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from sandboxed import HOST, as_ordinary_user, inside, only

from kerneldojo.contestant.sandbox import Features, Limits, toolchain

pytestmark = [pytest.mark.gpu, pytest.mark.own_process]
NODES = tuple(
    path for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia4", "nvidia5",
                      "nvidia6", "nvidia7", "nvidia8") if (path := Path("/dev", name)).exists()
)  # fmt: skip
WITHOUT_MOUNTS = dataclasses.replace(HOST, mount_namespace="", fresh_proc=False)
LIMITS = Limits(deadline_seconds=120)


KERNEL = """
import triton, triton.language as tl
@triton.jit
def double(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)
"""


def _use_gpu() -> list[float]:
    started = time.perf_counter()
    import importlib.util

    import torch

    x = torch.ones(1 << 20, device="cuda")
    context = time.perf_counter()
    Path("kernel.py").write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel", "kernel.py")
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    y = torch.empty_like(x)
    module.double[(1024,)](x, y, x.numel(), B=1024)
    product = x.view(1024, 1024) @ y.view(1024, 1024)
    return [float(y.sum()), float(product[0, 0]), context - started, time.perf_counter() - context]


@pytest.mark.parametrize(
    "room",
    [HOST, WITHOUT_MOUNTS, only("landlock_abi", "own_uid", "seccomp"), only("pid_namespace", "mount_namespace")],
    ids=["all", "without mounts", "without namespaces", "without fresh proc"],
)
def test_torch_and_triton_use_the_gpu(scratch: Path, room: Features) -> None:
    outcome = inside(_use_gpu, scratch, room, device_nodes=NODES, gpu=True, readable=toolchain(gpu=True), limits=LIMITS)
    print(outcome)
    assert outcome.value[:2] == [2.0 * (1 << 20), 2048.0]


def test_gpu_as_an_ordinary_user() -> None:
    def work(folder: Path) -> list[Any]:
        from kerneldojo.contestant.sandbox import probe

        (folder / "scratch").mkdir()
        outcome = inside(_use_gpu, folder / "scratch", probe(), device_nodes=NODES, gpu=True,
                         readable=toolchain(gpu=True), limits=LIMITS)  # fmt: skip
        return [*outcome.value, *outcome.ended.measures]

    answer = as_ordinary_user(work)
    print(answer)
    assert answer[:2] == [2.0 * (1 << 20), 2048.0]


def test_gpu_not_listed_is_out_of_reach(scratch: Path) -> None:
    def count() -> int:
        number = ctypes.c_int()
        cuda = ctypes.CDLL("libcuda.so.1")
        return cuda.cuInit(0) or (cuda.cuDeviceGetCount(ctypes.byref(number)), number.value)[1]

    assert inside(count, scratch, readable=toolchain(gpu=True), limits=LIMITS).value != len(NODES) - 2


@pytest.mark.skipif(len(NODES) < 4, reason="one GPU")
@pytest.mark.parametrize("room", [HOST, WITHOUT_MOUNTS], ids=["all", "without mounts"])
def test_another_gpu_is_out_of_reach(scratch: Path, room: Features) -> None:
    def look() -> list[str]:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Whatever is hidden from us: the room alone decides.
        import torch

        found = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
        for node in NODES[2:]:
            try:
                os.close(os.open(node, os.O_RDWR))
            except OSError:
                found.append(f"no {node}")
        return [*found, str(float(torch.ones(4, device="cuda").sum()))]

    own, others = NODES[-1], NODES[2:-1]
    outcome = inside(look, scratch, room, device_nodes=(*NODES[:2], own), gpu=True, readable=toolchain(gpu=True),
                     limits=LIMITS)  # fmt: skip
    assert outcome.value[1:] == [*(f"no {node}" for node in others), "4.0"], outcome


SIZE = 2 << 20
_PROPERTIES = struct.pack("=iiiiQQ", 1, 1, 1, 0, 0, 0)  # pinned, shared as a descriptor, on device 0
_ACCESS = struct.pack("=iii", 1, 0, 3)


def _with_context() -> Any:
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda


def _mapped(cuda: Any, handle: ctypes.c_uint64) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    assert cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(SIZE), 0, 0, 0) == 0
    assert cuda.cuMemMap(address, ctypes.c_size_t(SIZE), 0, handle, 0) == 0
    assert cuda.cuMemSetAccess(address, ctypes.c_size_t(SIZE), _ACCESS, ctypes.c_size_t(1)) == 0
    return address


def test_memory_of_the_judge_arrives_as_a_descriptor(scratch: Path) -> None:
    ours, theirs = socket.socketpair()
    judge = os.fork()
    if judge == 0:
        code = 1
        try:
            theirs.close()
            cuda = _with_context()
            handle, descriptor = ctypes.c_uint64(), ctypes.c_int()
            assert cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(SIZE), _PROPERTIES, 0) == 0
            address = _mapped(cuda, handle)
            assert cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, 0) == 0
            socket.send_fds(ours, [b"!"], [descriptor.value])
            assert ours.recv(1) == b"!"
            read = ctypes.create_string_buffer(8)
            assert cuda.cuMemcpyDtoH_v2(read, address, ctypes.c_size_t(8)) == 0
            code = 0 if read.raw == b"ANSWERED" else 2
        finally:
            os._exit(code)
    ours.close()

    def answer() -> int:
        cuda = _with_context()
        _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
        handle = ctypes.c_uint64()
        imported = cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(descriptors[0]), 1)
        assert imported == 0
        assert cuda.cuMemcpyHtoD_v2(_mapped(cuda, handle), b"ANSWERED", ctypes.c_size_t(8)) == 0
        theirs.send(b"!")
        return imported

    keep = (theirs.fileno(),)
    outcome = inside(answer, scratch, device_nodes=NODES, gpu=True, readable=toolchain(gpu=True), keep_fds=keep,
                     limits=LIMITS)  # fmt: skip
    assert outcome.value == 0
    assert os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1]) == 0
