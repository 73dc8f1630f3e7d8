"""The last question: do the candidate's own kernels cause its answer?

Its kernels become no-ops and it is called once more, on inputs that it has never seen. An honest candidate breaks: it
returns garbage, raises, crashes or hangs. Only an answer that is still within the tolerance convicts, because it was
computed by something else.

Without a GPU a call can be silenced as such. On one, it is the *silent twin* that is called, whose kernels are silent
from birth. Most candidates need none: they are asked in the process that was timed (`silence`), where only an answer
that is wrong says anything.
"""

from __future__ import annotations

from kerneldojo.judging.outputs import is_right
from kerneldojo.judging.rounds import Match, secret_seed
from kerneldojo.judging.ruling import Ruling, exploit


def check_cause(match: Match, timeout: float, *, is_silent: bool = False) -> None:
    """Rule `no_causal_kernel` if an answer without own kernels is right.

    Args:
        match: a contestant whose kernels can be silenced, or (on CUDA) one that is silent from birth.
        timeout: seconds; one that hangs without its kernels depends on them.
        is_silent: whether it is silent from birth. Its constructor misses its kernels then, too, and so does its
            context, where a call without them has broken it: an index that nobody wrote is anything.
    """
    birth = match.conceive("cause")
    try:
        match.construct("cause", birth)
    except Ruling:
        if is_silent:
            return
        raise
    inputs = match.reference.draw("get_inputs", secret_seed(), match.conduct.distributions[0])
    seed = secret_seed()
    expected = match.reference.expect("cause", inputs, match.conduct.variants, seed)
    node = match.contestant.hosted.give(inputs)
    del inputs  # There may be no room for them beside two answers.
    try:
        answer = match.contestant.call("cause", node, seed, silenced=True, timeout=timeout)
    except Ruling:
        return  # It broke without its kernels, as it should; how it broke does not matter.
    if is_right(answer, expected, match.conduct.reduction_length):
        raise exploit("no_causal_kernel", "with its own kernels replaced by no-ops, its answer was still right")


def no_own_kernel(where: str) -> Ruling:
    """The ruling for a candidate that brought no kernel, or did not launch it in the calls that `where` names."""
    return exploit("no_own_kernel", f"no kernel of the candidate's own ran in {where}")
