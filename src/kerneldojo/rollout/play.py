"""Many episodes at once: each asks the policy, has the answer judged, and goes on, none waiting for another.

    async def main():
        with LocalPool() as pool:
            return await play(problems, policy, from_executor(pool), PlayConfig(), folder=RunFolder("runs-out/one"))

What an episode samples depends on the run's seed, its id and the turn, not on what else is played or in which order. A
run can be killed and started again: it goes on where the folder ends. Equal answers are judged once a run. Faults of
ours are tried again a few times, then end the episode without a reward; it is continued by the next run of the folder.
A verdict that would come out the same again (the problem is invalid, the device is not made for the answer) ends the
episode without a reward too, for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field

from kerneldojo.episodes import (
    PlayConfig,
    Tokenizer,
    answer_seed,
    by_episode_name,
    config_of,
    first_episode,
    job_for,
    prompt,
    with_turn,
)
from kerneldojo.policies import Policy, Request
from kerneldojo.policies.policy import tokenizer_of
from kerneldojo.rollout.folder import Manifest, RunFolder, RunWriter
from kerneldojo.rollout.garbage import undisturbed
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.rollout.lock import RunError
from kerneldojo.rollout.progress import Display, display_for
from kerneldojo.rollout.together import all_of
from kerneldojo.rollout.verdicts import Verdicts
from kerneldojo.schema import Answer, Episode, Frozen, Problem


class RolloutConfig(Frozen):
    """How answers are drawn, how many at once, and what is done about faults of ours."""

    temperature: float = Field(default=1.0, ge=0)
    """0 for the likeliest token each time."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability that is sampled from; 1 in training, where log-probabilities are of what is drawn."""
    max_concurrent: int = Field(default=512, ge=1)
    """Episodes under way at once."""
    num_retries: int = Field(default=2, ge=0)
    """Further tries of one answer or one verdict, beyond those that policy and pool make by themselves."""
    retry_delay: float = Field(default=1.0, ge=0)
    """Seconds before the first of them; doubled before each further one."""


DEFAULT = RolloutConfig()


async def play(
    problems: Iterable[Problem],
    policy: Policy,
    judge: AsyncJudge,
    config: PlayConfig,
    *,
    num_samples: int = 1,
    seed: int = 0,
    folder: RunFolder | None = None,
    settings: dict[str, object] | None = None,
    opened_as: dict[str, str] | None = None,
    rollout: RolloutConfig = DEFAULT,
    tokenizer: Tokenizer | None = None,
    show_progress: bool | None = None,
) -> list[Episode]:
    """Play `num_samples` episodes of each problem, or what is missing of them in `folder`.

    Args:
        problems: their names (with suite and level) must differ.
        policy: writes the answers; it is not closed.
        judge: gives the verdicts.
        config: how episodes are played.
        num_samples: attempts at each problem.
        seed: of the run.
        folder: where everything is recorded; None keeps it in memory alone.
        settings: what else decides the outcome; a folder refuses to go on under others.
        opened_as: what decides the policy's answers beside its name; None where that is not known.
        rollout: how answers are drawn, and how many at once.
        tokenizer: renders prompts as ids and counts budgets exactly; None for the policy's own, if it has one.
        show_progress: a progress bar on standard error; None for wherever that is a terminal.

    Returns:
        All episodes, those finished earlier included, by problem and sample.

    Raises:
        RunError: the folder is in use, was begun with other settings, is damaged, or cannot be written.
        ValueError: two problems share a name, or the judge can never serve a job.
    """
    tokenizer = tokenizer if tokenizer is not None else tokenizer_of(policy)
    chosen = list(problems)
    hashes = {name: problem.hash for name, problem in by_episode_name(chosen).items()}
    episodes = [
        first_episode(problem, config, sample=sample, seed=seed, policy=policy.name, tokenizer=tokenizer)
        for problem in chosen
        for sample in range(num_samples)
    ]
    if folder is None:
        return await play_episodes(
            episodes, policy, judge, rollout=rollout, tokenizer=tokenizer, show_progress=show_progress
        )
    rules = config.model_dump(mode="json")
    if not config.allow_degenerate:
        del rules["allow_degenerate"]  # Folders that are older than the setting are continued.
    asked: dict[str, object] = {"play": rules, "num_samples": num_samples}
    asked["sampling"] = rollout.model_dump(include={"temperature", "top_p"})
    manifest = Manifest(
        settings={**asked, **(settings or {})},
        seed=seed,
        policy=policy.name,
        problems=hashes,
        opened_as=opened_as,
    )
    with folder.open(manifest) as run:
        earlier = set(run.finished)
        ended = await play_episodes(
            episodes, policy, judge, run=run, rollout=rollout, tokenizer=tokenizer, show_progress=show_progress
        )
    found = {episode.id: episode for episode in folder.episodes() if episode.id in earlier} if earlier else {}
    found.update((episode.id, episode) for episode in ended)
    return [found[episode.id] for episode in episodes]


async def play_episodes(
    episodes: Sequence[Episode],
    policy: Policy,
    judge: AsyncJudge,
    *,
    run: RunWriter | None = None,
    rollout: RolloutConfig = DEFAULT,
    tokenizer: Tokenizer | None = None,
    show_progress: bool | None = None,
    on_end: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play episodes to their end, each under its own settings; the arguments are those of `play`.

    Args:
        episodes: fresh or begun; those that have ended are returned as they are.
        policy: see `play`.
        judge: see `play`.
        run: where to record; episodes that it holds already are skipped, others go on after their turns in it.
        rollout: see `play`.
        tokenizer: see `play`.
        show_progress: see `play`.
        on_end: called with each episode that has ended, once it is on disk.

    Returns:
        The episodes that were played, in the order given.
    """
    tokenizer = tokenizer if tokenizer is not None else tokenizer_of(policy)
    waiting = [episode if run is None else run.resumed(episode) for episode in episodes]
    waiting = [episode for episode in waiting if run is None or episode.id not in run.finished]
    with display_for(len(episodes), len(episodes) - len(waiting), show_progress) as display:
        table = _Table(
            policy, Verdicts(judge, rollout.num_retries, rollout.retry_delay), run, rollout, tokenizer, display
        )
        table.on_end = on_end
        if run is not None:
            table.verdicts.learn(run.folder.episodes())
        table.verdicts.learn(waiting)
        with undisturbed():
            return await table.play(waiting)


@dataclass
class _Table:
    """One call of `play_episodes`: what all of its episodes share."""

    policy: Policy
    verdicts: Verdicts
    run: RunWriter | None
    rollout: RolloutConfig
    tokenizer: Tokenizer | None
    display: Display
    on_end: Callable[[Episode], None] | None = None

    async def play(self, episodes: Sequence[Episode]) -> list[Episode]:
        ended: dict[int, Episode] = {}
        waiting = iter(enumerate(episodes))

        async def worker() -> None:
            for number, episode in waiting:  # shared: each worker takes the next one
                ended[number] = await self._episode(episode)

        await all_of(worker() for _ in range(min(self.rollout.max_concurrent, len(episodes))))
        return [ended[number] for number in range(len(episodes))]

    async def _episode(self, episode: Episode) -> Episode:
        episode = _caught_up(episode, self.tokenizer)
        while not episode.finish:
            episode = await self._turn(episode)
        if self.run is not None:
            try:
                await asyncio.wrap_future(self.run.add_episode(episode))
            except OSError as error:
                raise RunError(f"{self.run.folder.path}: {error.strerror}") from None
        self.display.ended(episode)
        if self.on_end is not None:
            self.on_end(episode)
        return episode

    async def _turn(self, episode: Episode) -> Episode:
        answer = await self._answer(episode)
        job = job_for(episode, answer)
        evaluation = None if job is None else await self.verdicts.of(job)
        after = with_turn(episode, answer, evaluation, self.tokenizer)
        if self.run is not None and after.turns[-1].reward is not None:
            self.run.add_turn(after)
        self.display.played(after)
        return after

    async def _answer(self, episode: Episode) -> Answer:
        messages, ids = prompt(episode, self.tokenizer)
        request = Request(
            episode=episode,
            messages=messages,
            prompt_ids=ids,
            max_tokens=config_of(episode).max_answer_tokens,
            temperature=self.rollout.temperature,
            top_p=self.rollout.top_p,
            seed=answer_seed(episode),
        )
        delay = self.rollout.retry_delay
        for _ in range(self.rollout.num_retries):
            answer = await self.policy.answer(request)
            if answer.finish != "failed":
                return answer
            await asyncio.sleep(delay)
            delay *= 2
        return await self.policy.answer(request)


def _caught_up(episode: Episode, tokenizer: Tokenizer | None) -> Episode:
    """With its end, where the last turn on disk had ended it and the process was killed before it could say so."""
    if episode.finish or not episode.turns:
        return episode
    last = episode.turns[-1]
    before = episode.model_copy(update={"turns": episode.turns[:-1]})
    return episode.model_copy(update={"finish": with_turn(before, last.answer, last.evaluation, tokenizer).finish})
