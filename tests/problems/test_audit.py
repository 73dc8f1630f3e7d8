from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from in_process import InProcess

from kerneldojo.problems.audit import audit
from kerneldojo.problems.reference import Outcome
from kerneldojo.problems.report import AuditReport
from kerneldojo.schema import Problem


def _source(forward: str, inputs: str = "torch.randn(32, 128)", init: str = "pass") -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, *xs):
        x = xs[0]
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def _audit(forward: str, inputs: str = "torch.randn(32, 128)", init: str = "pass", **options) -> AuditReport:
    source = _source(forward, inputs, init)
    return audit(Problem(name="test", source=source), InProcess(source), **options)


def _names(report: AuditReport) -> set[str]:
    return {answer.answer for answer in report.accepted}


IMAGES = "torch.rand(4, 8, 12, 12)"


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "answers"),
    [
        ("torch.relu(x)", "torch.rand(32, 128)", "pass", {"input 0"}),
        ("F.leaky_relu(x)", "torch.rand(32, 128)", "pass", {"input 0"}),
        ("torch.softmax(x, -1).sum(-1)", "torch.randn(32, 128)", "pass", {"a constant", "another seed's answer"}),
        ("x.mean(-1) * 0.01 + 1", "torch.randn(32, 4096)", "pass", {"a constant", "the mean of other seeds"}),
        (
            "self.n(x).mean((2, 3)).var(1) * 1e-4 + 1",
            IMAGES,
            "self.n = nn.GroupNorm(2, 8)",
            {"a constant", "other weights"},
        ),
        ("self.n(x).mean((1, 2, 3))", IMAGES, "self.n = nn.GroupNorm(2, 8, affine=False)", {"zeros"}),
        (
            "F.gelu(x.amax(1, keepdim=True) - x.amax(1, keepdim=True).mean(1, keepdim=True))",
            "torch.randn(32, 128)",
            "pass",
            {"zeros", "a constant"},
        ),
        ("torch.clamp(self.l(x), min=50.0)", "torch.randn(32, 128)", "self.l = nn.Linear(128, 8)", {"a constant"}),
        (
            "self.l(x) * 0.0",
            "torch.randn(32, 128)",
            "self.l = nn.Linear(128, 8)",
            {"zeros", "other weights", "another seed's answer"},
        ),
        ("xs[1] + 1e-4 * x", "torch.randn(32, 128), torch.randn(32, 128)", "pass", {"input 1"}),
        ("x @ xs[1]", "torch.rand(32, 65536), torch.rand(65536, 32)", "pass", {"a constant", "another seed's answer"}),
        (
            "torch.sigmoid(self.l(x))",
            "torch.randn(64, 64)",
            "self.l = nn.Linear(64, 64); "
            "nn.init.normal_(self.l.weight, std=1e-4); nn.init.normal_(self.l.bias, std=1e-4)",
            {"other weights"},
        ),
        ("(x > 1e9)", "torch.randn(32, 128)", "pass", {"zeros", "a constant"}),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_degenerate_problems_are_named(forward, inputs, init, answers) -> None:
    report = _audit(forward, inputs, init)
    assert report.status == "degenerate"
    assert answers <= _names(report), report.reason
    for answer in answers:
        assert answer in report.reason


def test_a_product_of_positive_numbers_is_no_constant_for_being_near_one() -> None:
    report = _audit("x @ xs[1]", "torch.rand(32, 8192), torch.rand(8192, 32)")
    assert report.admitted, report.reason


def test_the_identity_on_positive_inputs_is_refused_on_signed_ones() -> None:
    report = _audit("torch.relu(x)", "torch.rand(32, 128)")
    assert report.deciding == ("own", "signed", "opposed")
    assert {answer.distribution for answer in report.accepted} == {"own"}
    assert _audit("torch.relu(x)", "torch.randn(32, 128)").admitted


LINEAR, NORM = "self.l = nn.Linear(128, 64)", "self.l = nn.Linear(128, 64); self.n = nn.LayerNorm(64)"


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "sided"),
    [
        ("x.amax(-1)", "torch.randn(32, 128)", "pass", {"negative", "opposed"}),
        ("self.l(x).amax(-1)", "torch.rand(32, 128)", LINEAR, {"negative", "opposed"}),
        ("torch.clamp(x, -0.5, 0.5)", "torch.randn(32, 128)", "pass", {"negative", "opposed"}),
        ("torch.relu(x)", "torch.randn(32, 128)", "pass", {"opposed"}),
        ("torch.log(x)", "0.1 + torch.rand(32, 128)", "pass", {"opposed"}),
        ("self.n(self.l(x))", "torch.randn(32, 128)", NORM, set()),
        ("torch.softmax(x, -1)", "torch.arange(16).repeat(32, 1).float()", "pass", set()),
        ("F.leaky_relu(x, xs[1])", "torch.randn(32, 128), 0.25", "pass", {"negative", "opposed", "scalars"}),
        ("x.pow(xs[1])", "torch.randn(32, 128), 2.0", "pass", {"negative", "opposed"}),
        ("x + xs[1].dim()", "torch.rand(32, 128), torch.rand(2)", "pass", {"negative", "opposed"}),
    ],
)
def test_inputs_of_one_sign_and_other_numbers_decide_where_they_tell_something(forward, inputs, init, sided) -> None:
    """Not where nothing is left (a ReLU), nothing is a number (a logarithm) or the sum cancels (a norm)."""
    report = _audit(forward, inputs, init)
    assert set(report.deciding) - {"own", "signed"} == sided, report.deciding


def test_without_a_float64_oracle_signs_are_changed_where_nothing_is_multiplied() -> None:
    small = {"memory_limit": 60_000}
    assert set(_audit("x.amax(-1)", **small).deciding) == {"own", "negative", "opposed"}
    report = _audit("(x + xs[1]).amax(-1)", "torch.randn(32, 64), torch.randn(32, 64)", **small)
    assert (report.oracle, report.deciding) == ("float32", ("own",))


def test_what_is_constant_only_on_inputs_of_one_sign_is_sound() -> None:
    report = _audit("torch.clamp(x, -0.5, 0.5)")
    assert report.admitted
    assert {answer.distribution for answer in report.accepted_elsewhere} <= {"own"}


def test_a_wide_softmax_is_sound_here_though_zeros_pass_elsewhere() -> None:
    report = _audit("torch.softmax(x, -1)", "torch.randn(4, 20000)")
    assert report.admitted
    assert "zeros" in {answer.answer for answer in report.accepted_elsewhere}


def test_one_degenerate_output_of_two_is_only_noted() -> None:
    report = _audit("(torch.tanh(x), torch.softmax(x, -1).sum(-1))")
    assert report.admitted
    assert {answer.output for answer in report.accepted} == {1}


def test_dropout_is_judged_in_eval_and_noise_not_at_all() -> None:
    report = _audit("F.dropout(x, 0.5, self.training) * 2")
    assert (report.status, report.mode) == ("admitted", "eval")
    for noise in ("1.0", "1e-3"):
        report = _audit(f"x + {noise} * torch.randn_like(x)")
        assert report.status == "invalid"
        assert "not repeatable" in report.reason
    assert _audit("torch.tanh(x) + 1e-7 * torch.randn_like(x)").admitted, "rounding hides it"


@pytest.mark.parametrize(
    "init",
    ["self.calls = nn.Buffer(torch.zeros(()))", "self.calls = torch.zeros(())"],
    ids=["in a buffer", "in an attribute"],
)
def test_an_answer_that_depends_on_the_calls_before_is_judged_in_eval_or_not_at_all(init: str) -> None:
    report = _audit("torch.tanh(x + self.calls.add_(1.0))", init=init)
    assert report.status == "invalid"
    assert "two calls of one instance differ" in report.reason
    report = _audit("torch.tanh(x + (self.calls.add_(1.0) if self.training else 0.0))", init=init)
    assert report.status != "invalid"
    assert report.mode == "eval"
    assert "mindful of the calls before in training mode, judged in eval" in report.notes
    report = _audit("torch.tanh(x) + 0.0 * self.calls.add_(1.0)", init=init)
    assert report.status != "invalid"
    assert report.mode == "train", "who counts and does not tell may count"


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("x @ x", "RuntimeError"),
        ("(x, x.to(torch.float8_e4m3fn))", "output 1 is of float8_e4m3fn"),
        ("None", "no tensor"),
        ("x.log()", "NaN"),
        ("x[:0]", "no tensor"),
        ("x.nonexistent", "AttributeError"),
    ],
)
def test_failures_of_the_problem_are_data(forward, message) -> None:
    report = _audit(forward)
    assert report.status == "invalid"
    assert message in report.reason


def test_shape_that_depends_on_values_is_invalid() -> None:
    report = _audit("x[x > 0]")
    assert report.status == "invalid"
    assert "shape" in report.reason


def test_oracle_is_float32_where_float64_cannot_be() -> None:
    assert _audit("torch.tanh(x.half().float())").oracle == "float64"
    report = _audit("x * 2.0 + (x.view(torch.int32) & 1).float()")
    assert report.oracle == "float32"
    assert report.notes
    report = _audit("torch.tanh(x)", memory_limit=60_000)
    assert report.oracle == "float32"
    report = _audit("torch.tanh(x)", memory_limit=10_000)
    assert report.status == "invalid"


def test_a_float64_run_may_have_less_than_all_others() -> None:
    limits = {"memory_limit": 200_000}
    assert _audit("torch.tanh(x)", **limits).oracle == "float64"
    report = _audit("torch.tanh(x)", **limits, oracle_limit=60_000)
    assert (report.status, report.oracle, report.is_cramped) == ("admitted", "float32", True)
    refused = _audit("torch.tanh(x)", **limits, oracle_limit=60_000, may_be_cramped=False)
    assert (refused.status, refused.lacks) == ("invalid", "memory")


@pytest.mark.parametrize(
    ("used", "may_be_cramped", "oracle"),
    [(77_232, True, "float64"), (77_233, True, "float32"), (77_233, False, "float64")],
)
def test_a_float64_run_that_took_more_than_a_verdict_has_is_no_oracle(
    used: int, may_be_cramped: bool, oracle: str
) -> None:
    """What libraries take for themselves nobody foresees. Who goes on where there is more is judged there."""

    class Counted(InProcess):
        def run(self, **asked) -> Outcome:
            return replace(super().run(**asked), used_bytes=used)

    problem = Problem(name="test", source=_source("torch.tanh(x)"))
    report = audit(problem, Counted(problem.source), memory_limit=110_000, may_be_cramped=may_be_cramped)
    assert (report.status, report.oracle) == ("admitted", oracle)
    assert report.is_cramped == bool(report.notes) == (oracle == "float32")


def test_a_last_room_has_room_for_the_answers_of_three_precisions() -> None:
    """Of what returns four times as much as it takes: 80 kB as it is, 240 kB with a float64 run, all answers 295 kB."""
    wider = "torch.tanh(x).repeat(1, 3)"  # 16 kB, and beside it three times as much.
    assert _audit(wider, memory_limit=300_000).oracle == "float32"
    assert _audit(wider, memory_limit=300_000, may_be_cramped=False).oracle == "float64"
    assert _audit(wider, memory_limit=310_000).oracle == "float64"


def test_results_may_be_limited_apart_from_inputs() -> None:
    limits = {"memory_limit": 200_000, "result_limit": 10_000}
    assert _audit("torch.tanh(x).sum(dim=-1)", **limits).lacks == "memory", "its temporary is as large as its input"
    assert _audit("x.sum(dim=-1)", **limits).status == "admitted"
    refused = _audit("torch.tanh(x)", **limits)
    assert (refused.status, refused.lacks) == ("invalid", "memory")
    assert "beside its inputs" in refused.reason


def test_distributions_stay_where_the_reference_stays_finite() -> None:
    assert _audit("torch.log(x + 1e-3)", "torch.rand(32, 128) + 0.1").deciding == ("own", "opposed")
    assert "signed" in _audit("torch.tanh(x)", "torch.rand(32, 128)").deciding
    report = _audit("torch.exp(x)")
    assert report.deciding == ("own", "negative", "opposed")
    assert "offset" not in report.probing or "heavy" not in report.probing


@pytest.mark.parametrize(
    ("forward", "scales"),
    [
        ("x @ xs[1]", True),
        ("torch.relu(x @ xs[1] + xs[2])", True),
        ("torch.minimum(torch.maximum(x @ xs[1], xs[2]), xs[3])", False),
    ],
)
def test_inputs_scale_where_all_of_the_answer_does(forward, scales) -> None:
    """Beside a product that has become huge, bounds leave some elements to chance, and rounding decides these."""
    inputs = "torch.randn(2048, 64), torch.randn(64, 1024) / 8, torch.randn(1024), torch.randn(1024)"
    report = _audit(forward, inputs)
    assert report.admitted
    assert ("scaled" in report.probing) == scales


def test_facts_for_the_judge() -> None:
    report = _audit("self.n(x @ xs[1])", "torch.randn(32, 64), torch.randn(64, 48)", "self.n = nn.BatchNorm1d(48)")
    assert report.admitted
    assert report.reduction_length == 64
    assert {"n.running_mean", "n.running_var"} <= set(report.updates_buffers)
    assert report.input_bytes == 4 * (32 * 64 + 64 * 48)
    assert report.compulsory_bytes == report.input_bytes + 4 * 32 * 48
    assert report.memory_bytes >= report.input_bytes + report.output_bytes
    assert _audit("x.argmax(-1)").integer_outputs
    assert _audit("xs[0].mul_(2)").mutates_inputs


def test_ill_conditioned_problems_are_found() -> None:
    assert _audit("torch.cos(x.sum(dim=-1))", "torch.randn(8, 384) + torch.randn(8, 1)").is_sensitive
    assert not _audit("torch.tanh(x.sum(dim=-1))", "torch.randn(8, 384) + torch.randn(8, 1)").is_sensitive


def test_a_problem_that_refuses_nudged_inputs_is_judged_all_the_same() -> None:
    forward = "F.binary_cross_entropy(xs[0], torch.ones_like(xs[0]), reduction='none') + xs[0]"
    report = _audit(forward, "(torch.rand(32, 128) + 0.5).clamp(max=1.0)")
    assert report.admitted
    assert not report.is_sensitive
    assert report.notes == ("the reference does not take inputs that are one rounding larger",)


def test_too_few_seeds_is_a_usage_error() -> None:
    with pytest.raises(ValueError, match="3 seeds"):
        _audit("torch.tanh(x)", seeds=2)


def test_audit_is_deterministic() -> None:
    first, second = (_audit("torch.tanh(x)").model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert first == second
    assert torch.initial_seed() is not None
