"""What is made beforehand is really made, by the compilers that candidates have, and extensions wait for it.

All of it is made once here: the brief headers, which mean what torch's own mean, whose object has all that they
declare, and beside which all names of torch's are listed.
"""

from __future__ import annotations

import operator
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from extensions import BINDINGS, ON_DEVICE, ON_HOST, loaded, names, precompiled

from kerneldojo.devices.cuda import headers, toolchain
from kerneldojo.devices.cuda.build import Builder
from kerneldojo.devices.cuda.compiler import Compiler, ExtensionError, Unit, UnsupportedOnDevice
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.devices.cuda.precompiled import Precompiled, Precompiler
from kerneldojo.devices.cuda.toolchain import Toolchain

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

TORCH = Path(torch.__file__).parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Precompiled:
    """What the judge makes."""
    made = precompiled(tmp_path_factory)
    assert made.has_brief == (shutil.which("nvcc") is not None)
    return made


def test_closing_stops_the_compiler_and_leaves_nothing(tmp_path: Path) -> None:
    compiler = Precompiler(toolchain.find((9, 0)), tmp_path)
    compiler.close()
    assert list(tmp_path.iterdir()) == []


def test_an_extension_waits_for_what_is_being_made_and_for_nothing_else(tmp_path: Path) -> None:
    made = Precompiled(tmp_path)
    made.wait(made.bindings_object)  # Nobody is at it.
    made.pending.touch()
    with ThreadPoolExecutor(2) as threads:
        for end in (made.bindings_object.touch, made.pending.unlink):
            made.brief.mkdir(exist_ok=True)
            made.bindings_object.unlink(missing_ok=True)
            waiting = threads.submit(made.wait, made.bindings_object)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            end()
            waiting.result(timeout=30)
    compiler = Precompiler(replace(toolchain.find((9, 0)), cxx="false"), tmp_path)
    compiler.made.wait(compiler.made.bindings_object)  # It cannot be made.
    assert not compiler.made.pending.exists()
    assert not compiler.made.has_bindings
    compiler.close()
    assert not compiler.made.folder.exists()


@needs_nvcc
@pytest.mark.slow
def test_tensors_cross_between_brief_headers_and_torchs_own(made: Precompiled, tmp_path: Path) -> None:
    """A host compiler has one half compiled against the brief headers, the other against torch's; no GPU is needed.

    What the object takes of guards from libraries that are not everywhere becomes weak, for it is not called.
    """
    tools = toolchain.find((9, 0))
    declared = [
        line.partition("{")[0] for line in ON_HOST.splitlines() if line.startswith(("std::", "torch::", "double"))
    ]
    found = [re.search(r"(\w+)\(", line) for line in declared]
    binds = " ".join(f'm.def("{one[1]}", &{one[1]});' for one in found if one)
    (tmp_path / "main.cpp").write_text(
        BINDINGS.format(declarations="".join(f"{line};\n" for line in declared), bindings=binds)
    )
    (tmp_path / "work.cpp").write_text(ON_HOST)
    own = tools.include_flags()
    main, work, bodies = (tmp_path / name for name in ("main.o", "work.o", "brief.o"))
    for command in (
        tools.cxx_command("crossing", tmp_path / "main.cpp", main, [f"-I{headers.SLIM}", *own]),
        tools.cxx_command("crossing", tmp_path / "work.cpp", work, [f"-I{made.brief}", f"-I{headers.BRIEF}", *own]),
        ["objcopy", "-w", "-W", "*c104cuda*", "-W", "cuda*", str(made.brief_object), str(bodies)],
        tools.link_command([main, work, bodies], tmp_path / "crossing.so", cuda=False, extra=[]),
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    module = loaded("crossing", tmp_path / "crossing.so")
    x = torch.arange(24.0).reshape(2, 3, 4)[:, 1:].transpose(0, 1)
    assert module.describe(x) == "3 [2, 2, 4] [4, 12, 1] 16 64 4 Float cpu 0011 4 4 4 1"
    assert module.describe(torch.zeros(3, dtype=torch.float16)) == "1 [3] [1] 3 6 2 Half cpu 1011 3 1 0 0"
    assert module.made(x, 2).tolist() == [2, 15, 2, 15]
    first, second = module.twice(x)
    assert first.data_ptr() == x.data_ptr() != second.data_ptr()
    assert torch.equal(second, x)
    assert module.corner(torch.tensor([[1.0, 2.0], [30.0, 4.0]])) == 33
    with pytest.raises(RuntimeError, match="seven, not 3"):
        module.refused(x)
    x, y = torch.tensor([[5, 7], [2, 9]]), torch.tensor([[1, 1], [3, 4]])
    pairs = [(x, y), (x, 2), (2, x)]
    signs = (operator.add, operator.sub, operator.mul, operator.mod, operator.and_, operator.or_)
    signs += (operator.xor, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    wanted = [sign(*pair) for sign in signs for pair in pairs]
    wanted += [-x, ~x, x[-1], x[y[0][1]], x[0], 1.5 - (x + 0.5), x / y, x / 2.5, 2 / (x + 0.5)]
    found = module.operated(x, y, 2)
    assert [(one.dtype, one.tolist()) for one in found] == [(one.dtype, one.tolist()) for one in wanted]
    first, second = module.changed(x.float(), y.int())
    assert first.tolist() == [[3, 4], [7.5, 3]]
    assert second.tolist() == [[0, 0], [0, 0]]


@needs_nvcc
@pytest.mark.slow
def test_nothing_is_declared_that_is_not_there(made: Precompiled, tmp_path: Path) -> None:
    tools = toolchain.find((9, 0))
    (tmp_path / "usual.cu").write_text(ON_DEVICE)
    command = tools.nvcc_command(
        "usual",
        tmp_path / "usual.cu",
        tmp_path / "usual.o",
        [f"-I{made.brief}", f"-I{headers.BRIEF}", *tools.include_flags()],
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    there = names(made.brief_object, "--defined-only")
    for library in ("c10", "torch_cpu", "c10_cuda", "torch_cuda"):
        if (path := TORCH / "lib" / f"lib{library}.so").exists():
            there |= names(path, "-D", "--defined-only")
    missing = {name for name in names(tmp_path / "usual.o", "-u") - there if re.search(r"at|c10|torch", name)}
    if torch.version.cuda is None:  # Libraries that are not here.
        missing -= {name for name in missing if re.match(r"_ZNK?3c104cuda|_ZN2at4cuda", name)}
    assert {name for name in missing if name.startswith(("_ZN2at", "_ZNK2at", "_ZN3c10", "_ZNK3c10"))} == set()


USUAL = """
#include <c10/cuda/CUDAException.h>
__global__ void copy(const float* a, float* b, int n) { int i = threadIdx.x; if (i < n) b[i] = a[i]; }
torch::Tensor run(torch::Tensor a) {
  TORCH_CHECK(a.dim() == 1 && a.dtype() == torch::kFloat32, "a vector of floats");
  auto b = torch::empty_like(a);
  auto c = torch::zeros({3}, torch::TensorOptions().dtype(torch::kFloat16).device(torch::kCUDA));
  copy<<<1, 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), (int)a.numel());
  C10_CUDA_CHECK(cudaGetLastError());
  return b.softmax(0);
}
"""
"""What a candidate usually looks like, but for one function that brief headers do not know."""


@needs_nvcc
@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="about machines without a GPU")
def test_what_brief_headers_do_not_know_is_compiled_all_the_same(
    made: Precompiled, tried: list[str], tmp_path: Path
) -> None:
    """For a GPU that is not there: CPU builds of torch lack one header that it takes, which ours supply."""
    tools = toolchain.find((9, 0))
    compiler = Compiler(tools, made)
    builder = Builder(tools, tmp_path, workshop=lambda order: order.build(compiler, tmp_path).read_bytes())
    with pytest.raises(UnsupportedOnDevice, match="compiles"):
        builder.load_inline("usual", "torch::Tensor run(torch::Tensor a);", USUAL, functions=["run"])
    assert tried == ["bare.cpp", "bare.cu", "brief.cu", "slim.cu"]
    tried.clear()
    with pytest.raises(ExtensionError, match='"undeclared" is undefined'):
        builder.load_inline("wrong", "", "__global__ void f() { undeclared(); }\n", no_implicit_headers=True)
    assert tried == ["bare.cpp", "bare.cu"]


@needs_nvcc
def test_names_and_macros_of_the_torch_that_is_here(made: Precompiled) -> None:
    names = made.names()
    assert names
    assert {"softmax", "scalar_t", "Conv2d", "cudaStream_t", "AT_DISPATCH_ALL_TYPES"} <= names.known
    assert not {"blokIdx", "relu_kernel_of_mine", "cuda_sources"} & names.known
    assert {"PYBIND11_MODULE", "VLOG"} <= names.macros["slim.cu"]
    assert "VLOG" in names.macros["slim.cpp"]
    assert not {"TORCH_CHECK", "AT_DISPATCH_FLOATING_TYPES", "C10_CUDA_CHECK"} & names.macros["brief.cu"]


@needs_nvcc
@pytest.mark.slow
def test_torchs_own_headers_are_asked_only_where_they_may_help(
    made: Precompiled, tried: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    shutil.copy(made.names_file, folder)  # And no brief headers.
    command = Toolchain.nvcc_command

    def refused(self: Toolchain, *order: Any) -> list[str]:
        real = command(self, *order)  # This notes what it is compiled against.
        return ["sh", "-c", "echo error: of its own; exit 1"] if tried[-1] == "own.cu" else real

    monkeypatch.setattr(Toolchain, "nvcc_command", refused)
    compiler = Compiler(replace(toolchain.find((9, 0)), architecture="90a"), Precompiled(folder))
    unit = Unit(tmp_path / "cuda.cu", is_cuda=True)

    def build(text: str, header: str = "cstdint") -> list[str]:
        tried.clear()
        unit.path.write_text(f"#include <{header}>\n{text}\n")
        with pytest.raises(ExtensionError) as caught:
            compiler.build("any", [unit], Flags.of({}), tmp_path)
        return [*tried, str(caught.value)]

    kind, told = build("__global__ void f(float* x) { x[blokIdx.x] = 1; }")
    assert (kind, told.partition("\n")[0]) == ("slim.cu", 'cuda.cu(2): error: identifier "blokIdx" is undefined')
    assert build("float f(float x) { return x }")[0::2] == ["slim.cu"]
    helped = build("torch::Tensor f(torch::Tensor x) { return torch::frobenius_norm(x, {0}); }", "torch/types.h")
    assert helped == ["slim.cu", "own.cu", "error: of its own"]


@pytest.mark.gpu
@pytest.mark.slow
def test_kernels_run_that_were_compiled_against_brief_headers(made: Precompiled, tmp_path: Path) -> None:
    unit, main = Unit(tmp_path / "cuda.cu", is_cuda=True), Unit(tmp_path / "main.cpp", is_cuda=False)
    unit.path.write_text(ON_DEVICE)
    main.path.write_text(
        BINDINGS.format(declarations="torch::Tensor run(torch::Tensor x);", bindings='m.def("run", &run);')
    )
    compiler = Compiler(toolchain.find(torch.cuda.get_device_capability()), made)
    library = compiler.build("usual", [unit, main], Flags.of({}), tmp_path)
    assert "_ZN2at6TensorD1Ev" in names(library, "--defined-only")
    module = loaded("usual", library)
    x = torch.randn(1000, device="cuda")
    assert torch.equal(module.run(x), 2 * x)
    assert torch.equal(module.run(x.half()), 2 * x.half())
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(module.run(x[:6].reshape(2, 3)), 2 * x[:6].reshape(2, 3) + 100)
    with pytest.raises(RuntimeError, match="a contiguous tensor on a GPU"):
        module.run(x.cpu())
