"""The episode as an environment: `reset` gives the first observation, `step` takes an answer and gives the next.

    environment = Environment(PlayConfig(device="model:h100"), judge=lambda job: judge(job.problem, job.candidate))
    observation = environment.reset(problem, seed=1)
    while not observation.done:
        observation = environment.step(my_model(observation.messages))

It holds one episode and nothing else. Many at once are the business of `kerneldojo.rollout`.
"""

from __future__ import annotations

from collections.abc import Callable

from kerneldojo.episodes.config import PlayConfig
from kerneldojo.episodes.render import Tokenizer
from kerneldojo.episodes.steps import answer_seed, first_episode, job_for, prompt, with_turn
from kerneldojo.schema import Answer, Episode, Evaluation, Frozen, Job, Message, Problem


class Observation(Frozen):
    """What an agent sees after `reset` or `step`."""

    messages: tuple[Message, ...]
    """The prompt of the next turn; empty once the episode has ended."""
    prompt_ids: tuple[int, ...] | None = None
    """The same as token ids, where the environment has a tokenizer."""
    reward: float | None = None
    """What the last answer earned; None after `reset`, and where it is masked (a fault of ours)."""
    done: bool = False
    """Whether the episode has ended."""
    finish: str = ""
    """Why it ended: `turns`, `budget` or `fault`."""
    turn: int = 0
    """Turns played."""
    feedback: str = ""
    """What the judge had to say on the last answer."""
    evaluation: Evaluation | None = None
    """The verdict on the last answer; None where nothing was judged."""
    seed: int = 0
    """Seed for sampling the next answer."""


class Environment:
    """Plays one episode at a time."""

    def __init__(
        self, config: PlayConfig, judge: Callable[[Job], Evaluation], *, tokenizer: Tokenizer | None = None
    ) -> None:
        """Play under `config`, with verdicts of `judge`; what it raises is raised by `step`, the turn unplayed."""
        self._config, self._judge, self._tokenizer = config, judge, tokenizer
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The episode so far.

        Raises:
            RuntimeError: `reset` was not called.
        """
        if self._episode is None:
            raise RuntimeError("call reset first: there is no episode yet")
        return self._episode

    def reset(self, problem: Problem, *, seed: int = 0, sample: int = 0, policy: str = "", id: str = "") -> Observation:
        """Begin an episode; the arguments are those of `first_episode`."""
        self._episode = first_episode(
            problem, self._config, sample=sample, seed=seed, policy=policy, id=id, tokenizer=self._tokenizer
        )
        return self._observation()

    def step(self, answer: Answer | str) -> Observation:
        """Judge an answer and go on to the next turn.

        Raises:
            RuntimeError: there is no episode, or it has ended.
        """
        if self.episode.finish:
            raise RuntimeError(f"the episode has ended ({self.episode.finish}): call reset")
        given = Answer(text=answer) if isinstance(answer, str) else answer
        job = job_for(self.episode, given)
        evaluation = None if job is None else self._judge(job)
        self._episode = with_turn(self.episode, given, evaluation, self._tokenizer)
        return self._observation()

    def _observation(self) -> Observation:
        episode = self.episode
        last = episode.turns[-1] if episode.turns else None
        messages, ids = ((), None) if episode.finish else prompt(episode, self._tokenizer)
        return Observation(
            messages=messages,
            prompt_ids=ids,
            reward=last.reward if last else None,
            done=bool(episode.finish),
            finish=episode.finish,
            turn=len(episode.turns),
            feedback=last.feedback if last else "",
            evaluation=last.evaluation if last else None,
            seed=answer_seed(episode),
        )
