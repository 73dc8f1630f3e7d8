"""Environments for TRL's `GRPOTrainer`: the model hands kernels in by a tool call and reads the verdict as its result.

    executor = ClientExecutor("http://127.0.0.1:8000")                  # or a LocalPool
    problems = load_suite("graphs:train:256", "small")
    GRPOTrainer(model, args=..., train_dataset=Dataset.from_list(rows(problems)),
                environment_factory=environment_factory(executor, problems, PlayConfig(device="model:h100")))

TRL makes one environment a rollout, resets it with the row's columns, offers its public methods as tools and asks for
the reward. An episode is one conversation, so `PlayConfig.context` and `max_prompt_tokens` are not used; its reward is
one number, see `credit`. TRL 1.16 runs the tools of a batch one after another, so the last submission of a rollout,
whose verdict nobody reads before the reward is due, is not waited for: with `num_turns = 1` all are judged at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial

from kerneldojo.episodes import (
    Everything,
    PlayConfig,
    by_episode_name,
    episode_name,
    first_episode,
    job_for,
    next_messages,
    with_turn,
)
from kerneldojo.episodes.prompts import fenced
from kerneldojo.integrations.credit import Credit, episode_reward
from kerneldojo.pool.executor import Executor
from kerneldojo.schema import Answer, Episode, Evaluation, Problem

TOOL = (
    "Do not write the block into your answer here: call the tool `submit_kernel` with the source instead. It tells you "
    "what the judge found. You may call it {count}."
)


def rows(problems: Iterable[Problem]) -> list[dict[str, object]]:
    """Rows of a data set, one a problem: an empty user message, which `reset` fills, and the problem's name."""
    return [{"prompt": [{"role": "user", "content": ""}], "problem": episode_name(problem)} for problem in problems]


def environment_factory(
    executor: Executor, problems: Iterable[Problem], play: PlayConfig | None = None, *, credit: Credit = "best"
) -> Callable[[], KernelEnvironment]:
    """What `GRPOTrainer` takes as `environment_factory`.

    Args:
        executor: judges; shared by all environments, and closed by whoever opened it.
        problems: what rows may name in their column `problem`.
        play: how episodes are played.
        credit: which of the turns' rewards is the rollout's.

    Raises:
        ValueError: two problems share suite, level and name.
    """
    shelf = by_episode_name(problems)
    unbounded = (play or PlayConfig()).model_copy(update={"context": Everything(), "max_prompt_tokens": None})
    return partial(KernelEnvironment, executor, shelf, unbounded, credit)


class KernelEnvironment:
    """One rollout. Every public method but `reset` and `get_reward` is a tool of the model."""

    def __init__(self, executor: Executor, problems: Mapping[str, Problem], play: PlayConfig, credit: Credit) -> None:
        self._executor, self._problems, self._play = executor, problems, play
        self._credit: Credit = credit
        self._episode: Episode | None = None
        self._waiting: tuple[Answer, Future[Evaluation]] | None = None
        self._error: Exception | None = None

    def reset(self, problem: str, **_row: object) -> str:
        """Begin an episode with the problem that the row names; the task is appended to the row's last message.

        Raises:
            ValueError: there is no such problem.
        """
        if problem not in self._problems:
            raise ValueError(f"the data set names a problem that the environment was not given: {problem!r}")
        self._episode = first_episode(self._problems[problem], self._play, policy="trl")
        self._waiting = self._error = None
        return f"{next_messages(self._episode)[0].content}\n\n{TOOL.format(count=_times(self._play.num_turns))}"

    def submit_kernel(self, code: str) -> str:
        """Submit GPU kernels to be compiled, checked for correctness and timed.

        Args:
            code: The complete Python source of the answer, imports included, which defines the class `ModelNew`.

        Returns:
            What the judge found: an error, or how fast the kernels are and what to improve.
        """
        if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("code must be text")
        episode = self._begun()
        if episode.finish or self._waiting is not None:
            return "You have no submissions left; this one was not looked at."
        answer = Answer(text=fenced(code))
        job = job_for(episode, answer)
        if job is None:
            return self._played(answer, None)
        try:
            verdict = self._executor.submit(job)
        except Exception as error:
            # TRL shows to the model what a tool raises; a fault of ours is no business of the model's.
            self._error = error
            raise
        if len(episode.turns) + 1 == self._play.num_turns:
            self._waiting = (answer, verdict)
            return "Submitted. You have no submissions left."
        return self._played(answer, verdict.result())

    def get_reward(self) -> float | None:
        """The rollout's reward; None, which TRL masks, after a fault of ours.

        Raises:
            Exception: what the executor raised when a job was submitted.
        """
        if self._error is not None:
            raise self._error
        if self._waiting is not None:
            (answer, verdict), self._waiting = self._waiting, None
            self._played(answer, verdict.result())
        return episode_reward(self._begun(), self._credit)

    def _begun(self) -> Episode:
        if self._episode is None:
            raise RuntimeError("call reset first: there is no episode yet")
        return self._episode

    def _played(self, answer: Answer, verdict: Evaluation | None) -> str:
        self._episode = with_turn(self._begun(), answer, verdict)
        left = 0 if self._episode.finish else self._play.num_turns - len(self._episode.turns)
        return (
            f"{self._episode.turns[-1].feedback}\n\nYou may submit {_times(left)} more."
            if left
            else "That was the last."
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
