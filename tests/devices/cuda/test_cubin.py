import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kerneldojo.devices.cuda import cubin

NVCC = shutil.which("nvcc")

SOURCE = """
__device__ __noinline__ float helper(float x) { return x * x + 1.0f; }
__global__ void first(const float* a, float* b) { b[threadIdx.x] = helper(a[threadIdx.x]); }
template <int N> __global__ void second(float* b) { b[threadIdx.x] = N; }
void launch(float* a, float* b) { first<<<1, 32>>>(a, b); second<7><<<1, 32>>>(b); }
"""


def triton_cubin() -> bytes:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kerneldojo.devices.cuda.rehearsal import rehearse

    signature = {"source": "*fp32", "target": "*fp32", "count": "i32", "BLOCK": "constexpr"}
    compiled = triton.compile(ASTSource(rehearse, signature, {"BLOCK": 256}), target=GPUTarget("cuda", 90, 32))
    return compiled.asm["cubin"]


def disassembled(path: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    return subprocess.run([str(tool), "--dump-sass", str(path)], capture_output=True, text=True, check=True).stdout


def instructions(sass: str) -> list[str]:
    """The first instruction of each function."""
    found: list[str] = []
    waiting = False
    for line in sass.splitlines():
        if "Function :" in line:
            waiting = True
        elif waiting and "/*0000*/" in line:
            found.append(line.split("*/")[1].split(";")[0].strip())
            waiting = False
    return found


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing")
def test_a_silenced_triton_kernel_begins_with_exit(tmp_path: Path) -> None:
    original = triton_cubin()
    assert cubin.kernel_names(original) == ["rehearse"]
    silent = cubin.silenced(original)
    assert len(silent) == len(original)
    assert sum(a != b for a, b in zip(original, silent, strict=True)) <= 16
    path = tmp_path / "silent.cubin"
    path.write_bytes(silent)
    assert instructions(disassembled(path)) == ["EXIT"]


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_all_kernels_of_a_library_are_found_and_silenced(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    library = tmp_path / "k.so"
    command = ["nvcc", "-gencode", "arch=compute_90,code=sm_90", "--no-compress", "-Xcompiler", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(library), str(tmp_path / "k.cu")], check=True, capture_output=True)
    names = cubin.library_kernel_names(library)
    assert sorted(names) == ["_Z5firstPKfPf", "_Z6secondILi7EEvPf"]
    assert cubin.silence_library(library) == 2
    assert instructions(disassembled(library)).count("EXIT") == 2


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_device_code_that_cannot_be_silenced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    library = tmp_path / "k.so"
    command = ["nvcc", "-gencode", "arch=compute_90,code=compute_90", "-Xcompiler", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(library), str(tmp_path / "k.cu")], check=True, capture_output=True)
    with pytest.raises(cubin.CubinError, match="none that can be silenced"):
        cubin.silence_library(library)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x7fELF",
        b"\x7fELF\x02\x01" + b"\xff" * 200,
        b"\x7fELF\x02\x01" + struct.pack("<34xQ", 1 << 60) + b"\0" * 90,
    ],
)
def test_junk_raises_no_other_error(junk: bytes) -> None:
    with pytest.raises(cubin.CubinError):
        cubin.silenced(junk)
