from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems.budget import NUDGE, Budget, is_sensitive, make_budget
from kerneldojo.problems.footprint import Footprint
from kerneldojo.problems.precision import tf32_emulation, to_tf32
from kerneldojo.problems.tolerance import classify, compare, compare_if_well


@pytest.fixture(scope="module")
def product():
    """A float32 product with K = 4096, in every arithmetic that matters."""
    torch.manual_seed(0)
    a, b = torch.randn(96, 4096), torch.randn(4096, 64)
    with tf32_emulation():
        truncated = a @ b
    with tf32_emulation("nearest"):
        nearest = a @ b
    return {
        "a": a,
        "b": b,
        "expected": a.double() @ b.double(),
        "native": a @ b,
        "truncated": truncated,
        "nearest": nearest,
        "bf16": a.bfloat16().float() @ b.bfloat16().float(),
        "fp16": a.half().float() @ b.half().float(),
        "split": sum(x @ y for x, y in zip(a.split(256, dim=1), b.split(256, dim=0), strict=True)),
    }


def _budgets(product) -> tuple[Budget, Budget]:
    ieee = make_budget(product["expected"], product["native"], reduction_length=4096)
    tf32 = make_budget(product["expected"], product["native"], product["truncated"], reduction_length=4096)
    return ieee, tf32


@pytest.mark.parametrize("answer", ["native", "truncated", "nearest", "split", "fp16"])
def test_honest_products_pass(product, answer) -> None:
    assert compare(product["expected"], product[answer], _budgets(product)[1]).passed


@pytest.mark.parametrize(
    ("answer", "expected_class"),
    [("native", "ieee"), ("split", "ieee"), ("truncated", "tf32"), ("nearest", "tf32"), ("bf16", "below")],
)
def test_class_of_arithmetic(product, answer, expected_class) -> None:
    ieee, tf32 = _budgets(product)
    assert classify([product["expected"]], [product[answer]], [ieee], [tf32]) == expected_class


def test_trivial_answers_fail(product) -> None:
    budget = _budgets(product)[1]
    expected = product["expected"]
    for answer in (torch.zeros_like(product["native"]), torch.full_like(product["native"], float(expected.mean()))):
        assert not compare(expected, answer, budget).passed
    assert not compare(expected, product["native"].roll(1, dims=0), budget).passed


def test_one_wrong_element_is_found_and_placed(product) -> None:
    got = product["native"].clone()
    got[17, 3] += 1.0
    found = compare(product["expected"], got, _budgets(product)[1])
    assert not found.passed
    assert found.reason == "values"
    assert found.where == (17, 3)
    assert found.box == ((17, 17), (3, 3))
    assert found.fraction_wrong == pytest.approx(1 / got.numel())
    assert found.off_by == pytest.approx(1 / 64, rel=0.3)
    assert "[17, 3]" in found.describe()


def test_description_holds_no_value(product) -> None:
    got = torch.full_like(product["native"], 12345.678)
    text = compare(product["expected"], got, _budgets(product)[1]).describe()
    assert "12345" not in text
    assert f"{float(product['expected'][0, 0]):.3f}" not in text


def _rows(kind: str) -> torch.Tensor:
    torch.manual_seed(1)
    return {"randn": torch.randn(32, 3000), "rand": torch.rand(32, 3000), "offset": torch.randn(32, 3000) + 8}[kind]


@pytest.mark.parametrize("kind", ["randn", "rand", "offset"])
def test_other_orders_of_reduction_pass(kind) -> None:
    x = _rows(kind)
    # Sequential sum, as a simple loop does it.
    total = torch.zeros(32)
    for column in x.unbind(1):
        total = total + column
    assert compare(x.double().sum(1), total, make_budget(x.double().sum(1), x.sum(1), reduction_length=3000)).passed
    # Softmax in one pass over blocks, with a running maximum.
    maximum, norm = torch.full((32,), -math.inf), torch.zeros(32)
    for block in x.split(128, dim=1):
        new = torch.maximum(maximum, block.amax(1))
        norm = norm * (maximum - new).exp() + (block - new[:, None]).exp().sum(1)
        maximum = new
    online = (x - maximum[:, None]).exp() / norm[:, None]
    expected = torch.softmax(x.double(), -1)
    assert compare(expected, online, make_budget(expected, torch.softmax(x, -1), reduction_length=3000)).passed
    # Variance by Welford's recurrence.
    mean, m2 = torch.zeros(32), torch.zeros(32)
    for count, column in enumerate(x.unbind(1), start=1):
        delta = column - mean
        mean = mean + delta / count
        m2 = m2 + delta * (column - mean)
    expected = x.double().var(1)
    assert compare(expected, m2 / 2999, make_budget(expected, x.var(1), reduction_length=3000)).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_allows_its_own_rounding_and_little_more(dtype) -> None:
    torch.manual_seed(2)
    x = torch.randn(64, 512).to(dtype)
    expected = torch.nn.functional.gelu(x.double())
    native = torch.nn.functional.gelu(x)
    budget = make_budget(expected, native)
    assert compare(expected, torch.nn.functional.gelu(x.float()).to(dtype), budget).passed
    coarse = torch.bfloat16 if dtype == torch.float16 else torch.float8_e4m3fn
    assert not compare(expected, native.to(coarse).to(dtype), budget).passed


def test_kinds_must_match_where_they_are_certain() -> None:
    native = torch.randn(4, 64)
    native[0, 0], native[1, 1], native[2, 2] = math.inf, -math.inf, math.nan
    budget = make_budget(native.double(), native)
    assert compare(native.double(), native.clone(), budget).passed
    for place, value in (((0, 0), -math.inf), ((1, 1), 0.0), ((2, 2), 1.0), ((3, 3), math.nan), ((3, 3), math.inf)):
        got = native.clone()
        got[place] = value
        found = compare(native.double(), got, budget)
        assert found.reason == "non_finite"
        assert found.where == place


def test_an_overflow_of_the_native_type_may_be_avoided() -> None:
    expected = torch.full((2, 64), 7e4, dtype=torch.float64)
    expected[1] = 1.0
    native = expected.half()
    assert native.isinf().any()
    budget = make_budget(expected, native)
    assert compare(expected, native, budget).passed
    assert not compare(expected, torch.ones(2, 64).half(), budget).passed
    kept = torch.full((2, 64), 65504.0).half()
    kept[1] = 1.0
    assert not compare(expected, kept, budget).passed  # saturating is neither the truth nor what was written


def test_integers_are_exact() -> None:
    native = torch.arange(100)
    budget = make_budget(native, native)
    assert compare(native, native.clone(), budget).passed
    got = native.clone()
    got[42] += 1
    found = compare(native, got, budget)
    assert (found.reason, found.where) == ("values", (42,))


def test_where_the_reference_is_off_the_truth_either_integer_is_right() -> None:
    truth = torch.arange(100)
    native, coarse = truth.clone(), truth.clone()
    native[7], coarse[8] = 70, 80
    budget = make_budget(truth, native, coarse)
    for answer in (truth, native, coarse):
        assert compare(truth, answer.clone(), budget).passed
    wrong = native.clone()
    wrong[9] = 90
    found = compare(truth, wrong, budget)
    assert (found.reason, found.where) == ("values", (9,))


def test_shape_and_type_are_told() -> None:
    native = torch.randn(4, 8)
    budget = make_budget(native.double(), native)
    assert "expected [4, 8], got [8, 4]" in compare(native.double(), native.t(), budget).describe()
    assert "expected float32, got float16" in compare(native.double(), native.half(), budget).describe()


def test_rows_of_different_size_each_have_their_own_tolerance() -> None:
    torch.manual_seed(3)
    x = torch.randn(8, 256) * torch.logspace(-6, 3, 8)[:, None]
    expected, native = x.double() * 3, x * 3
    got = native.clone()
    got[0] = 0
    budget = make_budget(expected, native)
    # The smallest row is 1e-9 of the largest: beyond float32's reach of the whole, so it may vanish; the next may not.
    got[0] = native[0]
    got[2] = 0
    assert not compare(expected, got, budget).passed


def test_empty_and_scalar_outputs() -> None:
    empty = torch.empty(0, 5)
    assert compare(empty.double(), empty, make_budget(empty.double(), empty)).passed
    scalar = torch.tensor(3.25)
    budget = make_budget(scalar.double(), scalar)
    assert compare(scalar.double(), scalar, budget).passed
    assert not compare(scalar.double(), torch.tensor(3.2501), budget).passed


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    exponent=st.integers(-12, 12),
    seed=st.integers(0, 1000),
)
def test_scaling_by_a_power_of_two_changes_nothing(shape, exponent, seed) -> None:
    torch.manual_seed(seed)
    truth = torch.randn(shape, dtype=torch.float64)
    native, got = truth.float(), truth.float() * (1 + 1e-6 * torch.randn(shape))
    scale = 2.0**exponent
    plain = compare(truth, got, make_budget(truth, native))
    scaled = compare(truth * scale, got * scale, make_budget(truth * scale, native * scale))
    assert plain.passed == scaled.passed
    assert plain.max_error == pytest.approx(scaled.max_error, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), factor=st.floats(1.1, 100.0))
def test_larger_errors_are_never_better(seed, factor) -> None:
    torch.manual_seed(seed)
    truth = torch.randn(8, 96, dtype=torch.float64)
    native, noise = truth.float(), torch.randn(8, 96) * 1e-6
    budget = make_budget(truth, native)
    near, far = compare(truth, native + noise, budget), compare(truth, native + noise * factor, budget)
    assert far.max_error >= near.max_error
    assert near.passed or not far.passed


@settings(max_examples=60, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_tf32_is_idempotent_close_and_never_larger_when_truncated(value) -> None:
    x = torch.tensor([value])
    for rounding, bound in (("nearest", 2.0**-11), ("truncate", 2.0**-10)):
        cut = to_tf32(x, rounding)
        assert torch.equal(to_tf32(cut, rounding), cut)
        if bool(cut.isfinite()) and abs(value) > 1e-37:
            assert abs(float(cut) - value) <= bound * abs(value)
    assert abs(float(to_tf32(x))) <= abs(value)


@pytest.mark.parametrize("rounding", ["nearest", "truncate"])
def test_operands_are_cut_where_they_lie_with_little_memory(rounding) -> None:
    """Weights of gigabytes are: a copy of them, and one of every element's truth, is what there is room for."""
    weight = torch.randn(96, 64).t()
    expected = to_tf32(weight.contiguous(), rounding)
    with Footprint() as footprint:
        cut = to_tf32(weight, rounding)
    assert torch.equal(cut, expected)
    assert cut.stride() == weight.stride()
    if rounding == "truncate":
        assert footprint.peak_bytes <= 1.25 * weight.nbytes


@pytest.mark.parametrize("rounding", ["nearest", "truncate"])
def test_what_is_no_number_stays_so_when_it_is_cut(rounding) -> None:
    bits = torch.tensor([0x7F800000, -0x800000, 0x7F800001, 0x7FFFFFFF, -1, 0x7FC00000], dtype=torch.int32)
    cut = to_tf32(bits.view(torch.float32), rounding)
    assert cut[:2].tolist() == [float("inf"), -float("inf")]
    assert cut[2:].isnan().all()


def test_people_read_no_exponents() -> None:
    expected = torch.ones(8, 64, dtype=torch.float64)
    native = expected.float()
    wrong = native.clone()
    wrong[3, 5] += 0.123
    budget = make_budget(expected, native)
    found = compare(expected, wrong, budget)
    assert found.max_error > 1000
    text = found.describe()
    assert "e+0" not in text
    assert f"{float(f'{found.max_error:.2g}'):,.0f} times the tolerance" in text


def _tree_sum(x: torch.Tensor) -> torch.Tensor:
    """As a kernel sums: halves onto halves."""
    x = torch.nn.functional.pad(x, (0, (1 << (x.shape[1] - 1).bit_length()) - x.shape[1]))
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    return x[:, 0]


def _cosines(rows: int, length: int, function=torch.cos):
    """Rows with an offset of their own, the truth of a function of their sums, and all that a budget is made of."""
    x = torch.randn(rows, length) + torch.randn(rows, 1)
    truth, native = function(x.double().sum(-1)), function(x.sum(-1))
    nudged = function((x.double() * (1 + NUDGE)).sum(-1))
    return x, truth, native, nudged


@pytest.mark.parametrize(("rows", "length"), [(1, 384), (8, 384), (2, 8192)])
def test_where_a_problem_is_ill_conditioned_every_order_of_summation_passes(rows, length) -> None:
    """The library's sum may be exact by luck, and an honest kernel's is not: 1 in 200 was refused on 8 x 384."""
    torch.manual_seed(0)
    num_refused_without = 0
    for _ in range(40):
        x, truth, native, nudged = _cosines(rows, length)
        budget = make_budget(truth, native, nudged=nudged, reduction_length=length)
        forwards = torch.zeros(rows)
        for column in x.T:
            forwards = forwards + column
        for answer in (_tree_sum(x).cos(), forwards.cos()):
            found = compare(truth, answer, budget)
            assert found.passed, found.describe()
            num_refused_without += not compare(
                truth, answer, make_budget(truth, native, reduction_length=length)
            ).passed
    assert num_refused_without, "else this is no problem that needs it"


@pytest.mark.parametrize("rounded", [lambda x: x.bfloat16().float(), to_tf32, lambda x: x.half().float()])
def test_where_a_problem_is_ill_conditioned_coarser_inputs_are_still_refused(rounded) -> None:
    torch.manual_seed(0)
    for _ in range(20):
        x, truth, native, nudged = _cosines(16, 384)
        budget = make_budget(truth, native, nudged=nudged, reduction_length=384)
        assert not compare(truth, _tree_sum(rounded(x)).cos(), budget).passed
        assert not compare(truth, _tree_sum(x * (1 + 2**-15)).cos(), budget).passed


def test_only_ill_conditioned_problems_are_sensitive() -> None:
    torch.manual_seed(0)
    _, truth, native, nudged = _cosines(8, 384)
    assert is_sensitive(truth, native, nudged, reduction_length=384)
    for function in (torch.tanh, lambda s: s, lambda s: s * s):
        _, truth, native, nudged = _cosines(8, 384, function)
        assert not is_sensitive(truth, native, nudged, reduction_length=384)
    x = torch.randn(16, 64, dtype=torch.float64)
    truth, nudged = x.softmax(-1), (x * (1 + NUDGE)).softmax(-1)
    assert not is_sensitive(truth, truth.float(), nudged, reduction_length=64)
    empty = torch.empty(0)
    assert not is_sensitive(empty.double(), empty, empty.double(), reduction_length=1)


def test_a_class_is_that_of_the_worst_output(product) -> None:
    ieee, tf32 = _budgets(product)
    truth, native, cut, coarse = (product[name] for name in ("expected", "native", "truncated", "bf16"))
    for got, wanted in (([native, cut], "tf32"), ([cut, native], "tf32"), ([cut, coarse], "below")):
        assert classify([truth] * 2, got, [ieee] * 2, [tf32] * 2) == wanted


def test_whoever_only_asks_whether_all_is_well_hears_no_more(product) -> None:
    truth, budget = product["expected"], _budgets(product)[1]
    assert compare_if_well(truth, product["bf16"], budget) is None
    assert compare_if_well(truth, product["native"].t(), budget) is None
    assert compare_if_well(truth, product["native"], budget) == compare(truth, product["native"], budget)


def test_what_is_wrong_is_said_in_words(product) -> None:
    truth, native, budget = product["expected"], product["native"], _budgets(product)[1]

    def told(change: Callable[[torch.Tensor], object]) -> str:
        got = native.clone()
        change(got)
        return compare(truth, got, budget).describe()

    assert told(lambda got: None).startswith("within tolerance (largest error ")
    coarse = compare(truth, (truth + 0.6 * budget.row_tolerance[:, None]).float(), budget)
    assert coarse.reason == "precision"
    assert coarse.describe().startswith("every element is close, but errors are ")
    some = told(lambda got: got[3:5, 7].fill_(math.nan))
    assert some.startswith(f"{100 * 2 / 96 / 64:.3g} % of the elements are wrong; the first, at [3, 7], is NaN")
    assert some.endswith("or the reverse; all wrong ones lie within [3..4, 7..7]")
    assert "lie within" not in told(lambda got: got.fill_(1e9)), "they are everywhere"


def test_of_a_complex_output_either_part_may_be_wrong() -> None:
    torch.manual_seed(0)
    truth = torch.randn(5, 40, dtype=torch.complex128)
    native = truth.to(torch.complex64)
    budget = make_budget(truth, native)
    assert compare(truth, native.clone(), budget).passed
    got = native.clone()
    got[2, 30] += 0.5j
    found = compare(truth, got, budget)
    assert (found.reason, found.where, found.box) == ("values", (2, 30), ((2, 2), (30, 30)))
    assert found.fraction_wrong == 1 / 200
    got[4, 39] = complex(0.0, math.nan)
    found = compare(truth, got, budget)
    assert (found.reason, found.where, found.box) == ("non_finite", (4, 39), ((2, 4), (30, 39)))
    assert compare(truth, 2 * native, budget).fraction_wrong == 1
