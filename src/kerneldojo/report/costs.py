"""What a run has cost its policy: calls, tokens, seconds and dollars, and the verdicts that were asked for.

Only what is on record counts. An answer that was lost to a fault of ours and asked for again was paid for, too, and is
in the policy's own tally alone (`policies.endpoint.Tally`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kerneldojo.schema import Episode, Frozen
from kerneldojo.search.budget import Spent


class Cost(Frozen):
    """Totals; tokens are 0 where the policy does not count them, dollars where it has no prices."""

    calls: int = 0
    """Answers."""
    verdicts: int = 0
    """Answers that were given to the judge; equal ones share a verdict."""
    prompt_tokens: int = 0
    """Tokens of all prompts, each counted as often as it was sent."""
    answer_tokens: int = 0
    """Generated tokens."""
    seconds: float = 0.0
    """The policy's, summed over answers: many are written at once, so that the run took less."""
    dollars: float = 0.0
    """At the prices that the policy was configured with."""


def cost_of_episodes(episodes: Sequence[Episode]) -> Cost:
    """What the turns of a run have cost."""
    turns = [turn for episode in episodes for turn in episode.turns]
    used = [turn.answer.usage for turn in turns]
    return Cost(
        calls=len(turns),
        verdicts=sum(turn.evaluation is not None for turn in turns),
        prompt_tokens=sum(one.prompt_tokens for one in used),
        answer_tokens=sum(one.answer_tokens for one in used),
        seconds=sum(one.seconds for one in used),
        dollars=sum(one.dollars for one in used),
    )


def cost_of_searches(spent: Iterable[Spent]) -> Cost:
    """What searches have cost; the verdicts that confirmed their winners are not among them."""
    spent = list(spent)
    return Cost(
        calls=sum(one.calls for one in spent),
        verdicts=sum(one.verdicts for one in spent),
        prompt_tokens=sum(one.prompt_tokens for one in spent),
        answer_tokens=sum(one.tokens for one in spent),
        seconds=sum(one.policy_seconds for one in spent),
        dollars=sum(one.dollars for one in spent),
    )
