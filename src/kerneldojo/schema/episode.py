"""The nouns of play: a policy answers a prompt (a turn), reads the feedback, and answers again (an episode).

An episode is a complete record: from it alone, prompts can be rendered again, policies trained and reports drawn. Only
what was sampled is stored as token ids; training uses exactly these and never tokenizes an answer again.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from kerneldojo.schema.base import Frozen, WrittenText
from kerneldojo.schema.evaluation import Evaluation
from kerneldojo.schema.problem import Candidate, Problem


class Message(Frozen):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Frozen):
    """What one answer cost."""

    prompt_tokens: int = 0
    answer_tokens: int = 0
    seconds: float = 0.0
    """From the request to the last token."""
    dollars: float = 0.0
    """At the prices that the policy was configured with; 0 where it has none."""


class Answer(Frozen):
    """What a policy wrote in one turn."""

    text: WrittenText
    finish: Literal["stop", "length", "failed"] = "stop"
    """Why it ended: by itself, cut at the length limit, or because the policy failed (our fault, never scored)."""
    prompt_ids: tuple[int, ...] | None = None
    """Token ids of the prompt that was sampled from; None where the policy does not give any."""
    answer_ids: tuple[int, ...] | None = None
    """Token ids that were sampled, the end token included; None where the policy does not give any."""
    log_probs: tuple[float, ...] | None = None
    """Log-probability of each id of `answer_ids` under the distribution that it was sampled from, in nats."""
    version: int | None = None
    """Number of updates that the policy had seen when it wrote this; None for a policy that is not trained."""
    usage: Usage = Usage()
    error: WrittenText = ""
    """Where `finish` is `failed`: what went wrong, in one line."""

    @model_validator(mode="after")
    def _lengths_agree(self) -> Answer:
        if self.log_probs is not None and len(self.log_probs) != len(self.answer_ids or ()):
            raise ValueError("there must be one log-probability for each answer id")
        return self

    @property
    def is_trainable(self) -> bool:
        """Whether RL can learn from it: prompt ids, answer ids and log-probabilities are all there."""
        return self.prompt_ids is not None and self.answer_ids is not None and self.log_probs is not None


class Turn(Frozen):
    """One answer and what became of it."""

    index: int = Field(ge=0)
    """Counted from 0."""
    answer: Answer
    candidate: Candidate | None = None
    """The code found in the answer; None where there was none."""
    evaluation: Evaluation | None = None
    """The verdict; None where nothing was judged (no code in the answer, or the policy failed)."""
    feedback: str = ""
    """What the policy reads next."""
    reward: float | None = None
    """What the turn earned; None where it is masked (a fault of ours, or not to be judged), never a made-up zero."""
    plan_reward: float | None = None
    """Reward of the plan's tokens, under a scheme that tells them apart."""
    code_reward: float | None = None
    """Reward of the code's tokens, under a scheme that tells them apart."""

    @property
    def is_correct(self) -> bool:
        """Whether the judge passed it."""
        return self.evaluation is not None and self.evaluation.correct


class Episode(Frozen):
    """One attempt of one policy at one problem, turn by turn."""

    id: str
    """Unique within a run: by convention `problem name/sample`."""
    problem: Problem
    sample: int = 0
    """Which attempt at this problem."""
    language: Literal["triton", "cuda"] = "triton"
    device: str = ""
    """The device it is judged on, as asked for."""
    policy: str = ""
    """Name of the policy."""
    seed: int = 0
    """Seed of this episode's sampling."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """How prompts were rendered (`episodes.PlayConfig`, dumped): with it they can be rendered again."""
    turns: tuple[Turn, ...] = ()
    finish: Literal["", "turns", "budget", "refused", "fault", "cancelled"] = ""
    """Why it ended: all turns played, token budget used up, an answer that cannot be judged (`Status.is_refusal`), a
    fault of ours, which is tried again; empty while it goes on."""

    @model_validator(mode="after")
    def _turns_are_counted(self) -> Episode:
        if [turn.index for turn in self.turns] != list(range(len(self.turns))):
            raise ValueError("the turns of an episode are 0, 1, 2, ... without gaps")
        return self
