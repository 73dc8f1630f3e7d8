"""Whole verdicts through the real processes, on devices that need no GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kerneldojo import Candidate, Evaluation, Problem, Status, judge

SUITE = Path(__file__).parent.parent / "exploits"
BARE_CUDA = '''
from torch import nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    "bare",
    "#include <vector>\\nextern std::vector<float> launch(float* a, int n);",
    """#include <vector>
    __global__ KIND twice(float* a, int n) { int i = threadIdx.x; if (i < n) a[i] *= 2; }
    std::vector<float> launch(float* a, int n) { twice<<<1, 32>>>(a, n); return {}; }
    """,
    no_implicit_headers=True,
)

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.launch(x)
'''
USUAL_CPP = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    "usual",
    """
    #include <ATen/DeviceGuard.h>
    namespace torch { int nn; }  // In torch's own headers this is the name of something else.
    torch::Tensor f(torch::Tensor x, std::optional<torch::Tensor> y) {
      if (at::device_of(x) != at::device_of(y)) return at::cat({x, torch::full({2}, 1.5, x.options())});
      AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "f", [&] { x.data_ptr<scalar_t>()[0] = 0; });
      return torch::empty_like(x);
    }
    """,
    functions=["f"],
)
x = torch.ones(3)
assert extension.f(x, None).tolist() == [1, 1, 1, 1.5, 1.5]
assert extension.f(x, x).shape == x.shape
assert x.tolist() == [0, 1, 1]

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.f(x, x)
'''
IDENTITY = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(4, 64)]

def get_init_inputs():
    return []
"""


def problem(name: str) -> Problem:
    return Problem(name=name, source=(SUITE / "problems" / f"{name}.py").read_text())


def verdict(name: str, kernel: str, **options: object) -> Evaluation:
    source = (SUITE / "honest" / f"{kernel}.py").read_text()
    return judge(problem(name), Candidate(source=source), **{"device": "model:h100", **options})


def test_equal_candidates_get_equal_modelled_figures() -> None:
    first, second = (verdict("swish", "swish") for _ in range(2))
    assert first.status is Status.PASSED
    assert first.timing.source == "modeled"
    assert first.kernel_ms == second.kernel_ms
    assert first.speedup == second.speedup
    assert first.coverage == 1.0
    assert first.protocol.isolation


def test_the_cpu_has_no_clock_and_says_so() -> None:
    evaluation = verdict("swish", "swish", device="cpu")
    assert evaluation.status is Status.PASSED
    assert evaluation.speedup is evaluation.coverage is evaluation.kernel_ms is evaluation.timing.source is None


def test_tf32_is_a_class_that_can_be_refused() -> None:
    assert verdict("matmul", "matmul_default").precision_class == "tf32"
    assert verdict("matmul", "matmul_ieee", precision="ieee").status is Status.PASSED
    refused = verdict("matmul", "matmul_default", precision="ieee")
    assert refused.status is Status.INCORRECT


@pytest.mark.parametrize(("operands", "expected"), [("tf32", "tf32"), ("ieee", "ieee")])
def test_the_class_is_that_of_products_behind_which_there_are_means(operands: str, expected: str) -> None:
    """A reference that is timed in float32 may be seven times as slow as one in TF32."""
    small = {"N = 4096": "N = 256", "GROUP = 1024": "GROUP = 128", "tl.dot(x, w)": f'tl.dot(x, w, None, "{operands}")'}
    problem_source, source = ((SUITE / folder / "gate_mean.py").read_text() for folder in ("problems", "honest"))
    for large, other in small.items():
        problem_source, source = problem_source.replace(large, other), source.replace(large, other)
    found = judge(Problem(name="gates", source=problem_source), Candidate(source=source), device="cpu")
    assert (found.status, found.precision_class) == (Status.PASSED, expected)
    assert found.max_error is not None and found.max_error < 1


def test_a_compiled_baseline_is_no_slower_than_an_eager_one() -> None:
    eager, compiled = (verdict("swish", "swish", baseline=baseline) for baseline in ("eager", "compile"))
    assert eager.reference_ms is not None
    assert compiled.reference_ms is not None
    assert compiled.reference_ms <= eager.reference_ms


def test_a_problem_that_accepts_a_cheap_answer_is_judged_on_request_only() -> None:
    source = (SUITE / "honest" / "relu_on_clone.py").read_text()
    asked = Problem(name="always_five", source=IDENTITY.replace("torch.relu(x)", "x * 0 + 5"))
    refused = judge(asked, Candidate(source=source), device="cpu")
    assert refused.status is Status.INVALID_PROBLEM
    assert "degenerate" in refused.message
    judged = judge(asked, Candidate(source=source), device="cpu", allow_degenerate=True)
    assert judged.status.is_about_candidate
    assert any("degenerate" in note for note in judged.notes)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("kind", "status"), [("void", Status.UNSUPPORTED_ON_DEVICE), ("vod", Status.COMPILE_ERROR)])
def test_a_cuda_candidate_is_compiled_without_a_gpu(kind: str, status: Status) -> None:
    evaluation = judge(problem("swish"), Candidate(source=BARE_CUDA.replace("KIND", kind)), device="cpu")
    assert evaluation.status is status, evaluation.message
    assert evaluation.language == "cuda"


@pytest.mark.slow
def test_usual_cpp_needs_no_more_than_slim_headers_and_runs_where_it_is_built() -> None:
    evaluation = judge(problem("swish"), Candidate(source=USUAL_CPP), device="cpu")
    assert evaluation.status is Status.UNSUPPORTED_ON_DEVICE, evaluation.message
    assert "it was only built here" in evaluation.message


def test_bad_usage_is_an_exception_in_one_line() -> None:
    with pytest.raises(ValueError, match="unknown device") as error:
        judge(problem("swish"), Candidate(source="x"), device="tpu")
    assert "\n" not in str(error.value)
