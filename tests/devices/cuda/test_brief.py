"""The brief headers declare what torch's own declare. That it means the same is shown by `test_precompiled`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from extensions import ON_DEVICE

from kerneldojo.devices.cuda import brief, headers

TORCH = Path(torch.__file__).parent


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
    found = brief.operators((TORCH / "include/ATen/TensorOperators.h").read_text())
    assert len(found) == 3 * len(brief.SIGNS)
    assert "Tensor operator<=(const Scalar& x, const Tensor& y);" in map(str, found)


def test_another_torch_is_told_from_a_known_one(tmp_path: Path) -> None:
    (tmp_path / "ATen/core").mkdir(parents=True)
    (tmp_path / "ATen/core/TensorBody.h").write_text("class Tensor {};\n")
    signs = "".join(f"  _({sign}, x, y) \\\n" for sign in [*brief.SIGNS, "<=>"])
    (tmp_path / "ATen/TensorOperators.h").write_text(f"#define AT_FORALL_BINARY_OPS(_) \\\n{signs}\n#define A")
    (tmp_path / "ATen/ops").mkdir()
    for name in brief.FUNCTIONS:
        (tmp_path / "ATen/ops" / f"{name}.h").write_text("")
    with pytest.raises(LookupError, match=r"do not declare bmm, clone.*, operator<=>, permute"):
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
