"""From played episodes to what a step learns from: token ids, columns for the algorithms, and numbers for the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kerneldojo.algorithms import (
    Groups,
    LearningConfig,
    Prepared,
    Samples,
    Turns,
    meaningful_turns,
    plan_tokens,
    token_weights,
)
from kerneldojo.episodes import seed_of
from kerneldojo.schema import Episode, Status, Turn
from kerneldojo.training.packing import Sample, sample_of_token

ROUNDING = 1e-6
"""Advantages up to this are zero: what is left of equal returns when their mean is taken away."""


class PlanMarks(NamedTuple):
    """What tells a plan from code in an answer's tokens."""

    opening: int
    closing: int
    starts_open: bool
    """Whether the chat template writes the opening one before the answer (models that always think)."""


@dataclass(frozen=True)
class StepData:
    """The n samples of a step in the order of their episodes' ids, one a turn, and the columns that go with them."""

    samples: list[Sample]
    keys: list[tuple[int, int]]
    """Of each sample: the place of its episode among those given, and the turn."""
    turns: Turns
    rewards: Tensor
    """(n,): NaN where masked."""
    plan_rewards: Tensor | None
    """(n,): where the scheme tells plan from code."""
    rollout_log_probs: Tensor
    """(T,): as the sampler gave them."""
    correct: Tensor
    """(n,) bool."""
    coverage: Tensor
    """(n,): NaN where unknown."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.rollout_log_probs)

    def columns(self, log_probs: Tensor, draws: Tensor, plan_marks: PlanMarks | None) -> Samples:
        """The columns for `algorithms.prepare`.

        `log_probs`: (T,), the trainer's, before the update. `plan_marks`: with HRD, the tokens around a plan.
        """
        owner = sample_of_token(self.samples)
        is_plan = None
        if plan_marks is not None:
            ids = torch.tensor([token for sample in self.samples for token in sample.answer], dtype=torch.int64)
            is_plan = plan_tokens(ids, owner, *plan_marks)
        return Samples(
            turns=self.turns,
            rewards=self.rewards,
            sample=owner,
            log_probs=log_probs,
            rollout_log_probs=self.rollout_log_probs,
            correct=self.correct,
            coverage=self.coverage,
            draws=draws,
            is_plan=is_plan,
            plan_rewards=None if plan_marks is None else self.plan_rewards,
        )


def step_data(episodes: Sequence[Episode], *, hrd: bool) -> StepData:
    """One sample for each turn that was sampled, in the order given. `hrd`: rewards of plan and code apart.

    A turn without token ids (its policy failed before the first) makes its trajectory's reward unknown: the whole
    trajectory is left out here, as one with a masked reward is by the algorithms.
    """
    rows: list[tuple[int, int, Turn]] = []
    prompts: dict[str, int] = {}
    for number, episode in enumerate(episodes):
        if all(turn.answer.is_trainable and turn.answer.answer_ids for turn in episode.turns):
            place = prompts.setdefault(episode.id.rpartition("/")[0], len(prompts))
            rows.extend((place, number, turn) for turn in episode.turns)
    turns = Turns.of(
        [place for place, _, _ in rows],
        [number for _, number, _ in rows],
        [turn.index for _, _, turn in rows],
        [turn.reward is not None for _, _, turn in rows],
    )
    played = [turn for _, _, turn in rows]
    use_parts = hrd and any(turn.code_reward is not None for turn in played)
    chosen = [turn.code_reward if use_parts and turn.reward is not None else turn.reward for turn in played]
    plans = [turn.plan_reward if turn.reward is not None else None for turn in played]
    logs = [value for turn in played for value in turn.answer.log_probs or ()]
    return StepData(
        samples=[Sample(turn.answer.prompt_ids or (), turn.answer.answer_ids or ()) for turn in played],
        keys=[(number, turn.index) for _, number, turn in rows],
        turns=turns,
        rewards=_column(chosen),
        plan_rewards=_column(plans) if use_parts else None,
        rollout_log_probs=torch.tensor(logs, dtype=torch.float32),
        correct=torch.tensor([turn.is_correct for turn in played], dtype=torch.bool),
        coverage=_column([turn.evaluation.coverage if turn.evaluation else None for turn in played]),
    )


def thin(episodes: Sequence[Episode], share: float, seed: int) -> list[Episode]:
    """Each episode up to a turn that is drawn: before every one, the first included, it ends with probability `share`.

    What is cut off is absent: no group counts it, and returns of earlier turns end before it. Whether a turn stays
    depends on neither answers nor rewards, only on `seed`, the episode's id and the turn.
    """
    kept: list[Episode] = []
    for episode in episodes:
        draws = np.random.default_rng(seed_of("drop", seed, episode.id)).random(len(episode.turns))
        end = next((turn for turn, draw in enumerate(draws) if draw < share), len(draws))
        kept.append(episode.model_copy(update={"turns": episode.turns[:end]}) if end < len(draws) else episode)
    return kept


def without_dull_groups(prepared: Prepared, samples: Samples, config: LearningConfig) -> tuple[Prepared, int]:
    """`prepared` without (prompt, turn) groups that teach nothing; and how many samples left.

    A group is dull if the advantages of all tokens of all its members are zero, whatever they come from: the returns of
    plan or code, compared within the group or (Kevin) with all turns of the prompt. Returns alone do not say: those of
    the code may be equal where plans differ, those of a turn where turns do. Without dull groups the loss is divided by
    the number of samples that can teach something (DAPO's dynamic sampling, but for the drawing of others in their
    place).
    """
    turns = samples.turns.without_faulty_trajectories()
    counted = turns.valid
    if config.drop_meaningless_turns:
        counted = counted & meaningful_turns(samples.rewards, turns)
    teaches = torch.zeros_like(counted)
    teaches[samples.sample[prepared.advantages.abs() > ROUNDING]] = True
    groups = Groups.by(turns.prompt, turns.turn, members=counted)
    lively = counted & (groups.total(teaches.long()) > 0)
    kept = prepared.kept & lively
    weights = token_weights(samples.sample, lively, kept, config.aggregation)
    return replace(prepared, weights=weights, kept=kept), int((counted & ~lively).sum())


def taught_samples(prepared: Prepared, owner: Tensor) -> list[int]:
    """The samples that a forward pass is needed for: those with a token that counts."""
    counts = prepared.weights != 0
    if prepared.config.kl is None:
        counts = counts & (prepared.advantages != 0)
    return owner[counts].unique().tolist()


def summary(episodes: Sequence[Episode]) -> dict[str, float | int]:
    """What became of all turns: means and shares over those that were judged on their own account."""
    turns = [turn for episode in episodes for turn in episode.turns]
    scored = [turn for turn in turns if turn.reward is not None]
    evaluations = [turn.evaluation for turn in scored]
    count = max(1, len(scored))
    speedups = [one.speedup for one in evaluations if one is not None and one.correct and one.speedup is not None]
    covers = [one.coverage for one in evaluations if one is not None and one.correct and one.coverage is not None]
    return {
        "reward": sum(turn.reward or 0.0 for turn in scored) / count,
        "correct": sum(turn.is_correct for turn in scored) / count,
        "fast_1": sum(speedup > 1 for speedup in speedups) / count,
        "fast_1.2": sum(speedup > 1.2 for speedup in speedups) / count,
        "exploits": sum(one is not None and one.status is Status.EXPLOIT for one in evaluations) / count,
        "coverage": sum(covers) / max(1, len(covers)),
        "parsed": sum(turn.candidate is not None for turn in scored) / count,
        "cut": sum(turn.answer.finish == "length" for turn in scored) / count,
        "answer_tokens": sum(len(turn.answer.answer_ids or ()) for turn in turns) / max(1, len(turns)),
        "prompt_tokens": sum(len(turn.answer.prompt_ids or ()) for turn in turns) / max(1, len(turns)),
        "num_samples": len(turns),
        "num_masked": len(turns) - len(scored),
    }


def by_turn(episodes: Sequence[Episode]) -> dict[str, dict[str, float | int]]:
    """`summary` of each turn apart, where there are several."""
    longest = max((len(episode.turns) for episode in episodes), default=0)
    if longest < 2:
        return {}
    found: dict[str, dict[str, float | int]] = {}
    for index in range(longest):
        alone = [one.model_copy(update={"turns": one.turns[index : index + 1]}) for one in episodes]
        whole = summary(alone)
        found[str(index)] = {name: whole[name] for name in ("reward", "correct", "fast_1.2", "exploits", "num_samples")}
    return found


def _column(values: Sequence[float | None]) -> Tensor:
    return torch.tensor([float("nan") if value is None else value for value in values], dtype=torch.float64)
