"""Rollouts for training: all episodes of a step, one turn at a time, so that every turn is one batch of the sampler.

    prompts of all live episodes -> sampler -> answers -> judge (each as soon as it is written) -> feedback -> next turn

A play stands still between two halves of a turn: answers are *written*, and being judged, or *settled*, and part of
their episodes. So two plays can be on their way in one thread, one being judged while the other is written (`ahead`).

Everything is determined by names and seeds: episodes are ordered by id, and each answer's seed follows from the run's
seed, the step, the episode and the turn. Whoever stops in the middle (Ctrl-C) loses nothing but the time: no weight has
changed yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kerneldojo.episodes import PlayConfig, answer_seed, first_episode, job_for, prompt, with_turn
from kerneldojo.episodes import episode_name as name_of
from kerneldojo.policies.answers import answer_of
from kerneldojo.policies.rows import Row, Sampled, Samples
from kerneldojo.schema import Answer, Episode, Evaluation, Problem
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.verdicts import Order, Verdicts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class Played:
    """The episodes of a step, by id, as far as they have been played."""

    episodes: list[Episode]
    config: PlayConfig
    temperature: float
    written: dict[int, Answer] = field(default_factory=dict[int, Answer])
    """Answers that are not settled yet, by the place of their episode."""
    orders: dict[int, Order] = field(default_factory=dict[int, Order])
    """What is being judged of these; on the first rank."""
    scores: dict[tuple[int, int], Tensor] = field(default_factory=dict[tuple[int, int], Tensor])
    """By place and turn: the trainer's log-probabilities under the weights that sampled, where those have changed
    by the time the answer is learned from."""
    num_asked: int = 0
    """Verdicts asked for."""
    num_judged: int = 0
    """Of these, orders that were placed, the others having been equal to one before."""

    @property
    def is_begun(self) -> bool:
        """Whether anything was written."""
        return bool(self.written) or any(episode.turns for episode in self.episodes)

    @property
    def is_over(self) -> bool:
        """Whether all episodes have ended."""
        return not self.written and all(episode.finish for episode in self.episodes)

    def answers(self) -> dict[tuple[int, int], Answer]:
        """Everything that was written, by place and turn, in this order."""
        found = {
            (place, turn.index): turn.answer for place, episode in enumerate(self.episodes) for turn in episode.turns
        }
        found |= {(place, len(self.episodes[place].turns)): answer for place, answer in self.written.items()}
        return dict(sorted(found.items()))

    def copy(self) -> Played:
        """The same moment, to go on from without changing this one."""
        return replace(
            self,
            episodes=list(self.episodes),
            written=dict(self.written),
            orders=dict(self.orders),
            scores=dict(self.scores),
        )

    def packed(self) -> dict[str, Any]:
        """Plain values for a checkpoint: what is being judged will be ordered again."""
        return {
            "episodes": [episode.model_dump_json(round_trip=True) for episode in self.episodes],
            "written": {place: answer.model_dump_json(round_trip=True) for place, answer in self.written.items()},
            "scores": dict(self.scores),
            "num_asked": self.num_asked,
            "num_judged": self.num_judged,
        }

    @classmethod
    def unpacked(cls, values: dict[str, Any], config: PlayConfig, temperature: float) -> Played:
        """What `packed` gave, without orders (`Player.order_again`)."""
        return cls(
            [Episode.model_validate_json(text) for text in values["episodes"]],
            config,
            temperature,
            written={place: Answer.model_validate_json(text) for place, text in values["written"].items()},
            scores=values["scores"],
            num_asked=values["num_asked"],
            num_judged=values["num_judged"],
        )


@dataclass
class Player:
    """Plays episodes with the model that is trained."""

    sampler: Samples
    tokenizer: PreTrainedTokenizerBase
    verdicts: Verdicts
    ranks: Ranks
    check: Callable[[], None] = field(default=lambda: None)
    """Called now and then; may raise to end the play."""
    version: int = 0
    """Updates that the sampled policy has seen."""
    judges_after_writing: bool = False
    """Whether nothing is judged before all answers of a turn are written; see `JudgeConfig.after_writing`."""
    seconds: dict[str, float] = field(default_factory=lambda: {"generate": 0.0, "wait": 0.0})
    """Spent so far, over all plays: writing answers, and waiting for verdicts with nothing else to do."""

    def begin(
        self,
        problems: Sequence[Problem],
        config: PlayConfig,
        *,
        samples: int,
        temperature: float,
        seed: int,
        label: str,
    ) -> Played:
        """`samples` episodes for each problem before their first turn. `label` is the beginning of their ids."""
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
        return Played(sorted(episodes, key=lambda episode: episode.id), config, temperature)

    def finish(self, played: Played) -> None:
        """Play to the end."""
        while not played.is_over:
            self.advance(played)

    def advance(self, played: Played) -> None:
        """Settle the turn that is being judged, if there is one, and write the next, if there is one."""
        self.settle(played)
        self.write(played)

    def write(self, played: Played) -> None:
        """Write the next answer of every episode that goes on; each is judged from the moment that it is there, unless
        the policy is in the judges' way."""
        start = time.perf_counter()
        episodes = played.episodes
        live = [place for place, episode in enumerate(episodes) if not episode.finish]
        if not live:
            return

        is_at_once = self.ranks.count == 1 and not self.judges_after_writing

        def ready(place: int, answer: Answer) -> None:
            if is_at_once:
                self._order(played, place, answer)

        mine = self.ranks.share(live)
        written = self._answers([(place, episodes[place]) for place in mine], played, ready)
        for part in self.ranks.gather({place: answer.model_dump_json() for place, answer in written.items()}):
            played.written.update({place: Answer.model_validate_json(text) for place, text in part.items()})
        self.seconds["generate"] += time.perf_counter() - start
        if self.judges_after_writing and self.ranks.device.type == "cuda":
            torch.cuda.empty_cache()  # What the policy does not need now, a candidate may.
        if self.ranks.is_first and not is_at_once:
            for place in live:
                self._order(played, place, played.written[place])

    def settle(self, played: Played) -> None:
        """Wait for the verdicts on what was written, and make it part of the episodes."""
        if not played.written:
            return
        start = time.perf_counter()
        verdicts = self._verdicts(played.orders)
        for place, answer in played.written.items():
            played.episodes[place] = with_turn(played.episodes[place], answer, verdicts.get(place), self.tokenizer)
        played.written, played.orders = {}, {}
        self.seconds["wait"] += time.perf_counter() - start

    def order_again(self, played: Played) -> None:
        """Have judged again what a process that is gone had ordered; the play's own counts know of it already."""
        if self.ranks.is_first:
            asked, judged = played.num_asked, played.num_judged
            for place, answer in played.written.items():
                self._order(played, place, answer)
            played.num_asked, played.num_judged = asked, judged

    def _order(self, played: Played, place: int, answer: Answer) -> None:
        job = job_for(played.episodes[place], answer)
        if job is not None:
            before = self.verdicts.num_judged
            played.orders[place] = self.verdicts.order(job)
            played.num_asked += 1
            played.num_judged += self.verdicts.num_judged - before

    def _verdicts(self, orders: dict[int, Order]) -> dict[int, Evaluation]:
        """Verdict by place; the first rank waits for them, and tells the others."""
        texts: dict[int, str] = {}
        if self.ranks.is_first:
            self.verdicts.wait(orders.values())
            results = {place: one.verdict for place, one in orders.items() if one.verdict is not None}
            if self.ranks.count == 1:
                return results
            texts = {place: one.model_dump_json(round_trip=True) for place, one in results.items()}
        texts = self.ranks.from_first(texts)
        return {place: Evaluation.model_validate_json(text) for place, text in texts.items()}

    def _answers(
        self, asked: list[tuple[int, Episode]], played: Played, ready: Callable[[int, Answer], None]
    ) -> dict[int, Answer]:
        """An answer to each episode's next prompt; `ready` hears of each as it ends."""
        rows: list[Row] = []
        limit, temperature = played.config.max_answer_tokens, played.temperature
        for place, episode in asked:
            _, ids = prompt(episode, self.tokenizer)
            assert ids is not None
            rows.append(self.sampler.row(ids, limit, temperature=temperature, seed=answer_seed(episode), tag=place))
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
            answers[row.tag] = answer_of(row, sampled, self.tokenizer, version=self.version)
            ready(row.tag, answers[row.tag])

        self.sampler.serve(take, give, expected=rows)  # also without rows: a copy's weights are gathered by all ranks
        return answers
