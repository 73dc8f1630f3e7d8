"""Looking at what came out of timed calls, round by round, while it is still there.

The stopwatch has sampled the candidate's outputs and the reference's, of the very same inputs and at the same places.
Both samples are kept, and a few calls are remembered whole: the device is nobody else's meanwhile, so no more is done.
When the series is over, all that was sampled is compared, and the whole outputs with the oracle.

A sample lets much pass: arithmetic that is coarser than in the rounds, or the mean of outputs that hardly differ. Whole
outputs do not, so nobody may know when these have been remembered, or which. A place that has been given is given again
later: to a call of the quickest windows, for a figure is made of these, and to any other's, each as likely.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.inputs import InputSets
from kerneldojo.devices.cuda.sampling import Sample
from kerneldojo.devices.cuda.window import Side, Timed
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.problems.pieces import num_bytes
from kerneldojo.schema import Status

NUM_FULL_CHECKS = 3
"""Timed calls whose whole output is compared with the oracle; samples of all others are compared too."""
MOST_BYTES = 4 << 30
"""Of all that is remembered of them; one is, whatever its size."""
LATER_SECONDS = 0.002
"""From when the clock has stopped until such a call is looked at, at least."""
QUICKER = 0.98
"""A window whose calls took less than this part of the quickest one's before it is the quickest now: figures differ by
1 % without anybody's doing, and each that is remembered is waited for."""
LOOSE = {torch.float64: 1e-6, torch.float32: 2e-2, torch.float16: 5e-2, torch.bfloat16: 1e-1}
"""Allowed difference of sampled outputs from the reference's, relative to their rms: a stale or missing answer is off
by about 1. What it lets pass is left to the full checks."""
FLOAT_TINY = torch.finfo(torch.float32).tiny
TINY = {torch.float64: torch.finfo(torch.float64).tiny, torch.float16: 2.0**-24}
"""And absolutely: below it numbers are no longer exact, and a product of many factors may be nothing in one order of
them and something in another. Half precision is computed in single, and is rounded at the end."""


@dataclass
class Witness:
    """One timed call, remembered for a full check when the series is over."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    sampled: list[tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Output number, indices and values as the stopwatch's own sample had them."""
    is_quickest: bool = False
    """Whether it has the place that is the quickest window's."""

    @property
    def num_bytes(self) -> int:
        """What its tensors take."""
        return num_bytes((*self.inputs, *self.outputs))


class Inspection:
    """Looks at every round of windows while the outputs are still there."""

    def __init__(
        self, sides: dict[str, Side], inputs: InputSets, stopwatch: Any, *, may_change_inputs: bool = False
    ) -> None:
        """`may_change_inputs`: whether the reference does so itself."""
        self._sides, self._inputs, self._stopwatch = sides, inputs, stopwatch
        self._may_change_inputs = may_change_inputs
        self._changed: list[torch.Tensor] = []
        """Of one call a round, whether its inputs were others when all sides had been timed; of all where that may be
        why the reference failed."""
        self._chance = random.SystemRandom()
        self._samples: list[tuple[Sample, Sample]] = []
        """The candidate's, and the reference's at the same places."""
        self._pairs: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        """Output number, sampled values and the reference's, where the two do not lie alike."""
        self.witnesses: list[Witness] = []
        self._num_offered = 0
        """Rounds of which a call might have been remembered, for a place that is not the quickest window's."""
        self._quickest_us = math.inf
        """What a call took in the quickest window that both sides had."""
        self._has_quickest = self._chance.random() < 0.5
        """Whether the quickest window's has a place where there is room for one only."""
        self.wrong: Ruling | None = None
        """What was wrong about the outputs' places; no round was looked at after that."""

    def __call__(self, length: int, timed: dict[str, Timed]) -> None:
        """Keep what was sampled, and now and then remember a secretly chosen call whole."""
        mine, theirs = timed.get("contestant"), timed.get("reference")
        if theirs is not None and theirs.state != pages.OK:
            self.look_at_inputs()
        if self.wrong is not None or mine is None or theirs is None or mine.state != pages.OK:
            return
        if not mine.in_bounds or mine.sample is None:
            self.wrong = exploit("tampering", "in a timed window it named outputs where none can be")
        elif not mine.disjoint:
            self.wrong = Ruling(Status.INCORRECT, "calls in a row returned the same memory (reused output buffer)")
        else:
            call = self._chance.randrange(length)
            self._keep(mine, theirs, mine.sample, call)
            if not self._may_change_inputs:
                self._changed.append(self._inputs.differs(call))
            self._offer(mine, mine.sample, call)

    def compare(self) -> None:
        """Hold what was sampled against what the reference returned in the same rounds.

        Raises:
            Ruling: they differ, or agree on other inputs than the judge has written.
        """
        self.check_inputs()
        for number in range(len(self._sides["contestant"].layouts)):
            pairs = [(values, right) for other, values, right in self._pairs if other == number]
            pairs += [(mine.read(number), theirs.read(number)) for mine, theirs in self._samples]
            if pairs and not agree(*(torch.cat(column) for column in zip(*pairs, strict=True))):
                raise exploit("wrong_when_timed", "its outputs were right in the rounds and wrong in timed calls")

    def look_at_inputs(self) -> None:
        """See whether those of the last round are what the judge wrote: what fails on them may fail for them."""
        if not self._may_change_inputs:
            self._changed += map(self._inputs.differs, range(self._inputs.num_fresh))

    def check_inputs(self) -> None:
        """Raises `Ruling` if any that were looked at were others."""
        if self._changed and bool(torch.stack(self._changed).any()):
            raise exploit("wrong_when_timed", "in timed calls it wrote to its inputs, which the reference met then")

    def _keep(self, mine: Timed, theirs: Timed, sample: Sample, call: int) -> None:
        if theirs.state != pages.OK or theirs.sample is None:
            return
        if theirs.sample.plan is sample.plan:
            self._samples.append((sample, theirs.sample))
            return
        for number in range(len(sample.layouts)):
            if not sample.has(call, number):
                continue
            indices, values = sample.values(call, number)
            right = self._stopwatch.output(self._sides["reference"], theirs, call, number).reshape(-1)
            self._pairs.append((number, values, right[indices]))

    def _offer(self, mine: Timed, sample: Sample, call: int) -> None:
        """Remember a call of this round, if one of the places is its own."""
        is_alone = self._most() == 1
        has_quickest = self._has_quickest or not is_alone
        if not has_quickest and self.witnesses:
            self.witnesses[0].is_quickest = False
        per_call_us = mine.done_us / mine.length
        if per_call_us < QUICKER * self._quickest_us and has_quickest:
            self._quickest_us = per_call_us
            self._forget([at for at, one in enumerate(self.witnesses) if one.is_quickest])
            self._remember(mine, sample, call, is_quickest=True)
            return
        self._num_offered += 1
        others = [at for at, one in enumerate(self.witnesses) if not one.is_quickest]
        if len(others) < self._most() - has_quickest:
            self._remember(mine, sample, call)
        elif others and (place := self._chance.randrange(self._num_offered)) < len(others):
            self._forget([others[place]])
            self._remember(mine, sample, call)

    def _most(self) -> int:
        """How many calls may be remembered, if all are as large as the first."""
        if not self.witnesses:
            return NUM_FULL_CHECKS
        return max(1, min(NUM_FULL_CHECKS, MOST_BYTES // max(1, self.witnesses[0].num_bytes)))

    def _forget(self, places: list[int]) -> None:
        """Give places to others, and the memory first: there may be no room beside."""
        self.witnesses = [one for at, one in enumerate(self.witnesses) if at not in places]

    def _remember(self, mine: Timed, sample: Sample, call: int, *, is_quickest: bool = False) -> None:
        # Whoever writes after the clock has stopped is found out by what changed meanwhile.
        time.sleep(max(0.0, mine.stopped + LATER_SECONDS - time.perf_counter()))
        side = self._sides["contestant"]
        witness = Witness(
            inputs=self._inputs.written(call),  # Not what lies there now: whoever was timed can write there.
            outputs=[self._stopwatch.output(side, mine, call, number) for number in range(len(side.layouts))],
            is_quickest=is_quickest,
        )
        for number in range(len(side.layouts)):
            if sample.has(call, number):
                witness.sampled.append((number, *sample.values(call, number)))
        self.witnesses.append(witness)


def agree(values: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether sampled values are near the reference's; exactly equal for integers, most of them."""
    if not right.is_floating_point():
        return bool((values == right).double().mean() > 0.99)
    mine, theirs = values.double(), right.double()  # Of some kinds nobody asks whether they are finite.
    both = mine.isfinite() & theirs.isfinite()
    if bool((mine.isfinite() != theirs.isfinite()).any()):
        return False
    mine, theirs = mine[both], theirs[both]
    scale = theirs.square().mean().sqrt() if theirs.numel() else 0.0
    allowed = LOOSE.get(right.dtype, 2e-2) * (scale + theirs.abs()) + TINY.get(right.dtype, FLOAT_TINY)
    return bool(((mine - theirs).abs() <= allowed).all())
