"""Which answers that need no work does a problem accept, at its own tolerance?

All of `trivial.answers` are held against the truth of several draws of inputs. One is accepted if it passes for every
draw: who can count on that can leave the work undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from kerneldojo.problems import trivial
from kerneldojo.problems.budget import make_budget
from kerneldojo.problems.pieces import num_bytes
from kerneldojo.problems.reference import Outcome, Reference, Variant
from kerneldojo.problems.report import AcceptedAnswer
from kerneldojo.problems.source import ProblemError

LARGE_BYTES = 4 << 30
"""Where all draws together take this, answers of other modules are made anew each time they are looked at."""


@dataclass(frozen=True)
class Draws:
    """How the reference is run: the same module, several draws of inputs."""

    reference: Reference
    oracle: Variant
    """Whose outputs are the truth."""
    precision: str
    """Class of arithmetic that float32 products may use: `ieee` or `tf32`."""
    training: bool
    seed: int
    num: int
    """Draws of inputs; each has a seed of its own."""
    is_sensitive: bool = False
    """Whether the tolerance asks for the `nudged` run."""

    def outcomes(self, distribution: str) -> list[Outcome]:
        """The reference's own, in all variants that the tolerance asks for."""
        variants: list[Variant] = ["native"]
        if self.oracle == "float64":
            variants.append("float64")
        if self.is_sensitive:
            variants.append("nudged")
        if self.precision == "tf32":
            variants.append("tf32")
        return [self._run(number, distribution, self.seed, variants) for number in range(self.num)]

    def of_other_weights(self, distribution: str, *, most: int) -> Callable[[int], Sequence[torch.Tensor]]:
        """The outputs of modules with other weights for the inputs of a draw, by its number; so many are kept."""

        @lru_cache(maxsize=most)
        def outputs(number: int) -> Sequence[torch.Tensor]:
            return self._run(number, distribution, self.seed + 1 + number, ("native",)).outputs["native"]

        return outputs

    def _run(self, number: int, distribution: str, init_seed: int, variants: Sequence[Variant]) -> Outcome:
        return self.reference.run(
            input_seed=self.seed + 1 + number,
            init_seed=init_seed,
            distribution=distribution,
            variants=variants,
            training=self.training,
        )


@dataclass(frozen=True)
class Accepted:
    """What passed in one distribution of inputs."""

    answers: tuple[AcceptedAnswer, ...]
    """By output; those that pass for all draws."""
    elsewhere: tuple[AcceptedAnswer, ...]
    """Others that `torch.allclose` at 1e-2 takes, as other evaluators use it."""
    is_degenerate: bool
    """Whether every output has one that passes."""
    tells_tf32: bool
    """Whether any output of any draw differs between native and TF32 products."""


def accepted_answers(draws: Draws, distribution: str) -> Accepted:
    """Try every trivial answer for every output.

    Raises:
        ProblemError: the problem's shapes depend on the values of its inputs.
        ReferenceFailed: the problem's code failed for these inputs.
    """
    outcomes = draws.outcomes(distribution)
    held = (x for outcome in outcomes for tensors in (outcome.inputs, *outcome.outputs.values()) for x in tensors)
    is_large = num_bytes(held) >= LARGE_BYTES
    others = draws.of_other_weights(distribution, most=1 if is_large else draws.num)
    num_outputs = len(outcomes[0].outputs["native"])
    found: list[AcceptedAnswer] = []
    elsewhere: list[AcceptedAnswer] = []
    for output in range(num_outputs):
        truths = _truths(outcomes, output, draws.oracle)
        here: set[str] = set()
        for answer, made in _candidates(outcomes, others if outcomes[0].state_bytes else None, output):
            if answer in here:
                continue
            named = AcceptedAnswer(answer=answer, distribution=distribution, output=output)
            nearly = trivial.NEARLY_CONSTANT if answer == trivial.CONSTANT else trivial.NEARLY
            if all(truth.accepts(made(i), nearly) for i, truth in enumerate(truths)):
                here.add(answer)
                found.append(named)
            elif named not in elsewhere and all(truth.accepts_loosely(made(i)) for i, truth in enumerate(truths)):
                elsewhere.append(named)
    return Accepted(
        answers=tuple(found),
        elsewhere=tuple(answer for answer in elsewhere if answer not in found),
        is_degenerate={answer.output for answer in found} == set(range(num_outputs)),
        tells_tf32=any(_tells_tf32(outcome) for outcome in outcomes),
    )


def _tells_tf32(outcome: Outcome) -> bool:
    pairs = zip(outcome.outputs["native"], outcome.outputs.get("tf32", ()), strict=False)
    return any(native is not tf32 and not torch.equal(native, tf32) for native, tf32 in pairs)


def _candidates(
    outcomes: Sequence[Outcome], others: Callable[[int], Sequence[torch.Tensor]] | None, output: int
) -> Iterator[tuple[str, trivial.Answer]]:
    return trivial.answers(
        [outcome.outputs["native"][output] for outcome in outcomes],
        [outcome.inputs for outcome in outcomes],
        None if others is None else lambda place: others(place)[output],
    )


def _truths(outcomes: Sequence[Outcome], output: int, oracle: Variant) -> list[trivial.Truth]:
    truths: list[trivial.Truth] = []
    shapes = {tuple(outcome.outputs["native"][output].shape) for outcome in outcomes}
    if len(shapes) > 1:
        raise ProblemError(f"the shape of output {output} depends on the values of the inputs")
    for outcome in outcomes:
        native = outcome.outputs["native"][output]
        truth = outcome.outputs[oracle][output]
        accepted = outcome.outputs["tf32"][output] if "tf32" in outcome.outputs else None
        nudged = outcome.outputs["nudged"][output] if "nudged" in outcome.outputs else None
        budget = make_budget(truth, native, accepted, nudged=nudged, reduction_length=outcome.reduction_length)
        truths.append(trivial.Truth(truth, budget))
    return truths
