"""The brief headers mean what torch's own mean, their object has all that they declare, and their list all names."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kerneldojo.devices.cuda import brief, headers, precompiled, toolchain
from kerneldojo.devices.cuda.compiler import Compiler, ExtensionError, Unit, UnsupportedOnDevice
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.devices.cuda.precompiled import Precompiled, Precompiler
from kerneldojo.devices.cuda.toolchain import Toolchain

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

TORCH = Path(torch.__file__).parent
BINDINGS = """#include <torch/extension.h>
{declarations}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bindings} }}
"""

ON_HOST = """#include <torch/extension.h>
#include <sstream>
std::string describe(torch::Tensor x) {
  std::ostringstream text;
  text << x.dim() << " " << x.sizes() << " " << x.strides() << " " << x.numel() << " " << x.nbytes() << " "
       << x.element_size() << " " << x.scalar_type() << " " << x.device() << " " << x.is_contiguous() << x.is_cuda()
       << x.is_floating_point() << x.defined() << " " << x.size(-1) << " " << x.stride(0) << " " << x.storage_offset()
       << " " << (x.dtype() == torch::kFloat32);
  return text.str();
}
torch::Tensor made(torch::Tensor x, int64_t n) {
  torch::Tensor none, y = torch::empty({n, 2}, x.options().dtype(torch::kFloat64));
  if (none.defined()) return none;
  y.zero_();
  none = y;                      // Two own it now.
  auto z = std::move(y);
  z.fill_(3).select(0, 0).copy_(torch::ones({2}));
  at::Tensor full = torch::full({1, 2}, 7.5, torch::TensorOptions().dtype(torch::kFloat64));
  z.narrow(0, 1, 1).copy_(full);
  if (!none.is_same(z)) throw std::runtime_error("not the same");
  std::optional<at::Tensor> bias;
  auto product = torch::linear(z, torch::ones({2, 2}, z.options()), bias);
  return product.to(x.dtype()).transpose(0, 1).contiguous().view({-1}).to(torch::kFloat32);
}
std::vector<torch::Tensor> twice(const torch::Tensor& x) { return {x, x.clone()}; }
double corner(torch::Tensor x) {
  auto a = x.accessor<float, 2>();
  return a[0][1] + x.data_ptr<float>()[0] + x.select(0, 1).select(0, 0).item<float>();
}
double refused(torch::Tensor x) { TORCH_CHECK(x.dim() == 7, "seven, not ", x.dim()); return 0; }
"""
ON_DEVICE = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename T>
__global__ void twice(const T* x, T* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] * T(2);
}
__global__ void row(torch::PackedTensorAccessor32<float, 2> x) { x[threadIdx.y][threadIdx.x] += 100; }
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous tensor on a GPU");
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  at::cuda::CUDAGuard other(x.device());
  auto y = torch::empty_like(x);
  int n = x.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", [&] {
    twice<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (y.scalar_type() == torch::kFloat32 && y.dim() == 2)
    row<<<1, dim3(y.size(1), y.size(0)), 0, stream>>>(y.packed_accessor32<float, 2>());
  AT_CUDA_CHECK(cudaGetLastError());
  return y;
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Precompiled]:
    """What the judge makes, without the levels for g++."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precompiled, "LEVELS", ())
        capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
        compiler = Precompiler(toolchain.find(capability), tmp_path_factory.mktemp("made"))
        compiler.wait()
    assert compiler.made.has_brief
    yield compiler.made
    compiler.close()


def names(path: Path, *options: str) -> set[str]:
    told = subprocess.run(["nm", *options, str(path)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in told.splitlines() if line.strip()}


def loaded(name: str, library: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, library)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@needs_nvcc
@pytest.mark.slow
def test_tensors_cross_between_brief_headers_and_torchs_own(made: Precompiled, tmp_path: Path) -> None:
    """A host compiler has one half compiled against the brief headers, the other against torch's; no GPU is needed."""
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
    text = (made.brief / "brief.cpp").read_text()
    text = re.sub(r"void guards\(.*?\n}\n", "", text, flags=re.DOTALL)  # In libraries that are not everywhere.
    (tmp_path / "brief.cpp").write_text(re.sub(r".*c10(?:::|/)cuda.*\n", "", text))
    own = tools.include_flags()
    objects = [tmp_path / "main.o", tmp_path / "work.o", tmp_path / "brief.o"]
    for command in (
        tools.cxx_command("crossing", tmp_path / "main.cpp", objects[0], [f"-I{headers.SLIM}", *own]),
        tools.cxx_command(
            "crossing", tmp_path / "work.cpp", objects[1], [f"-I{made.brief}", f"-I{headers.BRIEF}", *own]
        ),
        tools.brief_command(tmp_path / "brief.cpp", objects[2]),
        tools.link_command(objects, tmp_path / "crossing.so", cuda=False, extra=[]),
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


def test_all_overloads_are_taken_as_torch_declares_them() -> None:
    text = (TORCH / "include/ATen/core/TensorBody.h").read_text()
    found = brief.methods(text)
    assert {one.name for one in found} == set(brief.METHODS)
    for one in found:
        assert f"  {one}\n" in text
    kinds = [one.types for one in found if one.name == "to"]
    assert ["at::ScalarType", "bool", "bool", "::std::optional<at::MemoryFormat>"] in kinds
    assert len(kinds) == 5
    full = brief.functions((TORCH / "include/ATen/ops/full.h").read_text(), "full")
    assert str(full[0]) == (
        "at::Tensor full(at::IntArrayRef size, const at::Scalar & fill_value, at::TensorOptions options={});"
    )
    assert all("SymInt" not in str(one) for one in full)


def test_another_torch_is_told_from_a_known_one(tmp_path: Path) -> None:
    (tmp_path / "ATen/core").mkdir(parents=True)
    (tmp_path / "ATen/core/TensorBody.h").write_text("class Tensor {};\n")
    (tmp_path / "ATen/ops").mkdir()
    for name in brief.FUNCTIONS:
        (tmp_path / "ATen/ops" / f"{name}.h").write_text("")
    with pytest.raises(LookupError, match="do not declare bmm, clone"):
        brief.write(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("source", "suits"),
    [
        (ON_DEVICE, True),
        ("__global__ void f() {}", True),
        ("#include <vector>\n#include <ATen/Dispatch.h>", True),
        ("#include <ATen/native/cuda/Loops.cuh>", False),
        ("  # include <torch/csrc/autograd/variable.h>", False),
        ("// #include <torch/csrc/autograd/variable.h>", True),
        ("void f(at::TensorList x);", False),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", False),
    ],
)
def test_what_needs_more_says_so(source: str, suits: bool) -> None:
    assert headers.suits_brief(source) == suits


@needs_nvcc
@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="about machines without a GPU")
def test_what_brief_headers_do_not_know_is_compiled_all_the_same(made: Precompiled, tmp_path: Path) -> None:
    compiler = Compiler(toolchain.find((9, 0)), made)
    unit = Unit(tmp_path / "cuda.cu", is_cuda=True)
    unit.path.write_text("#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) { return x.softmax(0); }\n")
    with pytest.raises(UnsupportedOnDevice, match="compiles"):
        compiler.build("more", [unit], Flags.of({}), tmp_path)
    unit.path.write_text("__global__ void f() { undeclared(); }\n")
    with pytest.raises(ExtensionError, match='"undeclared" is undefined'):
        compiler.build("wrong", [unit], Flags.of({}), tmp_path)


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
    made: Precompiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    shutil.copy(made.names_file, folder)  # And no brief headers.
    tried: list[str] = []
    command = Toolchain.nvcc_command

    def counted(self: Toolchain, module: str, source: Path, target: Path, extra: list[str]) -> list[str]:
        is_slim = any("slim" in flag for flag in extra)
        tried.append("slim" if is_slim else "own")
        return (
            command(self, module, source, target, extra) if is_slim else ["sh", "-c", "echo error: of its own; exit 1"]
        )

    monkeypatch.setattr(Toolchain, "nvcc_command", counted)
    compiler = Compiler(replace(toolchain.find((9, 0)), architecture="90a"), Precompiled(folder))
    unit = Unit(tmp_path / "cuda.cu", is_cuda=True)

    def build(text: str) -> list[str]:
        tried.clear()
        unit.path.write_text(f"#include <torch/types.h>\n{text}\n")
        with pytest.raises(ExtensionError) as caught:
            compiler.build("any", [unit], Flags.of({}), tmp_path)
        return [*tried, str(caught.value)]

    kind, told = build("__global__ void f(float* x) { x[blokIdx.x] = 1; }")
    assert (kind, told.partition("\n")[0]) == ("slim", 'cuda.cu(2): error: identifier "blokIdx" is undefined')
    assert build("torch::Tensor f(torch::Tensor x) { return x }")[0::2] == ["slim"]
    helped = build("torch::Tensor f(torch::Tensor x) { return torch::frobenius_norm(x, {0}); }")
    assert helped == ["slim", "own", "error: of its own"]


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
