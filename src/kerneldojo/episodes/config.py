"""How episodes are played: what the prompt says, how many turns there are, what is remembered and what is judged.

A `PlayConfig` is dumped into `Episode.settings`, so that a stored episode carries everything that its prompts were made
of: rendered again years later, by the trainer or by a report, they come out the same.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from kerneldojo.rewards import DrKernelConfig, RewardConfig
from kerneldojo.schema import Episode, Settings, SourceLanguage


class Everything(Settings):
    """All earlier turns, each answer whole. Over the budget, the earliest turns leave first."""

    type: Literal["everything"] = "everything"


class Summaries(Settings):
    """Kevin's (arXiv 2507.11948): of each earlier turn the kernel, a summary of the reasoning, and the feedback.

    Chains of thought are dropped, and the worked example stands in the first prompt alone. Over the budget, the
    earliest turns leave first.
    """

    type: Literal["summaries"] = "summaries"
    max_summary_chars: int = Field(default=600, ge=0)
    """Longest summary of one turn's reasoning, in characters; it is cut at a word."""


class Best(Settings):
    """Dr. Kernel's test-time scaling (arXiv 2602.05885): the `window` best turns by reward, from an outside memory.

    The chosen turns stand in the order in which they were played. Of equal rewards the later turn is kept, so that a
    row of failures shows the latest ones. Over the budget, the turn with the lowest reward leaves first.
    """

    type: Literal["best"] = "best"
    window: int = Field(default=4, ge=1)
    """Turns in the prompt (the paper's w)."""
    keep_last: bool = False
    """Whether the last turn is always one of them, and is the last to leave. The paper ranks by reward alone."""


ContextConfig = Annotated[Everything | Summaries | Best, Field(discriminator="type")]
"""What of the earlier turns a prompt holds; `type` tells which."""


def parse_context(text: str) -> ContextConfig:
    """A context as a command line writes it: `everything`, `summaries[:CHARACTERS]` or `best[:TURNS]`.

    Raises:
        ValueError: it is none of them, in one line.
    """
    kind, colon, number = text.partition(":")
    is_number = number.isdecimal() and (int(number) > 0 or kind == "summaries")
    if text == "everything":
        return Everything()
    if kind == "summaries" and (is_number or not colon):
        return Summaries(max_summary_chars=int(number)) if colon else Summaries()
    if kind == "best" and (is_number or not colon):
        return Best(window=int(number)) if colon else Best()
    raise ValueError(f"context {text!r}: use everything, summaries[:CHARACTERS] or best[:TURNS], as in best:4")


class PlayConfig(Settings):
    """Everything that decides how an episode goes, but for the problem, the policy and the seeds."""

    language: SourceLanguage = "triton"
    """What kernels are to be written in."""
    device: str = "auto"
    """The device that judges, as asked for: `auto`, `cuda`, `cuda:N`, `cpu` or `model:GPU`."""
    gpu: str = ""
    """The GPU whose figures the prompt gives, for example `h200`; empty for the one that `device` names (`model:h100`),
    and for none where it names none, since a prompt must be the same on every machine."""
    num_turns: int = Field(default=3, ge=1)
    """Turns of an episode. A correct answer does not end it: the next turn is for a faster one."""
    style: Literal["full", "compact"] = "full"
    """`full` for language models; `compact` for small models of one's own: only what defines the problem."""
    one_shot: bool = True
    """Whether the full prompt shows a worked example in the language."""
    ask_plan: bool = False
    """Whether the full prompt asks for a plan between the delimiters before the code."""
    plan_open: str = Field(default="<plan>", min_length=1)
    """What opens a plan."""
    plan_close: str = Field(default="</plan>", min_length=1)
    """What closes it."""
    context: ContextConfig = Everything()
    """What of the earlier turns is in the prompt."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Hard limit of a prompt: earlier turns leave until it holds, the problem and one turn stay; if they do not fit the
    episode ends with `budget`. Exact with a tokenizer; without one, estimated at three bytes a token. None for none."""
    max_answer_tokens: int = Field(default=8192, ge=1)
    """Longest answer."""
    template: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the tokenizer's chat template, for example `enable_thinking = false` for Qwen3."""
    reward: RewardConfig = DrKernelConfig()
    """What a verdict earns."""
    protocol: Literal["quick", "standard", "strict"] = "standard"
    """How thoroughly answers are judged."""
    baseline: Literal["eager", "compile"] = "eager"
    """What the speedup is measured against."""
    precision: Literal["ieee", "tf32"] = "tf32"
    """The class of arithmetic that float32 problems allow."""
    judge_timeout: float | None = Field(default=None, gt=0)
    """Seconds for everything that a candidate does; None for the protocol's own."""
    allow_degenerate: bool = False
    """Judge problems that their audit refuses; the verdict says so."""

    @field_validator("gpu")
    @classmethod
    def _gpu_is_known(cls, name: str) -> str:
        if name:
            from kerneldojo.devices.specs import gpu

            gpu(name)
        return name

    @model_validator(mode="after")
    def _delimiters_differ(self) -> PlayConfig:
        if self.plan_open == self.plan_close:
            raise ValueError("plan_open and plan_close must differ")
        return self


def config_of(episode: Episode) -> PlayConfig:
    """The configuration that an episode is played under.

    Raises:
        pydantic.ValidationError: its settings are not those of this version.
    """
    for settings, config in tuple(
        _RECENT
    ):  # the episodes of a run share theirs, and comparing is cheaper than validating
        if settings == episode.settings:
            return config
    config = PlayConfig.model_validate(episode.settings)
    _RECENT.appendleft((deepcopy(episode.settings), config))
    return config


_RECENT: deque[tuple[dict[str, Any], PlayConfig]] = deque(maxlen=4)
