"""The last question: do the candidate's own kernels cause its answer?

Its kernels become no-ops and it is called once more, on inputs that it has never seen. An honest candidate breaks: it
returns garbage, raises, crashes or hangs. Only answers that are still within the tolerance convict, because they were
computed by something else.

One right answer may be luck. Where a problem gives zeros for most of its inputs (a ReLU of what is nearly always
negative), a buffer of zeros that no kernel has written to is right for these. So whoever is right is asked again, on
other inputs, until the reference's answers differ: who is right then, too, has not guessed.

Without a GPU a call can be silenced as such. On one, it is the *silent twin* that is called, whose kernels are silent
from birth. Most candidates need none: they are asked in the process that was timed (`silence`), where only an answer
that is wrong says anything.
"""

from __future__ import annotations

from itertools import cycle, islice

import torch

from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.outputs import is_right
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Match, secret_seed
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.problems.distributions import has_negative_weights
from kerneldojo.schema.evaluation import CAUSE_UNSHOWN

MOST_CALLS = 6
"""As often is asked who is right, if the reference's answers are all the same."""


def check_cause(match: Match, timeout: float, *, is_silent: bool = False) -> list[str]:
    """Rule `no_causal_kernel` if answers without own kernels are right.

    Args:
        match: a contestant whose kernels can be silenced, or (on CUDA) one that is silent from birth.
        timeout: seconds for a call; one that hangs without its kernels depends on them.
        is_silent: whether it is silent from birth. Its constructor misses its kernels then, too, and so does its
            context, where a call without them has broken it: an index that nobody wrote is anything.

    Returns:
        What is to be said of it: nothing, or `CAUSE_UNSHOWN`.

    Raises:
        Ruling: they are, and other inputs have other answers.
    """
    names = [name for name in match.conduct.distributions if not has_negative_weights(name)]
    before: list[torch.Tensor] | None = None
    for distribution in islice(cycle(names), MOST_CALLS):
        expected = _right_without(match, timeout, distribution, is_silent=is_silent)
        if expected is None:
            return []
        if before is not None and not _would_do(before, expected, match.conduct.reduction_length):
            raise exploit("no_causal_kernel", "with its own kernels replaced by no-ops, its answer was still right")
        before = [tensor.cpu() for tensor in expected.outputs["native"]]
        del expected  # On the device there may be no room for two.
    return [CAUSE_UNSHOWN]


def _right_without(match: Match, timeout: float, distribution: str, *, is_silent: bool) -> Expected | None:
    """What the reference answers to a call, if the contestant's answer without its kernels is right; else None."""
    birth = match.conceive("cause")
    try:
        match.construct("cause", birth)
    except Ruling:
        if is_silent:
            return None
        raise
    inputs = match.reference.draw("get_inputs", secret_seed(), distribution)
    seed = secret_seed()
    expected = match.reference.expect("cause", inputs, match.conduct.variants, seed)
    node = match.contestant.hosted.give(inputs)
    del inputs  # There may be no room for them beside two answers.
    try:
        answer = match.contestant.call("cause", node, seed, silenced=True, timeout=timeout)
    except Ruling:
        return None  # It broke without its kernels, as it should; how it broke does not matter.
    return expected if is_right(answer, expected, match.conduct.reduction_length) else None


def _would_do(before: list[torch.Tensor], expected: Expected, reduction_length: int) -> bool:
    """Whether the reference's answer to other inputs would be right."""
    native = expected.outputs["native"]
    if [one.shape for one in before] != [one.shape for one in native]:
        return False
    outputs = [one.to(other.device) for one, other in zip(before, native, strict=True)]
    return is_right(Answer(outputs, [{} for _ in outputs], None, [], [], 0.0), expected, reduction_length)


def no_own_kernel(where: str, *, training: bool = True) -> Ruling:
    """The ruling for a candidate that brought no kernel, or did not launch it in the calls that `where` names."""
    mode = "" if training else " (all in eval mode, for in training mode the reference's answers cannot be repeated)"
    return exploit("no_own_kernel", f"no kernel of the candidate's own ran in {where}{mode}")
