"""A policy: whatever writes kernels. It is asked for one answer at a time, and many may be asked for at once."""

from __future__ import annotations

from typing import Any, Protocol

from kerneldojo.schema import Answer, Episode, Frozen, Message


class Request(Frozen):
    """What a policy is asked: the prompt in both forms, and how to sample."""

    episode: Episode
    """The episode so far; its number of turns is the index of the turn that is asked for."""
    messages: tuple[Message, ...]
    """The prompt as a chat: what a person would read."""
    prompt_ids: tuple[int, ...] | None = None
    """The same as token ids, where the run has a tokenizer; a policy that takes ids samples from exactly these."""
    max_tokens: int = 8192
    """Longest answer, in tokens."""
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    """Seed of this answer alone: equal requests with equal seeds give equal answers where the policy allows it."""


def tokenizer_of(policy: Policy) -> Any:
    """The tokenizer by which prompts become ids for a policy that samples from exactly these; None if it has none.

    Whoever plays episodes renders them with it, in a benchmark as in training: token in, token out.
    """
    return getattr(policy, "tokenizer", None)


class Policy(Protocol):
    """Writes kernels."""

    @property
    def name(self) -> str:
        """For reports, for example `openai:gpt-5` or `teacher:fused`."""
        ...

    @property
    def gives_ids(self) -> bool:
        """Whether answers carry prompt ids, answer ids and log-probabilities, so that RL can learn from them."""
        ...

    async def answer(self, request: Request) -> Answer:
        """Write one answer.

        Never raises for what a model or an endpoint does: after the retries it is allowed, the answer's `finish` is
        `failed` and its `error` says why.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and devices."""
        ...
