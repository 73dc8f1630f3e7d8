"""What windows need, made while others may still use the device: inputs in shared memory, a first call of each side.

Timed calls get inputs of their own, moved about from a few sets that the problem drew. The contestant's silent twin is
timed like it, if it survives a call without its kernels (`judging.timing` plays the windows).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda.content import may_shuffle, ways_of
from kerneldojo.devices.cuda.inputs import InputSets, Layout, num_sets
from kerneldojo.devices.cuda.memory import SharedRegion
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.judging import order
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.inspection import Inspection
from kerneldojo.judging.outputs import check_kinds
from kerneldojo.judging.reference_times import Settled
from kerneldojo.judging.rounds import Match, secret_seed
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.sides import ArgumentSets, compile_baseline
from kerneldojo.judging.twin import TWIN_SECONDS
from kerneldojo.judging.verdict import Findings

NUM_BASES = 4
"""Sets of inputs that are drawn from the problem; timed calls get these, moved about."""
MAX_SETS = 128
REPEATED = "timed inputs were repeated, for nothing may be changed in them: a kept answer would not be seen"
"""Said of problems that have none but indices, flags and what is sorted."""


@dataclass
class Prepared:
    """Everything that windows need, made while others may still use the device."""

    inputs: InputSets
    arguments: ArgumentSets
    """Of all sides."""
    outputs: list[Layout]
    """Of the reference."""
    layouts: list[Layout]
    """Of the contestant's outputs: how they are read (`judging.order`)."""
    hosted: dict[str, Hosted]
    """The sides by name."""
    reference_changes_inputs: bool = False
    """Whether the problem's own code writes to its inputs."""
    kept: frozenset[int] = frozenset()
    """Outputs that the reference keeps from call to call."""
    call_seconds: float = math.inf
    """What a call of the contestant took, as it says."""
    result: Trials | None = None
    """What the last run of windows showed."""
    inspection: Inspection | None = None
    """What was kept of its outputs."""
    doubtful: Settled | None = None
    """The reference's figure, if it is to be confirmed when the candidate is dead."""

    @property
    def strides(self) -> list[tuple[int, ...]]:
        """Of the contestant's outputs."""
        return [layout.stride for layout in self.layouts]


def draw(match: Match, region_bytes: int, *, is_large: bool = False) -> list[Any]:
    """Construct both sides, after the rounds, and draw the sets of inputs that all others are made from.

    Args:
        match: reference and contestant.
        region_bytes: memory for inputs; no more sets are drawn than it holds, but one at least.
        is_large: whether there is no room for a second one, which is only missed where nothing may be moved about.

    Raises:
        Ruling: the candidate does not get so far.
    """
    match.prepare("timed")
    drawn = [match.reference.draw("get_inputs", secret_seed())]
    tensors = tree.tensors(drawn[0])
    most = 1 if is_large and all(may_shuffle(tensor) for tensor in tensors) else NUM_BASES
    while len(drawn) < num_sets([Layout.of(tensor) for tensor in tensors], region_bytes, most):
        drawn.append(match.reference.draw("get_inputs", secret_seed()))
    return drawn


def prepare(match: Match, drawn: list[Any], region: SharedRegion, findings: Findings) -> Prepared:
    """Lay the inputs out, and call both sides once.

    Args:
        match: reference and contestant.
        drawn: as `draw` returned it.
        region: memory for the inputs, mapped by all of them.
        findings: where the argument trees go, for the profile.

    Raises:
        Ruling: the candidate does not get so far.
    """
    reference, contestant = match.reference, match.contestant
    bases = [tree.tensors(values) for values in drawn]
    layouts = [Layout.of(tensor) for tensor in bases[0]]
    count = max(1, num_sets(layouts, region.size, MAX_SETS))
    ways = ways_of(bases)
    if all(way == "choose" for way in ways):
        findings.notes.append(REPEATED)
    inputs = InputSets(region, bases, ways, count)
    inputs.refresh(count)
    hosted = {"contestant": contestant.hosted, "reference": reference.hosted}
    structure = tree.with_tensors(drawn[0], iter([tensor.to("meta") for tensor in bases[0]]))
    arguments = ArgumentSets(structure, inputs)
    sets = {name: arguments.of(party) for name, party in hosted.items()}
    findings.timed_sets = sets["contestant"]
    compile_baseline(reference, sets["reference"], findings)
    expected = reference.expect("timed", drawn[0], ("native",), secret_seed())
    outputs, changes_inputs = [Layout.of(tensor) for tensor in expected.outputs["native"]], expected.mutates_inputs
    inputs.may_change, kept, overlapping = changes_inputs, expected.returns_state, expected.overlaps
    del expected  # There may be no room for both.
    reference.post_ready(sets["reference"], [one.stride for one in outputs])
    try:
        answer = contestant.call("timed", contestant.hosted.give(drawn[0]), secret_seed())
        # Samples of both sides are read and compared by where their elements lie.
        check_kinds(answer, outputs, overlapping)
        layouts = order.orders(answer, outputs)
        findings.notes += order.notes(answer, layouts)
        contestant.get_ready(sets["contestant"], [one.stride for one in layouts])
    finally:
        reference.collect_ready()
    return Prepared(
        inputs=inputs,
        arguments=arguments,
        outputs=outputs,
        layouts=layouts,
        hosted=hosted,
        reference_changes_inputs=changes_inputs,
        kept=kept,
        call_seconds=answer.elapsed,
    )


def rehearse_twin(match: Match, twin: Contestant) -> bool:
    """Begin a call of the silent twin, between two rounds, so that its kernels are compiled; whether it gets so far."""
    if match.birth is None:
        return False
    inputs = match.reference.draw("get_inputs", secret_seed())
    return _begin_call(match, twin, "rehearsal", inputs)


def post_twin(match: Match, twin: Contestant, drawn: list[Any]) -> bool:
    """Give the silent twin the instance that is timed, and begin a call of it; whether it gets so far."""
    return _begin_call(match, twin, "timed", drawn[0])


def _begin_call(match: Match, twin: Contestant, instance: str, values: Any) -> bool:
    assert match.birth is not None
    try:
        match.beside(twin).construct(instance, match.birth)
        twin.post_call(instance, twin.hosted.give(values), secret_seed(), silenced=True)
    except Ruling:
        return False
    return True


def add_twin(prepared: Prepared, twin: Contestant) -> None:
    """Time the silent twin too, if it survives the call without its kernels that `post_twin` began."""
    try:
        twin.collect_call(TWIN_SECONDS)
        twin.get_ready(prepared.arguments.of(twin.hosted), prepared.strides)
    except Ruling:
        return
    prepared.hosted["twin"] = twin.hosted
