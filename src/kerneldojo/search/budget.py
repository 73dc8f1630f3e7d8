"""What a search may spend: calls of the policy, verdicts of the judge, generated tokens, seconds.

All of them count for every strategy alike. A verdict is counted when it is asked for, an equal answer a second time
too: what a strategy wastes on repeats is its own waste. The verdicts of the final selection are not part of it, since
they are the price of an honest figure and the same for all.
"""

from __future__ import annotations

import math

from pydantic import Field

from kerneldojo.schema import Answer, Frozen


class Budget(Frozen):
    """Upper bounds; None for no bound. At least one of calls, verdicts and tokens must be given."""

    calls: int | None = Field(default=32, ge=1)
    """Answers asked of the policy."""
    verdicts: int | None = Field(default=None, ge=1)
    """Jobs given to the judge."""
    tokens: int | None = Field(default=None, ge=1)
    """Generated tokens. The answer that crosses the bound is still used; no further one is asked for. Answers under
    way are counted as long as the longest so far, and as the policy's limit before the first has come."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall time; what is under way when it passes is finished."""

    def model_post_init(self, _: object) -> None:
        """Refuse a search without an end."""
        if self.calls is None and self.verdicts is None and self.tokens is None and self.seconds is None:
            raise ValueError("a budget needs at least one bound: calls, verdicts, tokens or seconds")

    @property
    def words(self) -> str:
        """For people: `16 calls`, `8 verdicts, 20,000 tokens`."""
        bounds = {"calls": self.calls, "verdicts": self.verdicts, "tokens": self.tokens, "seconds": self.seconds}
        return ", ".join(f"{bound:,} {name if bound != 1 else name[:-1]}" for name, bound in bounds.items() if bound)


class Spent(Frozen):
    """What a search has spent so far."""

    calls: int = 0
    verdicts: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Wall time."""
    dollars: float = 0.0
    prompt_tokens: int = 0
    """Bounded by nothing, but paid for."""
    policy_seconds: float = 0.0
    """What answers took, summed: several are under way at once."""

    def after(self, answer: Answer, *, judged: bool, seconds: float) -> Spent:
        """With one more answer, `seconds` after the search began."""
        return Spent(
            calls=self.calls + 1,
            verdicts=self.verdicts + judged,
            tokens=self.tokens + answer.usage.answer_tokens,
            seconds=seconds,
            dollars=self.dollars + answer.usage.dollars,
            prompt_tokens=self.prompt_tokens + answer.usage.prompt_tokens,
            policy_seconds=self.policy_seconds + answer.usage.seconds,
        )

    def calls_left(self, budget: Budget, *, under_way: int, seconds: float, answer_tokens: int = 1) -> int:
        """Calls that may still be started while `under_way` others have not come back; each may need a verdict.

        `answer_tokens` is the estimated length of an answer: those under way have used up that much each, so that only
        the last one asked for can cross the bound.
        """
        if budget.seconds is not None and seconds >= budget.seconds:
            return 0
        bounds = [1 << 30]
        if budget.tokens is not None:
            bounds.append(math.ceil((budget.tokens - self.tokens) / max(answer_tokens, 1)) - under_way)
        if budget.calls is not None:
            bounds.append(budget.calls - self.calls - under_way)
        if budget.verdicts is not None:
            bounds.append(budget.verdicts - self.verdicts - under_way)
        return max(min(bounds), 0)
