"""Whether equal inputs and weights give equal answers: if not, nobody can be held to them.

What matters beside them may be the random state, or what the instance was called with before. Timed calls are many, and
nobody counts them, so neither may.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kerneldojo.problems.agreement import same
from kerneldojo.problems.reference import Outcome, Reference

SAME = 1e-2
"""Two runs whose difference has an rms beyond this part of the output's are not the same (atomics differ far less)."""
ROUNDINGS = 64.0
"""What differs by fewer of them, in parts of the output's rms, does not depend on the random state."""
STATEFUL, RANDOM = "mindful of the calls before", "random"
"""What makes a problem not repeatable."""


def whatever_matters(reference: Reference, first: Outcome, seed: int, *, training: bool) -> str:
    """What answers depend on beside inputs and weights, if only a little: noise of a per cent makes ten tolerable.

    The instance of the first run, which must be the reference's last one, is called again under another random state.
    What differs a little then may be the order of atomic sums. Then it differs in a run like the first one, too.

    Args:
        reference: whose last run was the first one.
        first: what that gave.
        seed: the audit's, under which it ran.
        training: its mode.

    Returns:
        nothing, `STATEFUL` or `RANDOM`.
    """
    own = first.outputs["native"]

    def again(call_seed: int, *, anew: bool = True) -> Sequence[torch.Tensor]:
        outcome = reference.run(input_seed=seed + 1, init_seed=seed, call_seed=call_seed, training=training, anew=anew)
        return outcome.outputs["native"]

    roundings = [ROUNDINGS * torch.finfo(y.dtype).eps for y in own if y.is_floating_point()]
    close = min([SAME, *roundings])
    other = again(seed + 2, anew=False)
    if same(own, other, close):
        return ""
    is_far = not same(own, other, SAME)
    del other  # There may be no room for three of them.
    if not is_far and not all(map(torch.equal, own, again(seed + 1))):
        return ""
    return STATEFUL if same(own, again(seed + 2), close) else RANDOM
