"""What is held against the reference beside values: keys, buffers, and what nothing could be held against."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.contestant import tree
from kerneldojo.judging.audits import RunnerReference
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.outputs import check_buffers, check_inputs, check_outputs, is_right
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.ruling import Ruling
from kerneldojo.languages import language_of
from kerneldojo.problems.precision import tf32_emulation
from kerneldojo.problems.reference import ReferenceFailed
from kerneldojo.schema import Candidate, Status

NOTHING = Delivery(names=[], needed=False)


def _answer(values: Any) -> Answer:
    found = tree.tensors(values)
    return Answer(found, [{} for _ in found], None, [], [], 0.0, tree.keys(values))


def _expected(values: Any, **fields: Any) -> Expected:
    return Expected(values, {"native": tree.tensors(values)}, {}, mutates_inputs=False, work=[], **fields)


def test_outputs_stand_under_the_keys_of_the_reference() -> None:
    a, b = torch.rand(64), torch.rand(64)
    expected = _expected({"a": a, "b": (b, a)})
    check_outputs(_answer({"a": a.clone(), "b": [b.clone(), a.clone()]}), expected, 1, NOTHING)
    for wrong in ({"b": a, "a": (b, a)}, {"b": (b, a), "a": a}, (a, b, a)):
        with pytest.raises(Ruling, match="keys, in their order: a, b, b"):
            check_outputs(_answer(wrong), expected, 1, NOTHING)
    check_outputs(_answer((a,)), _expected(a), 1, NOTHING)
    with pytest.raises(Ruling, match="a dictionary where the reference returns none"):
        check_outputs(_answer({"a": a}), _expected(a), 1, NOTHING)


def refusal(got: Any, expected: Any, *, kind: dict[str, Any] | None = None, untold: str | None = None) -> Ruling:
    answer = _answer(got)
    answer = replace(answer, untold=untold, kinds=[kind or {}, *answer.kinds[1:]])
    with pytest.raises(Ruling) as caught:
        check_outputs(answer, _expected(expected), 1, NOTHING)
    return caught.value


def test_what_is_no_such_tensor_is_refused_whatever_is_in_it() -> None:
    a, b = torch.rand(8, 8), torch.rand(8, 8)
    told = {
        "forward did not return tensors: a str": refusal(a, a, untold="a str"),
        "an output is not on the problem's device": refusal(a, a, kind={"on_device": False}),
        "expected 2 output tensors, got 1": refusal(a, (a, b)),
        "expected 1 output tensors, got 2": refusal((a, b), a),
        "expected dtype float32, got float16": refusal(a.half(), a),
        "output 1: expected dtype float32, got float64": refusal((a, b.double()), (a, b)),
        "output 1: expected shape [8, 8], got [64]": refusal((a, b.flatten()), (a, b)),
        "elements of the output share memory, as those of an expanded one": refusal(a, a, kind={"overlaps": True}),
    }
    assert {ruling.message: ruling.status for ruling in told.values()} == dict.fromkeys(told, Status.INCORRECT)
    lazy = refusal(a, a, kind={"fake": True})
    assert lazy.status is Status.EXPLOIT and [one.name for one in lazy.exploits] == ["lazy_tensor"]
    plain = {"on_device": True, "overlaps": False, "stride": [8, 1], "fake": False}
    check_outputs(replace(_answer(a), kinds=[plain]), _expected(a), 1, NOTHING)
    expanded = replace(_answer(a), kinds=[{"overlaps": True}])
    check_outputs(expanded, replace(_expected(a), overlaps=frozenset({0})), 1, NOTHING)


def test_which_output_is_wrong_is_said_where_there_are_several_and_what_was_unusual() -> None:
    a, b = torch.rand(64) + 1, torch.rand(64) + 1
    needed = Delivery(names=[], needed=True)

    def told(got: Any, expected: Any, delivery: Delivery = NOTHING, distribution: str = "own") -> str:
        with pytest.raises(Ruling) as caught:
            check_outputs(_answer(got), _expected(expected), 1, delivery, distribution=distribution)
        assert caught.value.max_error is not None and caught.value.max_error > 1
        return caught.value.message

    assert told((a, 2 * b), (a, b)).startswith("output 1: 100 % of the elements are wrong")
    assert told(2 * a, a).startswith("100 % of the elements are wrong")
    assert told(2 * a, a, distribution="negative").endswith("(inputs and weights are all negative)")
    assert "parameter_mismatch" in told(2 * a, a, needed)
    assert "parameter_mismatch" not in told(2 * a, a, Delivery(names=["w"], needed=True))


@pytest.mark.parametrize(
    ("distribution", "num_wrong", "error", "passes"),
    [
        ("own", 1, 1e-2, False),
        ("negative", 1, 1e-2, True),
        ("negative", 2, 1e-2, True),  # Of ten thousand numbers each.
        ("negative", 3, 1e-2, False),
        ("scaled", 20_000, 1e-4, True),  # Twelve times the tolerance, if that is unusual.
        ("scaled", 20_000, 1e-1, False),
        ("scaled", 2, 1e-1, True),
        ("negative", 20_000, 1e-4, False),
    ],
)
def test_what_is_forgiven_where_inputs_are_unusual(
    distribution: str, num_wrong: int, error: float, passes: bool
) -> None:
    torch.manual_seed(0)
    truth = torch.rand(20_000, dtype=torch.float64) + 1
    native = truth.float()
    got = native.clone()
    got[:num_wrong] *= 1 + error
    expected = Expected(native, {"native": [native], "float64": [truth]}, {}, mutates_inputs=False, work=[])
    try:
        check_outputs(_answer(got), expected, 1, NOTHING, distribution=distribution)
        assert passes
    except Ruling as ruling:
        assert not passes, ruling.message


def test_a_buffer_is_one_of_many() -> None:
    a, b = torch.rand(16) + 0.5, torch.rand(16) + 0.5
    expected = replace(
        _expected(a), buffers={"a": a, "b": b}, other_buffers={"float64": {"a": a.double(), "b": b.double()}}
    )
    check_buffers({"a": a.clone(), "b": b.clone()}, expected, 1, NOTHING)
    with pytest.raises(Ruling, match="buffer 'b' is not updated"):
        check_buffers({"a": a, "b": a}, expected, 1, NOTHING)
    for other in (b[:8], b.to(torch.complex64)):
        with pytest.raises(Ruling, match="buffer 'b' has another size or kind"):
            check_buffers({"a": a, "b": other}, expected, 1, NOTHING)


def test_an_integer_that_tf32_decides_otherwise_is_accepted_there() -> None:
    truth, coarse = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)
    coarse[3] = 5
    expected = Expected(truth, {"native": [truth], "tf32": [coarse]}, {}, mutates_inputs=False, work=[])
    assert check_outputs(_answer(coarse), expected, 1, NOTHING).precision_class is None
    with pytest.raises(Ruling):
        check_outputs(_answer(coarse + 1), expected, 1, NOTHING)


@pytest.mark.parametrize("arithmetic", ["native", "tf32"])
def test_arithmetic_that_tolerances_do_not_tell_is_told_by_errors(arithmetic: str) -> None:
    """A mean of gates of long products: in TF32 it is within what float32 may err, here and there or everywhere."""
    torch.manual_seed(0)
    seen = Rounds()
    for _ in range(5):
        x, w = torch.randn(64, 2048), torch.randn(256, 2048) / 78
        native, truth = (torch.sigmoid(a @ b.t()).mean(dim=1) for a, b in ((x, w), (x.double(), w.double())))
        with tf32_emulation():
            coarse = torch.sigmoid(x @ w.t()).mean(dim=1)
        runs = {"native": [native], "float64": [truth], "tf32": [coarse]}
        expected = Expected(native, runs, {}, mutates_inputs=False, work=[])
        got = {"native": native.double().add(3e-8).float(), "tf32": coarse}[arithmetic]
        checked = check_outputs(_answer(got), expected, 1 << 20, NOTHING)
        assert checked.precision_class == "ieee", "as far as tolerances go"
        seen.note_errors(checked, "own")
    assert len(seen.errors[0]) == len(seen.own_errors[0]) == 5
    assert seen.precision_class == {"native": "ieee", "tf32": "tf32"}[arithmetic]


@pytest.mark.parametrize("where", ["in one of two outputs", "on the problem's own inputs"])
def test_what_errs_much_hides_nobodys_arithmetic(where: str) -> None:
    """Another output, or inputs of another kind, where sums cancel for everybody."""
    torch.manual_seed(0)
    truth, seen = torch.randn(4096, dtype=torch.float64), Rounds()
    for distribution in ("own", "signed"):
        levels = [(1e-3, 0.3, 1e-3)] if distribution == "signed" else [(1e-7, 3e-4, 3e-4)]
        if where == "in one of two outputs":
            levels = [(1e-7, 3e-4, 3e-4), (1e-3, 0.3, 1e-3)]
        noise = {level: torch.randn_like(truth) for level in (1e-7, 1e-3, 3e-4, 0.3)}  # Equal levels: equal errors.
        native, coarse, mine = (
            [(truth * (1 + level * noise[level])).float() for level in column] for column in zip(*levels, strict=True)
        )
        runs = {"native": native, "float64": [truth] * len(levels), "tf32": coarse}
        expected = Expected(native, runs, {}, mutates_inputs=False, work=[])
        answer = Answer(outputs=mine, kinds=[{}] * len(mine), untold=None, work=[], specializations=[], elapsed=0.0)
        seen.note_errors(check_outputs(answer, expected, 1 << 26, NOTHING), distribution)
    assert seen.told_class == "ieee", "as far as tolerances go"
    assert seen.precision_class == "tf32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64])
def test_is_right_says_what_the_checks_say(dtype: torch.dtype) -> None:
    """Whoever is silent is asked no more than that; answers from exact to hopeless, some as coarse as TF32."""
    torch.manual_seed(0)
    found = list[bool]()
    for number in range(40):
        truth = 9 * torch.randn(3, 80, dtype=torch.float64)
        coarse = (truth * (1 + 1e-3 * torch.randn_like(truth))).to(dtype)
        outputs = {"native": [truth.to(dtype)], "float64": [truth]}
        if number % 2:
            outputs["tf32"] = [coarse if number % 4 == 1 else truth.to(dtype)]
        error = (0.0, 1e-7, 1e-3, 2e-2)[number % 8 // 2]
        got = (truth * (1 + error * torch.randn_like(truth))).to(dtype)
        got[:, 7] = (got, got, got, coarse, torch.full_like(got, 100))[number % 5][:, 7]
        values = outputs["native"][0] if number % 9 else {"a": outputs["native"][0]}
        expected = Expected(values, outputs, {}, mutates_inputs=False, work=[])
        answer = _answer(got if number % 11 else got[:2])
        try:
            check_outputs(answer, expected, 1, NOTHING)
            passes = True
        except Ruling:
            passes = False
        assert is_right(answer, expected, 1) == passes, number
        found.append(passes)
    assert 4 < sum(found) < 36, "some passed, and some were refused"


def test_one_wrong_output_of_several_is_not_right() -> None:
    a, b = torch.rand(64) + 1, torch.rand(64) + 1
    assert is_right(_answer((a.clone(), b.clone())), _expected((a, b)), 1)
    for wrong in ((a, 2 * b), (2 * a, b), (a,), {"a": a, "b": b}):
        assert not is_right(_answer(wrong), _expected((a, b)), 1)


@pytest.mark.parametrize(("dtype", "passes"), [(torch.float32, True), (torch.float16, False), (torch.float64, False)])
def test_other_floats_than_float32_may_not_be_as_coarse_as_tf32(dtype: torch.dtype, passes: bool) -> None:
    """A product of theirs is computed in it nowhere; that a reference has such a run says nothing."""
    torch.manual_seed(0)
    truth = torch.randn(8, 80, dtype=torch.float64)
    coarse = (truth * (1 + 3e-3 * torch.randn_like(truth))).to(dtype)
    runs = {"native": [truth.to(dtype)], "float64": [truth], "tf32": [coarse]}
    expected = Expected(truth.to(dtype), runs, {}, mutates_inputs=False, work=[])
    assert is_right(_answer(coarse), expected, 1) == passes
    assert is_right(_answer(truth.to(dtype)), expected, 1)


def test_buffers_are_met_as_exactly_as_outputs() -> None:
    """The variance that is kept is the unbiased one; of 2,048 rows it is larger by one part in 2,047."""
    kept, variance = torch.rand(16) + 0.5, torch.rand(16) + 0.5
    truth = 0.9 * kept.double() + 0.1 * variance.double() * 2048 / 2047
    expected = replace(_expected(kept), buffers={"var": truth.float()}, other_buffers={"float64": {"var": truth}})
    pairs = Delivery(names=["v"], needed=False, pairs={"var": "v"})
    check_buffers({"v": (0.9 * kept + 0.1 * (variance * 2048 / 2047)).reshape(16, 1)}, expected, 2048, pairs)
    with pytest.raises(Ruling, match="not updated as the reference"):
        check_buffers({"v": 0.9 * kept + 0.1 * variance}, expected, 2048, pairs)
    with pytest.raises(Ruling, match="does not have"):
        check_buffers({}, expected, 2048, pairs)


def test_a_reference_that_returns_numbers_beside_tensors_is_refused() -> None:
    """Nothing would compare them."""
    y = torch.rand(64)
    runner: Any = SimpleNamespace(begin=lambda *_, **__: ([], {}), answer=lambda *_, **__: ([], _expected((y, None))))
    assert RunnerReference(runner).run(input_seed=1, init_seed=1).outputs["native"][0] is y
    runner.answer = lambda *_, **__: ([], _expected({"y": y, "sum": [float(y.sum())]}))
    with pytest.raises(ReferenceFailed, match="a number beside its tensors"):
        RunnerReference(runner).run(input_seed=1, init_seed=1)


def test_a_comment_that_speaks_of_cuda_makes_no_cuda() -> None:
    triton = "import triton  # as a __global__ function\n"
    assert language_of(Candidate(source=triton)).name == "triton"
    assert language_of(Candidate(source=triton + "SOURCE = '__global__ void f();'\n")).name == "cuda"
    assert language_of(Candidate(source="load_inline(  # never closed")).name == "cuda"


def test_inputs_that_the_reference_writes_into_are_left_as_it_leaves_them() -> None:
    cache, other = torch.rand(64), torch.rand(64)
    expected = _expected(other)
    with pytest.raises(Ruling, match=r"changed its inputs$"):
        check_inputs([cache, other], expected, 1)
    after = {"native": [cache, other], "float64": [cache.double(), other.double()]}
    expected = replace(expected, mutates_inputs=True, inputs_after=after)
    check_inputs([cache.clone(), other.clone()], expected, 1)
    with pytest.raises(Ruling, match="otherwise than the reference"):
        check_inputs([cache, cache], expected, 1)
