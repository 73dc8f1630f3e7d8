"""What travels on OpenEnv's wire: the frames of its web socket, and our actions, observations and state in them.

{"type": "reset", "data": {"problem": "softmax_rows", "seed": 1}}
{"type": "step", "data": {"answer": "... a fenced Python block ..."}}
{"type": "observation", "data": {"observation": {...}, "reward": 1.9, "done": false}}
{"type": "error", "data": {"message": "one line", "code": "VALIDATION_ERROR"}}
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from kerneldojo.episodes import PlayConfig, config_of, next_messages
from kerneldojo.episodes.prompts import fenced
from kerneldojo.schema import Episode, Frozen, Message, SourceLanguage

MAX_TEXT = 1 << 18
"""Longest answer, code or problem, in characters: so much of each turn is kept as long as the episode is played."""

ErrorCode = Literal[
    "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR", "CAPACITY_REACHED", "SESSION_ERROR"
]
"""OpenEnv's names for what can go wrong."""


class Refusal(Exception):
    """Why a frame or a request was not served, in one line."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code


class OpenEnvConfig(Frozen):
    """How the environment behaves that a service offers under OpenEnv's wire."""

    play: PlayConfig = PlayConfig()
    """How episodes are played: turns, prompts, device, protocol, reward. `reset` may ask for other `num_turns`, another
    `language` or `device`; all else is the operator's."""
    suites: tuple[str, ...] = ("katas",)
    """Problems to choose from, as `dojo bench --suite` names them. A client never names a folder of this machine."""
    size: Literal["small", "full"] | None = None
    """Size of katas and graphs; None for full ones where a GPU judges and small ones elsewhere."""
    max_turns: int = Field(default=16, ge=1)
    """Most turns that `reset` may ask for."""
    max_sessions: int = Field(default=512, ge=1)
    """Episodes under way at once, over web sockets and HTTP together."""
    idle_seconds: float = Field(default=900.0, gt=0)
    """A session of which nothing was heard for so long is closed."""


class Frame(Frozen):
    """One message of a client."""

    type: str = Field(max_length=64)
    data: dict[str, Any] = Field(default_factory=dict)


class ResetRequest(Frozen):
    """Which episode to begin. Without a problem the seed chooses one."""

    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    """Chooses the problem where none is named, and seeds the episode; drawn where it is absent."""
    episode_id: str | None = Field(default=None, min_length=1, max_length=255)
    """Name of the episode; drawn where it is absent."""
    suite: str | None = Field(default=None, max_length=255)
    """One of the suites that the service offers; absent for all of them."""
    problem: str | None = Field(default=None, max_length=255, pattern=r"^[\w.:@/+=,() -]+$")
    """Name of a problem (`softmax_rows`, or `katas/1/softmax_rows`), or a name for `source`."""
    source: str | None = Field(default=None, max_length=MAX_TEXT)
    """A problem of your own in KernelBench's format."""
    language: SourceLanguage | None = None
    """What kernels are to be written in."""
    device: str | None = Field(default=None, min_length=1, max_length=64)
    """The device that judges."""
    num_turns: int | None = Field(default=None, ge=1)
    """Turns of the episode."""


class Action(Frozen):
    """One turn: `answer`, the text that a model wrote, in which the code is looked for; or `code`, the source alone."""

    # Clients that know only one field to fill read it off `required`.
    model_config = ConfigDict(json_schema_extra={"required": ["answer"]})

    answer: str = Field(default="", max_length=MAX_TEXT)
    """What a model wrote: prose, and the whole source in one fenced Python block."""
    code: str = Field(default="", max_length=MAX_TEXT)
    """Instead of `answer`: the source and nothing else."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Whatever the client wants to say; not read."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if len(self.model_fields_set & {"answer", "code"}) != 1:
            raise ValueError("give either answer (what the model wrote) or code (the source alone)")
        return self

    @property
    def text(self) -> str:
        """What counts as written by the policy."""
        return self.answer if "answer" in self.model_fields_set else fenced(self.code)


class StepRequest(Frozen):
    """An action over HTTP."""

    action: Action
    timeout_s: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    """How long to wait for the verdict. After that 409: the same action again waits for the same verdict."""
    request_id: str | None = Field(default=None, max_length=255)
    """Names the step: asked again under the same name, the same observation is answered, and nothing is played."""


class EpisodeState(Frozen):
    """What OpenEnv calls the state."""

    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)
    problem: str = ""
    language: str = ""
    device: str = ""
    num_turns: int = 0
    seed: int | None = None
    """As given to `reset`, or drawn by it."""
    rewards: tuple[float | None, ...] = ()
    """Of the turns so far; null where one is masked."""
    finish: str = ""
    """Why the episode ended: `turns`, `budget` or `fault`; empty while it goes on."""


class KernelObservation(Frozen):
    """What the agent sees."""

    prompt: str = ""
    """What is new for the model to read: the task after `reset`, then feedback and what is asked next."""
    messages: tuple[Message, ...] = ()
    """The whole prompt of the next turn as a chat, with the earlier turns that it remembers; empty at the end."""
    feedback: str = ""
    """What the judge had to say on the last answer."""
    status: str = ""
    """The last verdict, or `not_parsed` where there was no code to judge; empty after `reset`."""
    correct: bool = False
    speedup: float | None = None
    """Null where nothing was timed."""
    coverage: float | None = None
    """Share of the device time in own kernels; null where unknown."""
    exploits: tuple[str, ...] = ()
    """Names of what the judge convicted the last answer of."""
    problem: str = ""
    turn: int = 0
    """Turns played."""
    num_turns: int = 0
    finish: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


class Reply(Frozen):
    """The answer to `reset` and `step`."""

    observation: KernelObservation
    reward: float | None = None
    """What the turn earned; null after `reset`, and where it is masked (a fault of ours): never score it as 0."""
    done: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Over HTTP `session_id`, which the next request has to bring."""


def reply_to(episode: Episode) -> Reply:
    """What an agent is told of the episode as it is."""
    last = episode.turns[-1] if episode.turns else None
    verdict = last.evaluation if last else None
    messages = () if episode.finish else next_messages(episode)
    feedback = last.feedback if last else ""
    observation = KernelObservation(
        prompt=messages[-1].content if messages else feedback,
        messages=messages,
        feedback=feedback,
        status=str(verdict.status) if verdict else "not_parsed" if last else "",
        correct=verdict is not None and verdict.correct,
        speedup=_finite(verdict.speedup) if verdict else None,
        coverage=_finite(verdict.coverage) if verdict else None,
        exploits=tuple(exploit.name for exploit in verdict.exploits) if verdict else (),
        problem=episode.problem.name,
        turn=len(episode.turns),
        num_turns=config_of(episode).num_turns,
        finish=episode.finish,
    )
    return Reply(observation=observation, reward=_finite(last.reward) if last else None, done=bool(episode.finish))


def as_text(value: Frozen | dict[str, Any]) -> str:
    """JSON in ASCII: a candidate's messages may hold halves of characters, which no encoding of text carries."""
    data = value.model_dump(mode="json") if isinstance(value, Frozen) else value
    return json.dumps(data, allow_nan=False)


def frame_text(type: str, value: Frozen) -> str:
    """A frame for the client."""
    return as_text({"type": type, "data": value.model_dump(mode="json")})


def error_text(refusal: Refusal) -> str:
    """A frame that says why nothing was done."""
    return as_text({"type": "error", "data": {"message": str(refusal), "code": refusal.code}})


def schemas() -> dict[str, Any]:
    """JSON schemas of action, observation and state, for `/schema`."""
    return {
        "action": Action.model_json_schema(),
        "observation": KernelObservation.model_json_schema(),
        "state": EpisodeState.model_json_schema(),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
