"""A source that no header could help is told so at once. What is listed of real headers, `test_precompiled` shows."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kerneldojo.devices.cuda import toolchain
from kerneldojo.devices.cuda.names import Names

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
        ('a.cu(3): error: class "uint3" has no member "has"\n', "blockIdx.has", True),
        ('a.cu(3): error: class "A" has no member "has"\n' + UNDEFINED.replace("blokIdx", "softmax"), "softmax", False),
        ("main.cpp:3:5: error: ‘const struct uint3’ has no member named ‘has’\n", "", True),
        ("main.cpp:3:5: error: ‘const class at::Tensor’ has no member named ‘has’\n", "", False),
        ('a.cu(3): error: missing closing quote\n', "", True),
        ('a.cu(3): error: "w" has already been declared in the current scope\n', "int w; int w;", True),
        ('a.cu(3): error: expected a ";"\n', "int i", True),
        ('a.cu(3): error: no operator "+" matches these operands\n', "x + y", False),
        ('a.cu(3): error: no instance of function "f" matches\n' + UNDEFINED, "f(x); blokIdx", False),
        (UNDEFINED + 'a.cu(9): error: no operator "+" matches these operands\n', "x + y", True),
        (UNDEFINED + 'a.cu(9): error: no operator "/" matches\n  operand types: at::Tensor / int\n', "x / 2", False),
        (UNDEFINED + 'a.cu(9): error: no instance of "f" matches\n  types: (int)\n of: at::Tensor\n', "f(2)", False),
        (UNDEFINED + 'a.cu(9): error: no operator "/" matches\n  operand types: A / int\n\nat::Tensor', "", True),
        ('a.cu(3): error: expression must have class type but it has type "const float *"\n', "x.has", True),
        ('a.cu(3): error: expression must have pointer-to-class type but it has type "unsigned int"\n', "x->has", True),
        ('a.cu(3): error: expression must have class type but it has type "at::Tensor *"\n', "x.has", False),
        ('a.cu(3): error: expression must have class type but it has type "const float *"\n', "VLOG(x.has)", False),
        ("main.cpp:3:5: error: request for member ‘has’ in ‘x’, which is of non-class type ‘const float*’\n", "", True),
        ("main.cpp:3:5: error: request for member ‘has’ in ‘x’, which is of non-class type ‘at::Tensor*’\n", "", False),
        ('a.cu(3): error: expression must be a modifiable lvalue\n', "x[0] = 1;", True),
        ('a.cu(3): error: no instance of overloaded function "atomicMax" matches the argument list\n', "", True),
        ('a.cu(3): error: no instance of overloaded function "atomicMax" matches\n (c10::Half *)\n', "", False),
        ('a.cu(3): error: no instance of overloaded function "reduced" matches the argument list\n', "", False),
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


def test_preprocessing_that_fails_is_no_list(tmp_path: Path) -> None:
    broken = replace(toolchain.find((9, 0)), cxx="false")
    with pytest.raises(subprocess.CalledProcessError):
        Names.collect(broken, tmp_path, tmp_path)
