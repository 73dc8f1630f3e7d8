"""Extensions are built for real, with or without a GPU; their errors are the compilers' own."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kerneldojo.devices.cuda import headers, toolchain
from kerneldojo.devices.cuda.build import Builder, ExtensionError, UnsupportedOnDevice
from kerneldojo.devices.cuda.compiler import _error
from kerneldojo.devices.cuda.toolchain import without_architectures

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
without_gpu = pytest.mark.skipif(torch.version.cuda is not None, reason="about machines without a GPU")

CPP = "#include <vector>\nextern std::vector<float> launch(float* a, int n);\n"
KERNEL = """#include <vector>
__global__ void twice(float* a, int n) { int i = threadIdx.x; if (i < n) a[i] *= 2; }
std::vector<float> launch(float* a, int n) { twice<<<1, 32>>>(a, n); return {}; }
"""


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(toolchain.find((9, 0)), tmp_path)


def build_bare(builder: Builder, cuda: str, **options: object) -> object:
    """Without torch's headers, which is quick."""
    return builder.load_inline("bare", CPP, cuda, no_implicit_headers=True, **options)


@needs_nvcc
@without_gpu
def test_a_good_cuda_source_compiles_and_then_needs_a_device(builder: Builder) -> None:
    with pytest.raises(UnsupportedOnDevice, match="compiles; running it needs a CUDA device"):
        build_bare(builder, KERNEL)
    assert not builder.libraries


@needs_nvcc
def test_an_error_names_the_line_of_the_candidate(builder: Builder) -> None:
    with pytest.raises(ExtensionError) as caught:
        build_bare(builder, KERNEL.replace("a[i] *= 2", "a[j] *= 2"))
    assert "cuda_sources(2)" in str(caught.value)
    assert '"j" is undefined' in str(caught.value)
    assert str(Path(__file__).parents[3]) not in str(caught.value)


@needs_nvcc
def test_architectures_of_the_candidates_choice_are_dropped(builder: Builder) -> None:
    with pytest.raises(Exception) as caught:
        build_bare(builder, KERNEL, extra_cuda_cflags=["-gencode", "arch=compute_10,code=sm_10", "-O3"])
    assert not isinstance(caught.value, ExtensionError)  # sm_10 would not have compiled


def test_flags_that_are_the_judges_to_choose() -> None:
    flags = ["-O3", "-gencode=arch=compute_80,code=sm_80", "-arch", "sm_70", "--use_fast_math", "-cudart=static"]
    assert without_architectures([*flags, "-lcudart_static", "-lineinfo"]) == ["-O3", "--use_fast_math", "-lineinfo"]


@pytest.mark.slow
def test_what_slim_headers_lack_is_compiled_against_torchs_own_then_loaded_and_run(
    builder: Builder, tried: list[str]
) -> None:
    """With the whole of torch's own headers, as candidates have them; the first error ends an attempt."""
    module = builder.load_inline(
        "whole",
        [
            "torch::Tensor f(torch::Tensor x) { return torch::nn::functional::relu(x); }",
            "double half(double x) { return x / 2; }",
        ],
        functions={"f": "Clips.", "half": 'Says "half".'},
        extra_cflags=["-O0", "-Wfatal-errors"],
    )
    assert tried == ["slim.cpp", "own.cpp"]
    assert module is not None
    assert module.f(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
    assert module.half(3.0) == 1.5
    assert module.half.__doc__.strip().endswith('Says "half".')
    assert [library.name for library in builder.libraries] == ["whole.so"]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("torch::Tensor f(torch::Tensor x) { return x; }", []),
        ('PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }', ["-DDOJO_BINDS"]),
        ("void f(py::object x) {}", ["-DDOJO_BINDS"]),
        ("#include <pybind11/stl.h>", ["-DDOJO_BINDS"]),
        ("PyObject* f() { return torch::stack({}); }", ["-DDOJO_BINDS", "-DDOJO_LISTS"]),
        ("void f(at::TensorList x);", ["-DDOJO_LISTS"]),
        ("float happy::f(float category) { return category; }", []),
        ("void f(at::Tensor x) { x.index_put_({0}, 1); }", ["-DDOJO_INDEXES"]),
        ("void f(at::Tensor x, int index) { g(index); }", []),
    ],
)
def test_slim_headers_grow_by_what_a_source_says(tmp_path: Path, source: str, wanted: list[str]) -> None:
    (tmp_path / "x.cu").write_text(source)
    tools = replace(toolchain.find((9, 0)), nvcc="nvcc")
    flags = tools.nvcc_command("x", tmp_path / "x.cu", tmp_path / "x.o", [])
    assert [flag for flag in flags if flag.startswith("-DDOJO")] == wanted


def test_slim_headers_have_operators_and_indexing(tmp_path: Path) -> None:
    (tmp_path / "x.cpp").write_text(
        "#include <torch/types.h>\ntorch::Tensor f(torch::Tensor x) { return -(x / 2 + 1) * x.index({0}) - (2 - x); }\n"
        "void g(torch::Tensor x) { using namespace torch::indexing; x.index_put_({Slice(0, 2), None, 1}, 3); }\n"
    )
    tools = toolchain.find((9, 0))
    flags = [f"-I{headers.SLIM}", *tools.include_flags(), "-fsyntax-only", "-Wfatal-errors"]
    command = tools.cxx_command("x", tmp_path / "x.cpp", tmp_path / "x.o", flags)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_toolkit_header_is_no_mistake_of_the_candidates(tmp_path: Path) -> None:
    log = f"{tmp_path}/cuda.cu:3:10: fatal error: cublas_v2.h: No such file or directory\n"
    kind = ExtensionError if torch.version.cuda else UnsupportedOnDevice
    assert isinstance(_error(log, tmp_path), kind)
    mine = f"{tmp_path}/cuda.cu:3:10: fatal error: my_header.h: No such file or directory\n"
    error = _error(mine, tmp_path)
    assert isinstance(error, ExtensionError)
    assert "my_header.h" in str(error)


@pytest.mark.parametrize("name", ["a b", "x;rm", "../up", "", "1st"])
def test_names_that_are_no_identifiers_are_refused(builder: Builder, name: str) -> None:
    with pytest.raises(ExtensionError, match="identifier"):
        builder.load_inline(name, "", KERNEL)


def test_torchs_own_functions_are_replaced_for_the_candidate(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    monkeypatch.setattr(cpp_extension, "load_inline", cpp_extension.load_inline)
    monkeypatch.setattr(cpp_extension, "load", cpp_extension.load)
    builder.install()
    with pytest.raises(ExtensionError):
        cpp_extension.load_inline("not a name", "", functions=[])
