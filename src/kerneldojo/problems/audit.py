"""Admission of a problem: is it worth judging kernels on, and how must they be judged?

A problem is *degenerate* if an answer that needs no work passes: zeros, a constant, the mean of other seeds' answers,
another seed's answer, an input itself, or the answer of a model with other weights. It must be refused in every
distribution of inputs that decides, for every output taken alone that some such answer fits.

It is *invalid* if it cannot be judged at all: its code fails, its outputs are not finite, or two runs with equal
inputs and weights differ, be it two calls of one instance: of those that are timed nobody counts how many there were.

Along the way the audit settles what the judge needs to know: mode, oracle, distributions, the longest sum, memory,
and the traffic that no kernel can avoid.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from kerneldojo.problems import distributions
from kerneldojo.problems.agreement import is_noise, relative_errors, same
from kerneldojo.problems.budget import is_sensitive
from kerneldojo.problems.degeneracy import Draws, accepted_answers
from kerneldojo.problems.pieces import num_bytes
from kerneldojo.problems.reference import Outcome, Reference, ReferenceFailed, Variant
from kerneldojo.problems.repeatability import SAME, STATEFUL, whatever_matters
from kerneldojo.problems.report import AcceptedAnswer, AuditReport
from kerneldojo.problems.source import ProblemError, check_source
from kerneldojo.problems.suitability import Suitability
from kerneldojo.schema import Problem

VERSION = "17"
"""Raised whenever a change could move what an audit finds: what was found before is then forgotten."""
SEEDS = 3
MOST_NUDGED = 1 << 30
"""Bytes; whether larger problems are sensitive is not asked: their outputs are many, and there may be no room."""
SCATTERED = 1.05
"""Of the memory that answers in three precisions and inputs in two copies take, as they leave holes between them."""
AGREES = 0.25
"""A float64 run further than this from the native one computes something else: it cannot be the oracle."""


class _TooLarge(ProblemError):
    """The device has too little memory for the problem; on another one it may be judged."""


@dataclass
class _Findings:
    """What has been settled so far."""

    training: bool = True
    oracle: Variant = "float64"
    is_cramped: bool = False
    first: Outcome | None = None
    errors: tuple[float, ...] = ()
    """Of the outputs on the problem's own inputs, relative to their size; none without a float64 oracle."""
    deciding: tuple[str, ...] = ("own",)
    probing: tuple[str, ...] = ()
    accepted: tuple[AcceptedAnswer, ...] = ()
    elsewhere: tuple[AcceptedAnswer, ...] = ()
    degenerate: bool = False
    tells_tf32: bool = False
    is_sensitive: bool = False
    needed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def audit(
    problem: Problem,
    reference: Reference,
    *,
    precision: Literal["ieee", "tf32"] = "tf32",
    seed: int = 0,
    seeds: int = SEEDS,
    memory_limit: int | None = None,
    result_limit: int | None = None,
    oracle_limit: int | None = None,
    may_be_cramped: bool = True,
) -> AuditReport:
    """Decide whether `problem` can be judged, and how.

    Args:
        problem: what is audited; its source is read, never run, by this function.
        reference: runs the problem's code elsewhere.
        precision: class of arithmetic that float32 products may use.
        seed: where the seeds of inputs and weights start; any will do, secret ones are the judge's affair.
        seeds: draws of inputs for each distribution; at least 3.
        memory_limit: bytes that the device has; a problem that needs more is invalid, and one whose float64 run
            would need more has a float32 oracle.
        result_limit: bytes of these that a candidate has for all but its inputs.
        oracle_limit: bytes of these that the float64 run has, where it has fewer.
        may_be_cramped: whether it may; else such a problem is too large, as others are, and found to be so early.

    Returns:
        The report. A problem's failure is data there; only failures of the machinery itself raise.

    Raises:
        ValueError: fewer than 3 seeds.
    """
    if seeds < SEEDS:
        raise ValueError(f"an audit takes at least {SEEDS} seeds")
    started = time.monotonic()
    findings = _Findings()
    status, reason = "admitted", ""
    try:
        check_source(problem.source, problem.name)
        findings.first = _first(reference, seed, training=True)
        _settle_memory(
            findings, memory_limit, result_limit, oracle_limit or memory_limit, may_be_cramped=may_be_cramped
        )
        _settle_mode(findings, reference, seed)
        _settle_oracle(findings, reference, seed, (oracle_limit or memory_limit) if may_be_cramped else None)
        _settle_distributions(findings, reference, seed)
        findings.first = _without_content(findings.first)
        _try_answers(findings, reference, precision, seed, seeds)
        findings.needed = tuple(reference.needed_bytes(input_seed=seed + 1, init_seed=seed, training=findings.training))
        if findings.degenerate:
            status, reason = "degenerate", "accepts " + _listed(findings.accepted)
    except (ProblemError, ReferenceFailed) as error:
        report = _report(problem, findings, "invalid", str(error), time.monotonic() - started)
        return report.model_copy(update={"lacks": _lacking(error)})
    return _report(problem, findings, status, reason, time.monotonic() - started)


def _lacking(error: ProblemError | ReferenceFailed) -> Literal["", "memory", "time"]:
    if isinstance(error, ReferenceFailed):
        return error.lacks
    return "memory" if isinstance(error, _TooLarge) else ""


def _settle_memory(
    findings: _Findings,
    limit: int | None,
    result_limit: int | None,
    oracle_limit: int | None,
    *,
    may_be_cramped: bool,
) -> None:
    """See by its first run whether it has room, and for a float64 run too."""
    assert findings.first is not None
    need, made = _memory(findings.first), _made(findings.first)
    if result_limit is not None and made > result_limit:
        raise _TooLarge(f"needs {made / 2**30:.1f} GiB beside its inputs, there are {result_limit / 2**30:.1f} GiB")
    if limit is None or oracle_limit is None:
        return
    if need > limit:
        raise _TooLarge(f"needs {need / 2**30:.1f} GiB, the device has {limit / 2**30:.1f} GiB")
    widest = max((8 // y.element_size() for y in findings.first.inputs if y.is_floating_point()), default=2)
    need_of_oracle = need * (1 + widest)
    if may_be_cramped:  # There answers stay where they are until all variants have run.
        need_of_oracle = int(SCATTERED * max(need_of_oracle, 2 * (need + made)))
    if need_of_oracle <= oracle_limit:
        return
    if not may_be_cramped:
        raise _TooLarge(f"needs {need_of_oracle / 2**30:.1f} GiB in float64, there are {oracle_limit / 2**30:.1f} GiB")
    _be_cramped(findings)


def _be_cramped(findings: _Findings) -> None:
    findings.oracle = "native"
    findings.is_cramped = True
    findings.notes += ("float32 oracle: float64 does not fit into memory",)


def _first(reference: Reference, seed: int, *, training: bool) -> Outcome:
    return reference.run(input_seed=seed + 1, init_seed=seed, call_seed=seed + 1, training=training)


def _without_content(outcome: Outcome | None) -> Outcome | None:
    """The same, for its sizes: there may be no room for it beside what comes next."""
    if outcome is None:
        return None
    outputs = {variant: [y.to("meta") for y in values] for variant, values in outcome.outputs.items()}
    return replace(outcome, inputs=[x.to("meta") for x in outcome.inputs], outputs=outputs)


def _settle_mode(findings: _Findings, reference: Reference, seed: int) -> None:
    """Find the mode in which neither the random state matters nor what was called before."""
    reason = ""
    for training in (True, False):
        first = findings.first if training and findings.first else _first(reference, seed, training=training)
        findings.first, findings.training = first, training
        _check_kinds(first)
        _check_outputs(first)
        earlier, reason = reason, whatever_matters(reference, first, seed, training=training)
        if not reason:
            if not training:
                findings.notes += (f"{earlier} in training mode, judged in eval",)
            return
    what = "two calls of one instance" if reason == STATEFUL else "two runs with equal inputs and weights"
    raise ProblemError(f"not repeatable, for it is {reason}: {what} differ, also in eval mode")


def _check_kinds(outcome: Outcome) -> None:
    """See that nothing is of a kind with which torch cannot reckon; what is made of it within a call may be."""
    for what, tensors in (("input", outcome.inputs), ("output", outcome.outputs["native"])):
        for number, one in enumerate(tensors):
            if one.is_floating_point() and one.element_size() == 1:
                name = str(one.dtype).removeprefix("torch.")
                raise ProblemError(f"{what} {number} is of {name}: hand its bytes over as uint8, view(torch.{name})")


def _check_outputs(outcome: Outcome) -> None:
    outputs = outcome.outputs["native"]
    if not outputs or not any(y.numel() for y in outputs):
        raise ProblemError("returns no tensor with anything in it")
    for number, y in enumerate(outputs):
        if y.is_complex():
            raise ProblemError(f"output {number} is complex, which is not supported")
        if y.is_floating_point() and y.numel() and bool(y.isnan().any()):
            raise ProblemError(f"output {number} holds NaN for the problem's own inputs")
        if y.is_floating_point() and y.numel() and not bool(y.isfinite().any()):
            raise ProblemError(f"output {number} is infinite everywhere for the problem's own inputs")


def _settle_oracle(findings: _Findings, reference: Reference, seed: int, limit: int | None) -> None:
    """Take float64 if the reference runs in it, agrees with itself there, and memory allows: in `limit` bytes, if that
    is known, there must be room for other variants' answers too."""
    assert findings.first is not None
    if findings.is_cramped:
        return
    try:
        outcome = reference.run(input_seed=seed + 1, init_seed=seed, variants=("float64",), training=findings.training)
    except ReferenceFailed:
        findings.oracle = "native"
        findings.notes += ("float32 oracle: the reference does not run in float64",)
        return
    exact, native = outcome.outputs["float64"], findings.first.outputs["native"]
    # An audit has more memory than a verdict, and its answers lie there alone: not beside the native one and TF32's.
    if limit is not None and outcome.used_bytes + 2 * num_bytes(native) > limit:
        _be_cramped(findings)
        return
    if not same(exact, native, AGREES) and not is_noise(exact, native, SAME):
        findings.oracle = "native"
        findings.notes += ("float32 oracle: the float64 run computes something else",)
        return
    findings.errors = tuple(relative_errors(exact, native))
    if _memory(findings.first) <= MOST_NUDGED:
        _settle_sensitivity(findings, exact, reference, seed)


def _settle_sensitivity(findings: _Findings, exact: Sequence[torch.Tensor], reference: Reference, seed: int) -> None:
    assert findings.first is not None
    try:
        nudged = reference.run(
            input_seed=seed + 1, init_seed=seed, variants=("nudged",), training=findings.training
        ).outputs["nudged"]
    except ReferenceFailed:  # Probabilities above 1, say.
        findings.notes += ("the reference does not take inputs that are one rounding larger",)
        return
    longest = findings.first.reduction_length
    findings.is_sensitive = any(
        is_sensitive(truth, native, other, reduction_length=longest)
        for truth, native, other in zip(exact, findings.first.outputs["native"], nudged, strict=True)
    )


def _settle_distributions(findings: _Findings, reference: Reference, seed: int) -> None:
    assert findings.first is not None
    names = Suitability(reference, findings.first, findings.errors, seed, findings.training).suitable()
    findings.deciding += tuple(name for name in names if name in distributions.DECIDING)
    findings.probing += tuple(name for name in names if name in distributions.PROBING)


def _try_answers(findings: _Findings, reference: Reference, precision: str, seed: int, seeds: int) -> None:
    draws = Draws(
        reference, findings.oracle, precision, findings.training, seed, seeds, is_sensitive=findings.is_sensitive
    )
    for name in (name for name in findings.deciding if name in distributions.TELLING):
        try:
            found = accepted_answers(draws, name)
        except ReferenceFailed:
            if name == "own":
                raise
            findings.deciding = tuple(kept for kept in findings.deciding if kept != name)
            continue
        findings.accepted += found.answers
        findings.elsewhere += found.elsewhere
        findings.degenerate = findings.degenerate or found.is_degenerate
        findings.tells_tf32 = findings.tells_tf32 or found.tells_tf32


def _listed(accepted: Sequence[AcceptedAnswer]) -> str:
    by_name: dict[str, set[str]] = {}
    for answer in accepted:
        by_name.setdefault(answer.answer, set()).add(answer.distribution)
    return ", ".join(f"{name} ({'/'.join(sorted(places))} inputs)" for name, places in by_name.items())


def _memory(outcome: Outcome) -> int:
    return num_bytes(outcome.inputs) + outcome.state_bytes + _made(outcome)


def _made(outcome: Outcome) -> int:
    """Bytes of what a call makes: results and, if they are more, all that is there at one time."""
    outputs = num_bytes(outcome.outputs["native"]) if "native" in outcome.outputs else 0
    return max(outputs, outcome.peak_bytes)


def _report(
    problem: Problem,
    findings: _Findings,
    status: Literal["admitted", "degenerate", "invalid"],
    reason: str,
    seconds: float,
) -> AuditReport:
    first = findings.first
    if first is None:
        return AuditReport(problem_hash=problem.hash, status=status, reason=reason, seconds=seconds)
    outputs = first.outputs["native"]
    return AuditReport(
        problem_hash=problem.hash,
        status=status,
        reason=reason,
        accepted=findings.accepted,
        accepted_elsewhere=findings.elsewhere,
        mode="train" if findings.training else "eval",
        oracle="float64" if findings.oracle == "float64" else "float32",
        is_cramped=findings.is_cramped,
        tells_tf32=findings.tells_tf32,
        is_sensitive=findings.is_sensitive,
        deciding=findings.deciding,
        probing=findings.probing,
        reduction_length=first.reduction_length,
        integer_outputs=any(not y.is_floating_point() for y in outputs),
        updates_buffers=tuple(sorted(first.buffers)),
        mutates_inputs=first.mutates_inputs,
        num_outputs=len(outputs),
        input_bytes=num_bytes(first.inputs),
        output_bytes=num_bytes(outputs),
        state_bytes=first.state_bytes,
        memory_bytes=_memory(first),
        compulsory_bytes=sum(findings.needed) + num_bytes(outputs) if findings.needed else 0,
        notes=findings.notes,
        seconds=seconds,
    )
