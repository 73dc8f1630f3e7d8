"""Time on a modelled device: counted work, priced by a roofline. Marked as modelled, never mixed with measurements.

Steady calls are priced, those after the first call of an instance, where weights may be packed. The reference is
priced in the class of arithmetic that the candidate reached, so that TF32 is no gain by itself.

What is not counted has no price, so it must not carry the answer: where a candidate's kernels read, or its caller got,
bytes that no counted work had written (NumPy, a thread, torch behind the meter's back), or where its counted work moved
too little to have seen the inputs, the whole of the reference's work is charged beside its own. Whatever was done
there, it was no more than that, and it is no gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from kerneldojo.devices import Device
from kerneldojo.devices.roofline import Modeled, physical_limit, price
from kerneldojo.devices.specs import GPU, gpu
from kerneldojo.devices.work import Compiled, Precision, Work, parse_works
from kerneldojo.judging.ends import readable
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.ruling import exploit
from kerneldojo.judging.verdict import MAX_KERNELS, MAX_NAME, Findings
from kerneldojo.schema import KernelTime, Timing


def fill(findings: Findings, seen: Rounds, compiled: list[dict[str, Any]], device: Device) -> None:
    """Price what was counted; on a device that models nothing, leave times out.

    Raises:
        Ruling: the counts are malformed (`tampering`), or claim less than any kernel must do.
    """
    if device.kind != "model":
        return
    model = gpu(device.model)
    try:
        built = [Compiled.model_validate(item) for item in compiled]
        own_works = [parse_works(work) for work in seen.steady_works]
    except (ValidationError, ValueError):
        raise exploit("tampering", "its counts of work are malformed") from None
    reference_works = [parse_works(work) for work in seen.steady_reference_works]
    if seen.precision_class == "tf32":
        reference_works = [[_in_tf32(work) for work in works] for works in reference_works]
    theirs = _median([price(works, model, baseline=findings.protocol.baseline) for works in reference_works])
    both = zip(own_works, seen.steady_copies, strict=True)
    priced = [price([*works, *copies], model, built) for works, copies in both]
    hidden = [
        _hidden_bytes(works, reference, findings.compulsory_bytes)
        for works, reference in zip(own_works, reference_works, strict=True)
    ]
    mine = _median([_with_all_of(theirs, own) if count else own for own, count in zip(priced, hidden, strict=True)])
    if any(hidden):
        findings.notes.append(
            f"{max(hidden)} bytes that its answer was made of are not the work of anything counted (a host's, say): "
            "all of the reference's work is charged for them"
        )
    findings.notes += seen.disorder
    findings.timing = _timing(mine, len(own_works))
    findings.reference_timing = _timing(theirs, len(reference_works))
    findings.kernels = told_kernels(mine.kernels)
    findings.coverage = mine.coverage
    findings.naive_speedup = findings.speedup
    _hold_against_limit(findings, reference_works[0], mine, model)


def told_kernels(kernels: Sequence[KernelTime]) -> tuple[KernelTime, ...]:
    """Those that take the longest, in their order: there may be thousands, and a verdict has to be passed on."""
    dearest = sorted(range(len(kernels)), key=lambda i: -kernels[i].device_ms)[:MAX_KERNELS]
    return tuple(kernels[i].model_copy(update={"name": readable(kernels[i].name, MAX_NAME)}) for i in sorted(dearest))


SECTOR_ELEMENTS = 16
"""Elements of a sector of memory, of two bytes: who needs one of them has moved all, by the audit's count."""


def _hidden_bytes(works: Sequence[Work], reference: Sequence[Work], compulsory: int) -> int:
    """How many bytes reached the answer that no counted work made, beyond those that the reference itself has so."""
    from_outside = _outside_bytes(works) - _outside_bytes(reference)
    if from_outside > 0:
        return from_outside
    # The answer depends on all compulsory bytes. Some problems hand inputs on untouched; the reference shows it.
    needed = min(compulsory, sum(work.read_bytes + work.written_bytes for work in reference))
    moved = sum(max(work.accessed_bytes, work.read_bytes + work.written_bytes) for work in works)
    return needed - moved if moved * SECTOR_ELEMENTS < needed else 0


def _outside_bytes(works: Sequence[Work]) -> int:
    return sum(work.read_bytes for work in works if work.pattern == "outside")


def _with_all_of(theirs: Modeled, mine: Modeled) -> Modeled:
    """A call with the reference's work beside its own."""
    hidden = KernelTime(name="off the meter", device_ms=theirs.total_ms, num_launches=theirs.launches)
    return mine.model_copy(update={"total_ms": mine.total_ms + theirs.total_ms, "kernels": (*mine.kernels, hidden)})


def _hold_against_limit(findings: Findings, reference: Sequence[Work], mine: Modeled, model: GPU) -> None:
    flops = sum(work.product_flops for work in reference) if findings.problem.irreducible else 0.0
    limit = physical_limit(findings.compulsory_bytes, flops, _fastest(findings, reference), model)
    if mine.total_ms < limit.limit_ms:
        raise exploit("below_physical_limit", "it claims less work than the problem's own data takes to move")
    fraction = limit.limit_ms / mine.total_ms if mine.total_ms else None
    findings.roofline = limit.model_copy(update={"fraction": fraction})


def _fastest(findings: Findings, reference: Sequence[Work]) -> Precision:
    """The fastest class of arithmetic that the problem's products accept."""
    used = {item.precision for work in reference for item in work.products}
    for precision in ("fp8", "int8", "fp16"):
        if precision in used:
            return precision
    return "tf32" if findings.protocol.precision == "tf32" else "fp32"


def _in_tf32(work: Work) -> Work:
    products = tuple(
        item.model_copy(update={"precision": "tf32"}) if item.precision == "fp32" else item for item in work.products
    )
    return work.model_copy(update={"products": products})


def _median(priced: list[Modeled]) -> Modeled:
    """The call in the middle; with an even number the slower of the two."""
    middle = statistics.median_high([modeled.total_ms for modeled in priced])
    return next(modeled for modeled in priced if modeled.total_ms == middle)


def _timing(modeled: Modeled, num_trials: int) -> Timing:
    total = modeled.total_ms
    return Timing(
        source="modeled",
        median_ms=total,
        confidence_interval_ms=(total, total),
        num_trials=num_trials,
        device_ms=total,
    )
