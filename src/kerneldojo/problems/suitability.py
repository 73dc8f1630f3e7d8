"""Which unusual inputs a problem bears: those that change something, and of which answers are as good as of its own.

A reference may fail on other inputs, or return infinities; what is left of its outputs may be rounding alone. Then a
distribution says nothing about a candidate, and an honest one might be refused for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kerneldojo.problems import distributions
from kerneldojo.problems.agreement import as_exact, as_finite, as_large, relative_errors, scales_along
from kerneldojo.problems.reference import Outcome, Reference, ReferenceFailed


@dataclass(frozen=True)
class Suitability:
    """Tries one distribution after the other on a problem.

    Args:
        reference: runs the problem's code.
        first: what came of the problem's own inputs.
        errors: of these outputs, relative to their size; none without a float64 oracle.
        seed, training: of `first`.
    """

    reference: Reference
    first: Outcome
    errors: Sequence[float]
    seed: int
    training: bool

    def suitable(self) -> tuple[str, ...]:
        """Names of distributions, the problem's own left out; of `FILLING` one at most."""
        found: list[str] = []
        for name in distributions.NAMES[1:]:
            is_filled = name in distributions.FILLING and not set(found).isdisjoint(distributions.FILLING)
            if not is_filled and self._suits(name):
                found.append(name)
        return tuple(found)

    def _suits(self, name: str) -> bool:
        own, is_sided = self.first.outputs["native"], name in distributions.SIDED
        if is_sided and not self.errors and not self._is_simple():
            return False
        # Whether weights and numbers change anything shows in the outputs alone.
        shows_late = is_sided or name == "scalars"
        if not shows_late and not distributions.changes(list(self.first.inputs), name):
            return False
        # Clamps on what became huge leave one element in a million to chance, and that one in full.
        must_be_sound = is_sided or name in (*distributions.FILLING, "scaled")
        try:
            outcome = self.reference.run(
                input_seed=self.seed + 1,
                init_seed=self.seed,
                distribution=name,
                variants=("native", "float64") if must_be_sound and self.errors else ("native",),
                training=self.training,
            )
        except ReferenceFailed:
            return False
        other = outcome.outputs["native"]
        if not as_finite(own, other) or ((shows_late or must_be_sound) and all(map(torch.equal, own, other))):
            return False
        if name == "scaled" and not scales_along(own, other):
            return False
        return not must_be_sound or self._is_as_sound(outcome)

    def _is_simple(self) -> bool:
        """Whether there are no weights and one input to be multiplied: little cancels that had all signs before."""
        return not self.first.state_bytes and sum(x.is_floating_point() for x in self.first.inputs) == 1

    def _is_as_sound(self, outcome: Outcome) -> bool:
        """Whether an answer to these inputs can be told from a wrong one as well as on the problem's own."""
        other = outcome.outputs["native"]
        if not as_large(self.first.outputs["native"], other):
            return False
        return not self.errors or as_exact(self.errors, relative_errors(outcome.outputs["float64"], other))
