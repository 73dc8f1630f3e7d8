"""NVIDIA's library cut down: the same binaries, from less to read."""

import json
import os
import subprocess
import sys

SCRIPT = """
import hashlib, json, os, tempfile
import triton, triton.language as tl
from triton._C.libtriton import llvm
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice as functions
from kerneldojo.devices import libdevice


@triton.jit
def root(x, y):
    i = tl.arange(0, 128)
    tl.store(y + i, tl.sqrt(tl.load(x + i)) + tl.load(x + i))

@triton.jit
def wave(x, y):
    i = tl.arange(0, 128)
    tl.store(y + i, tl.sin(tl.load(x + i)) * functions.tanh(tl.load(x + i)))

@triton.jit
def power(x, y):
    i = tl.arange(0, 128)
    tl.store(y + i, functions.pow(tl.load(x + i), 2.5) - tl.erf(tl.load(x + i)) + tl.log(tl.load(x + i)))

@triton.jit
def rare(x, y):
    i = tl.arange(0, 128)
    tl.store(y + i, functions.cyl_bessel_i0(tl.load(x + i)) + tl.sqrt(tl.load(x + i)))


whole = llvm.link_extern_libs
read = []

def noted(module, paths):
    read.append(sum(os.path.getsize(path) for path in paths))
    whole(module, paths)

def binaries():
    found = []
    for kernel in (root, wave, power, rare):
        for warps in (1, 4):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["TRITON_CACHE_DIR"] = folder
                source = ASTSource(kernel, {"x": "*fp32", "y": "*fp32"}, {}, {})
                made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps})
                found.append(hashlib.sha256(made.asm["cubin"]).hexdigest())
    return found

llvm.link_extern_libs = noted
before, read_before = binaries(), read[:]
names = libdevice.keep_common_part((9, 0))
read.clear()
after = binaries()
print(json.dumps({"names": names, "before": before, "after": after, "read_before": read_before, "read": read}))
"""


def test_a_part_of_the_library_gives_the_same_binaries(tmp_path):
    (tmp_path / "kernels.py").write_text(SCRIPT)  # Triton reads a kernel's source from its file.
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    settings.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "kernels.py")], env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert {"__nv_sinf", "__nv_sqrtf", "__nv_tanhf", "__nv_powf", "__nv_erff"} <= set(told["names"])
    assert "__nv_cyl_bessel_i0f" not in told["names"]
    assert told["after"] == told["before"]
    common, rare = told["read"][:6], told["read"][6:]
    assert all(3 * size < whole for size, whole in zip(common, told["read_before"][:6], strict=True))
    assert rare == told["read_before"][6:]
