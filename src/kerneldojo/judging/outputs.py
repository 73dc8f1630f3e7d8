"""Comparing what came back with what should have come back, and saying so without leaking a value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.problems.arithmetic import error_moments
from kerneldojo.problems.budget import make_budget
from kerneldojo.problems.distributions import PROBING, SIDED
from kerneldojo.problems.tolerance import Comparison, PrecisionClass, compare, compare_if_well
from kerneldojo.problems.vectors import Vector, are_all_well
from kerneldojo.schema import Status

GROSS = 1000.0
"""Under a probing distribution only an error of so many tolerances refuses."""
ISOLATED = 1e-4
"""Share of the elements that refuses nobody where inputs are unusual, whatever the error: a bound beside a product that
has become huge leaves one element in a million in sight, and rounding decides that one."""
UNUSUAL = {
    "negative": "inputs and weights are all negative",
    "opposed": "each input has one sign, by turns, and weights are negative",
    "scalars": "a number among the inputs has another value",
    "holed": "an input that get_inputs fills with one value has others, and zeros",
    "filled": "an input that get_inputs fills with one value has others",
    **dict.fromkeys(PROBING, "inputs of unusual magnitude"),
}
"""What is told of the inputs of a wrong answer."""


@dataclass(frozen=True)
class Checked:
    """A result that is right."""

    error: float
    """Largest error in units of the tolerance."""
    classes: dict[int, PrecisionClass] = field(default_factory=dict[int, PrecisionClass])
    """Class of the arithmetic by the tolerances, of float32 outputs in which TF32 makes a difference, by number."""
    errors: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    """Of such outputs, as `arithmetic.error_moments` has them; not of those at which nobody looked."""

    @property
    def precision_class(self) -> PrecisionClass | None:
        """Of all of them: the coarser."""
        return "tf32" if "tf32" in self.classes.values() else "ieee" if self.classes else None


def check_outputs(
    answer: Answer,
    expected: Expected,
    reduction_length: int,
    delivery: Delivery,
    *,
    distribution: str = "own",
) -> Checked:
    """Return how close an answer is; raises `Ruling` if it is not right.

    Args:
        answer: what the contestant returned.
        expected: what the reference answers; its variants say which precision is accepted.
        reduction_length: the longest sum in the problem.
        delivery: how weights were matched, for the hint that goes with a wrong answer.
        distribution: of the inputs; what is unusual about them is said of a wrong answer, and some of it forgiven.
    """
    _check_structure(answer, expected)
    worst, classes, errors = 0.0, dict[int, PrecisionClass](), dict[int, torch.Tensor]()
    for index, got in enumerate(answer.outputs):
        runs = expected.runs(index)
        comparison, precision_class = _compare(runs, got, reduction_length)
        if not comparison.passed:
            if _is_tolerable(comparison, distribution):
                continue
            raise _wrong(comparison, index, len(answer.outputs), delivery, distribution)
        worst = max(worst, comparison.max_error)
        if precision_class is not None:
            classes[index] = precision_class
            found = error_moments(runs.get("float64"), runs["native"], runs["tf32"], got)
            errors |= {index: found} if found is not None else {}
    return Checked(worst, classes, errors)


def _is_tolerable(comparison: Comparison, distribution: str) -> bool:
    if comparison.reason == "values" and distribution in (*SIDED, *PROBING) and comparison.fraction_wrong <= ISOLATED:
        return True
    return distribution in PROBING and comparison.reason in ("values", "precision") and comparison.max_error <= GROSS


def _compare(
    runs: Mapping[str, torch.Tensor], got: torch.Tensor, reduction_length: int
) -> tuple[Comparison, PrecisionClass | None]:
    """Compare one tensor with the native budget, then, where it is accepted, with that of TF32.

    Args:
        runs: what the reference has for it, by variant.
        got: what came back.
        reduction_length: the longest sum in the problem.
    """
    native, accepted, nudged = runs["native"], _coarse(runs), runs.get("nudged")
    truth = runs.get("float64", native)
    strict = make_budget(truth, native, nudged=nudged, reduction_length=reduction_length)
    has_classes = native.dtype == torch.float32
    if accepted is None or accepted is native or torch.equal(accepted, native):
        # Where no product feeds this output, there are no classes to tell apart.
        return compare(truth, got, strict), None
    if (well := compare_if_well(truth, got, strict)) is not None:
        return well, "ieee" if has_classes else None
    budget = make_budget(truth, native, accepted, nudged=nudged, reduction_length=reduction_length)
    loose = compare(truth, got, budget)
    return loose, None if not has_classes else "tf32" if loose.passed else "below"


def _coarse(runs: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """What the reference has in TF32, where that is accepted: float64 and half precision have no classes."""
    native = runs["native"]
    is_other_float = native.is_floating_point() and native.dtype != torch.float32
    return None if is_other_float else runs.get("tf32")


def check_kinds(answer: Answer, wanted: Sequence[torch.Tensor | Layout], overlapping: Collection[int] = ()) -> None:
    """See that an answer has the tensors that it should have, whatever is in them.

    Holes between elements are none of its faults: who returns a part of what it has padded pays for a copy of it when
    it is timed. Elements that share memory are not written, so that nobody may have such but where the reference does.

    Args:
        answer: what the contestant returned.
        wanted: the reference's outputs, or how they lie.
        overlapping: of which of these elements share memory.

    Raises:
        Ruling: it has others.
    """
    if answer.untold is not None:
        raise Ruling(Status.INCORRECT, f"forward did not return tensors: {answer.untold}")
    for kind in answer.kinds:
        if kind.get("fake"):
            raise exploit("lazy_tensor", "an output is not a plain tensor with a memory of its own")
        if kind.get("on_device") is False:
            raise Ruling(Status.INCORRECT, "an output is not on the problem's device")
    if len(answer.outputs) != len(wanted):
        raise Ruling(Status.INCORRECT, f"expected {len(wanted)} output tensors, got {len(answer.outputs)}")
    for index, (got, native, kind) in enumerate(zip(answer.outputs, wanted, answer.kinds, strict=True)):
        which = f"output {index}: " if len(wanted) > 1 else ""
        if got.dtype != native.dtype:
            raise Ruling(Status.INCORRECT, f"{which}expected dtype {_name(native.dtype)}, got {_name(got.dtype)}")
        if got.shape != native.shape:
            raise Ruling(Status.INCORRECT, f"{which}expected shape {list(native.shape)}, got {list(got.shape)}")
        if kind.get("overlaps") is True and index not in overlapping:
            raise Ruling(Status.INCORRECT, f"{which}elements of the output share memory, as those of an expanded one")


def _check_structure(answer: Answer, expected: Expected) -> None:
    """See that an answer has the reference's tensors under its keys, whatever is in them; raises `Ruling` if not."""
    check_kinds(answer, expected.outputs["native"], expected.overlaps)
    keys = tree.keys(expected.values)
    if answer.keys is not None and answer.keys != keys:
        raise Ruling(Status.INCORRECT, _wrong_keys(keys))


def _wrong_keys(wanted: list[tuple[str | int, ...]]) -> str:
    if not any(wanted):
        return "forward returned a dictionary where the reference returns none"
    named = ", ".join("/".join(map(str, keys)) or "none" for keys in wanted[:16])
    return f"forward did not return tensors under the reference's keys, in their order: {named}"


def _wrong(comparison: Comparison, index: int, count: int, delivery: Delivery, distribution: str) -> Ruling:
    which = f"output {index}: " if count > 1 else ""
    text = which + comparison.describe()
    if distribution in UNUSUAL:
        text += f" ({UNUSUAL[distribution]})"
    if not delivery.names and delivery.needed:
        text += (
            "; parameter_mismatch: names and shapes of parameters differ from the reference's, so construct them in "
            "the reference's order, or define load_reference_state(self, state_dict)"
        )
    return Ruling(Status.INCORRECT, text, max_error=comparison.max_error)


def is_right(answer: Answer, expected: Expected, reduction_length: int) -> bool:
    """Whether an answer is within the tolerance; whatever else is wrong with it counts as wrong.

    As `check_outputs` for inputs of the problem's own kind, but nothing is found out about an answer that is wrong, as
    nearly everybody's is who is asked this.
    """
    try:
        _check_structure(answer, expected)
    except Ruling:
        return False
    return all(_is_right(expected.runs(index), got, reduction_length) for index, got in enumerate(answer.outputs))


def _is_right(runs: Mapping[str, torch.Tensor], got: torch.Tensor, reduction_length: int) -> bool:
    """`_compare`, and no more than whether it passes: whatever the strict budget accepts, the other accepts, too."""
    native, nudged = runs["native"], runs.get("nudged")
    truth = runs.get("float64", native)
    budget = make_budget(truth, native, _coarse(runs), nudged=nudged, reduction_length=reduction_length)
    return compare_if_well(truth, got, budget) is not None


def check_inputs(
    left: list[torch.Tensor], expected: Expected, reduction_length: int, *, distribution: str = "own"
) -> None:
    """See that inputs which a candidate changed are as the reference leaves them; raises `Ruling` if not.

    Args:
        left: the candidate's inputs after the call.
        expected: with the reference's.
        reduction_length, distribution: as for `check_outputs`.
    """
    if not expected.mutates_inputs:
        raise Ruling(Status.INCORRECT, "the candidate changed its inputs")
    for index, got in enumerate(left):
        runs = {variant: inputs[index] for variant, inputs in expected.inputs_after.items()}
        comparison, _ = _compare(runs, got, reduction_length)
        if not (comparison.passed or _is_tolerable(comparison, distribution)):
            raise Ruling(Status.INCORRECT, "the candidate changed its inputs otherwise than the reference does")


def check_buffers(
    own: dict[str, torch.Tensor],
    expected: Expected,
    reduction_length: int,
    delivery: Delivery,
    *,
    distribution: str = "own",
) -> None:
    """See that buffers which the reference updates were updated, as exactly as an output must be.

    Args:
        own: the candidate's parameters and buffers after the call.
        expected: with the buffers that the reference changed.
        reduction_length, distribution: as for `check_outputs`.
        delivery: with the candidate's name for each of the reference's.

    Raises:
        Ruling: one was not, is missing, or is of another size.
    """
    got = {name: _counterpart(name, native, own, delivery) for name, native in expected.buffers.items()}
    runs = {name: expected.runs_of_buffer(name) for name in got}
    vectors = [Vector(runs[name].get("float64", runs[name]["native"]), runs[name]["native"], got[name]) for name in got]
    if are_all_well(vectors, reduction_length):
        return
    for name in got:
        comparison, _ = _compare(runs[name], got[name], reduction_length)
        if not (comparison.passed or _is_tolerable(comparison, distribution)):
            raise Ruling(Status.INCORRECT, f"the buffer {name!r} is not updated as the reference updates it")


def _counterpart(name: str, native: torch.Tensor, own: dict[str, torch.Tensor], delivery: Delivery) -> torch.Tensor:
    """What the candidate has for one of the reference's buffers, in its shape and type."""
    mine = own.get(delivery.pairs.get(name, name))
    if mine is None:
        raise Ruling(Status.INCORRECT, f"the reference updates a buffer {name!r} that the candidate does not have")
    if mine.numel() != native.numel() or mine.is_complex() != native.is_complex():
        raise Ruling(Status.INCORRECT, f"the buffer {name!r} has another size or kind than the reference's")
    return mine.reshape(native.shape).to(native.dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
