"""Rollouts for training: all episodes of a step, one turn at a time, so that every turn is one batch of the sampler.

    prompts of all live episodes -> sampler -> answers -> judge (each as soon as it is written) -> feedback -> next turn

Everything is determined by names and seeds: episodes are ordered by id, and each answer's seed follows from the run's
seed, the step, the episode and the turn. Whoever stops in the middle (Ctrl-C) loses nothing but the time: no weight has
changed yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kerneldojo.episodes import PlayConfig, answer_seed, first_episode, job_for, prompt, with_turn
from kerneldojo.episodes import episode_name as name_of
from kerneldojo.policies.sampler import Row, Sampled, Sampler
from kerneldojo.schema import Answer, Episode, Evaluation, Problem, Usage
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.verdicts import Verdicts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class Played:
    """The episodes of a step, by id, and where the time went."""

    episodes: list[Episode]
    generate_s: float = 0.0
    judge_s: float = 0.0
    """Seconds of waiting for verdicts after the last answer of a turn was written."""
    num_asked: int = 0
    num_judged: int = 0
    num_faults: int = 0


@dataclass
class Player:
    """Plays episodes with a local model."""

    sampler: Sampler
    tokenizer: PreTrainedTokenizerBase
    verdicts: Verdicts
    ranks: Ranks
    check: Callable[[], None] = field(default=lambda: None)
    """Called now and then; may raise to end the play."""
    version: int = 0
    """Updates that the sampled policy has seen."""

    def play(
        self,
        problems: Sequence[Problem],
        config: PlayConfig,
        *,
        samples: int,
        temperature: float,
        seed: int,
        label: str,
    ) -> Played:
        """Play `samples` episodes for each problem to their end. `label` is the beginning of their ids."""
        episodes = [
            first_episode(
                problem,
                config,
                sample=sample,
                seed=seed,
                policy="learner",
                id=f"{label}/{place:03d}/{name_of(problem)}/{sample:03d}",
                tokenizer=self.tokenizer,
            )
            for place, problem in enumerate(problems)
            for sample in range(samples)
        ]
        played = Played(sorted(episodes, key=lambda episode: episode.id))
        before = (self.verdicts.num_asked, self.verdicts.num_judged, self.verdicts.num_faults)
        while live := [place for place, episode in enumerate(played.episodes) if not episode.finish]:
            self._turn(played, live, config, temperature)
        after = (self.verdicts.num_asked, self.verdicts.num_judged, self.verdicts.num_faults)
        played.num_asked, played.num_judged, played.num_faults = (b - a for a, b in zip(before, after, strict=True))
        return played

    def _turn(self, played: Played, live: list[int], config: PlayConfig, temperature: float) -> None:
        """One turn of all live episodes."""
        start = time.perf_counter()
        asked = [played.episodes[place] for place in live]
        mine = self.ranks.share(range(len(asked)))
        orders: dict[int, str] = {}

        def ready(index: int, answer: Answer) -> None:
            if self.ranks.count == 1:  # judged while the others are still being written
                self._order(asked[index], answer, index, orders)

        written = self._answers([(index, asked[index]) for index in mine], config, temperature, ready)
        answers: dict[int, Answer] = {}
        for part in self.ranks.gather({index: answer.model_dump_json() for index, answer in written.items()}):
            answers.update({index: Answer.model_validate_json(text) for index, text in part.items()})
        middle = time.perf_counter()
        if self.ranks.is_first and self.ranks.count > 1:
            for index, episode in enumerate(asked):
                self._order(episode, answers[index], index, orders)
        verdicts = self._verdicts(orders)
        for index, place in enumerate(live):
            episode, answer = asked[index], answers[index]
            played.episodes[place] = with_turn(episode, answer, verdicts.get(index), self.tokenizer)
        played.generate_s += middle - start
        played.judge_s += time.perf_counter() - middle

    def _order(self, episode: Episode, answer: Answer, index: int, orders: dict[int, str]) -> None:
        job = job_for(episode, answer)
        if job is not None:
            orders[index] = self.verdicts.order(job)

    def _verdicts(self, orders: dict[int, str]) -> dict[int, Evaluation]:
        """Verdict by index; the first rank waits for them, and tells the others."""
        texts: dict[int, str] = {}
        if self.ranks.is_first:
            found = self.verdicts.wait(orders.values())
            results = {index: found[one] for index, one in orders.items()}
            if self.ranks.count == 1:
                return results
            texts = {index: one.model_dump_json(round_trip=True) for index, one in results.items()}
        texts = self.ranks.from_first(texts)
        return {index: Evaluation.model_validate_json(text) for index, text in texts.items()}

    def _answers(
        self,
        asked: list[tuple[int, Episode]],
        config: PlayConfig,
        temperature: float,
        ready: Callable[[int, Answer], None],
    ) -> dict[int, Answer]:
        """An answer to each episode's next prompt; `ready` hears of each as it ends."""
        rows: list[Row] = []
        for index, episode in asked:
            _, ids = prompt(episode, self.tokenizer)
            assert ids is not None
            limit = config.max_answer_tokens
            rows.append(self.sampler.row(ids, limit, temperature=temperature, seed=answer_seed(episode), tag=index))
        # Longest first keeps the batch full to the end; equal prompts side by side are read once.
        waiting = deque(sorted(rows, key=lambda row: (-len(row.prompt) - row.max_tokens, row.prompt)))
        answers: dict[int, Answer] = {}
        refill = self.sampler.config.refill * self.sampler.config.max_rows

        def take(free: int, idle: bool) -> list[Row] | None:
            self.check()
            if not waiting:
                return None
            if not idle and free < min(len(waiting), refill):
                return []
            return [waiting.popleft() for _ in range(min(free, len(waiting)))]

        def give(row: Row, sampled: Sampled) -> None:
            answers[row.tag] = self._answer(row, sampled)
            ready(row.tag, answers[row.tag])

        self.sampler.serve(take, give, expected=rows)  # also without rows: a copy's weights are gathered by all ranks
        return answers

    def _answer(self, row: Row, sampled: Sampled) -> Answer:
        spoken = sampled.ids[:-1] if sampled.finish == "stop" else sampled.ids
        decode: Any = self.tokenizer.decode
        return Answer(
            text=str(decode(list(spoken), skip_special_tokens=True)),
            finish=sampled.finish,
            prompt_ids=row.prompt,
            answer_ids=sampled.ids,
            log_probs=sampled.log_probs,
            version=self.version,
            usage=Usage(prompt_tokens=len(row.prompt), answer_tokens=len(sampled.ids)),
        )
