"""A source that no header could help is told so at once; one that torch's own headers help still gets them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from kerneldojo.devices.cuda import brief, toolchain
from kerneldojo.devices.cuda.compiler import Compiler, ExtensionError, Unit
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.devices.cuda.names import Names
from kerneldojo.devices.cuda.precompiled import Precompiled
from kerneldojo.devices.cuda.toolchain import Toolchain

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
SOME = Names(
    frozenset({"softmax", "Tensor", "VLOG", "AT_THIS", "has", "expected"}),
    {"slim.cu": frozenset({"VLOG"}), "slim.cpp": frozenset(), "brief.cu": frozenset({"VLOG", "AT_THIS"})},
)
UNDEFINED = 'cuda_sources(3): error: identifier "blokIdx" is undefined\n\n1 error detected in the compilation.\n'


@pytest.mark.parametrize(
    ("log", "source", "settled"),
    [
        (UNDEFINED, "int i = blokIdx.x;", True),
        (UNDEFINED, "VLOG(1); int i = blokIdx.x;", False),  # A macro is missing: who knows what that was meant to be.
        (UNDEFINED.replace("blokIdx", "softmax"), "softmax(x);", False),
        (UNDEFINED + UNDEFINED.replace("blokIdx", "softmax"), "blokIdx; softmax(x);", False),
        ('a.cu(3): error: namespace "torch" has no member "sofmax"\n', "torch::sofmax(x)", True),
        ('a.cu(3): error: class "at::Tensor" has no member "softmax"\n', "x.softmax()", False),
        ('a.cu(3): error: expected a ";"\n', "int i", True),
        ('a.cu(3): error: no operator "+" matches these operands\n', "x + y", False),
        ('a.cu(3): error: no instance of function "f" matches\n' + UNDEFINED, "f(x); blokIdx", False),
        (UNDEFINED + 'a.cu(9): error: no operator "+" matches these operands\n', "x + y", True),
        ("ptxas error   : Entry function 'f' uses too much shared data (0x10000 bytes)\n", "", True),
        ("ptxas fatal   : Unresolved extern function 'f'\n", "", True),
        ("cc1plus: fatal error: x.h: No such file or directory\n", "", False),
        ("main.cpp:3:5: error: ‘foo’ was not declared in this scope; did you mean ‘softmax’?\n", "", True),
        ("main.cpp:3:5: error: ‘foo’ is not a member of ‘torch’\n", "", True),
        ("main.cpp:3:5: error: ‘class at::Tensor’ has no member named ‘softmax’\n", "", False),
        ("main.cpp:3:5: error: expected ‘;’ before ‘}’ token\n", "", True),
        ("main.cpp:3:5: error: could not convert ‘x’ from ‘int’ to ‘Tensor’\n", "", False),
        ("error: ended by signal 9\n", "", False),
        ("", "", False),
    ],
)  # fmt: skip
def test_what_is_wrong_for_good(log: str, source: str, settled: bool) -> None:
    assert SOME.settle("slim.cu", source, log) == settled


@given(some.text())
def test_any_log_is_read(log: str) -> None:
    assert SOME.settle("slim.cpp", "", log) in (True, False)
    assert not SOME.settle("slim.cpp", "", log.replace("error", "").replace("fatal", ""))


def test_slimmer_headers_lack_more(tmp_path: Path) -> None:
    assert SOME.settle("slim.cu", "AT_THIS", UNDEFINED)
    assert not SOME.settle("brief.cu", "AT_THIS", UNDEFINED)
    SOME.write(tmp_path / "names.json")
    assert Names.read(tmp_path / "names.json") == SOME


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toolchain, Path]:
    """The compilers, and a folder with the names of the torch that is installed."""
    tools, folder = toolchain.find((9, 0)), tmp_path_factory.mktemp("names")
    (folder / "brief").mkdir()
    brief.write(Path(torch.__file__).parent / "include", folder / "brief")
    Names.collect(tools, folder / "brief", folder).write(folder / "names.json")
    return tools, folder


@needs_nvcc
def test_names_and_macros_of_the_torch_that_is_here(collected: tuple[Toolchain, Path]) -> None:
    names = Names.read(collected[1] / "names.json")
    assert {"softmax", "scalar_t", "Conv2d", "cudaStream_t", "AT_DISPATCH_ALL_TYPES"} <= names.known
    assert not {"blokIdx", "relu_kernel_of_mine", "cuda_sources"} & names.known
    assert {"PYBIND11_MODULE", "VLOG"} <= names.macros["slim.cu"]
    assert "VLOG" in names.macros["slim.cpp"]
    assert not {"TORCH_CHECK", "AT_DISPATCH_FLOATING_TYPES", "C10_CUDA_CHECK"} & names.macros["brief.cu"]


@needs_nvcc
@pytest.mark.slow
def test_torchs_own_headers_are_asked_only_where_they_may_help(
    collected: tuple[Toolchain, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, folder = collected
    tried: list[str] = []
    command = Toolchain.nvcc_command

    def counted(self: Toolchain, module: str, source: Path, target: Path, extra: list[str]) -> list[str]:
        is_slim = any("slim" in flag for flag in extra)
        tried.append("slim" if is_slim else "own")
        return (
            command(self, module, source, target, extra) if is_slim else ["sh", "-c", "echo error: of its own; exit 1"]
        )

    monkeypatch.setattr(Toolchain, "nvcc_command", counted)
    compiler = Compiler(replace(tools, architecture="90a"), Precompiled(folder))
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


def test_preprocessing_that_fails_is_no_list(tmp_path: Path) -> None:
    broken = replace(toolchain.find((9, 0)), cxx="false")
    with pytest.raises(subprocess.CalledProcessError):
        Names.collect(broken, tmp_path, tmp_path)
