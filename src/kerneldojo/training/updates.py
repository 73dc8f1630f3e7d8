"""What a step teaches: from its samples to a change of the weights.

    log-probabilities before the update -> advantages, PRS, MRS (`algorithms.prepare`)
      -> the clipped loss, packed -> one step of the optimiser

Samples that older weights wrote (`RLConfig.staleness`) bring the trainer's log-probabilities under *those* weights with
them. MRS compares the engine with these, and each token weighs what `algorithms.staleness` says. Fresh samples are
scored by the same weights that wrote them, so that nothing of this shows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kerneldojo.algorithms import MismatchWarning, Prepared, kl_estimate, policy_loss, prepare
from kerneldojo.algorithms.staleness import stale_weights
from kerneldojo.episodes import opens_answer, seed_of
from kerneldojo.training.adapters import is_adapter
from kerneldojo.training.config import RLConfig
from kerneldojo.training.learner import Learner, open_learner
from kerneldojo.training.packing import Batch, Sample, sample_of_token, token_offsets
from kerneldojo.training.playing import Played
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.steps import PlanMarks, StepData, taught_samples, without_dull_groups
from kerneldojo.training.tokens import mark_id

Scores = Mapping[tuple[int, int], Tensor]
"""Log-probabilities of answers' tokens, by the episode's place and the turn."""


@dataclass(frozen=True)
class _Sampled:
    """What the trainer makes of a step's tokens under the weights that wrote them."""

    log_probs: Tensor
    """(T,)."""
    is_stale: Tensor
    """(T,) bool: whether these are not the weights of now."""
    num_stale: int
    """Samples of which that is true."""


@dataclass(frozen=True)
class _Update:
    """What became of one change of the weights."""

    loss: float
    taken: tuple[float, float] | None
    """Norm of the gradient and rate; None where loss or gradient is not finite and the weights stayed as they were."""
    sums: Tensor
    """(4,): tokens of this rank, those clipped, those clipped by the dual clip, and their k3 estimates of the KL."""


class Updates:
    """Changes the weights of a learner, step by step."""

    def __init__(self, config: RLConfig, learner: Learner) -> None:
        """Prepare to learn.

        Raises:
            ConfigError: `learning.hrd` with marks of plans that are no tokens.
        """
        self.config, self.learner, self.ranks = config, learner, learner.ranks
        self.num_skipped = 0
        """Steps in a row of which some loss or gradient was not finite."""
        self._plan_marks = self._find_plan_marks()
        self._reference = self._open_reference()

    def _find_plan_marks(self) -> PlanMarks | None:
        """The tokens that tell plan from code; None where nobody asks."""
        play = self.config.play
        if self.config.learning.hrd is None:
            return None
        opening, closing = self._mark("plan_open", play.plan_open), self._mark("plan_close", play.plan_close)
        said = [token for token in opens_answer(play, self.learner.tokenizer) if token in (opening, closing)]
        return PlanMarks(opening, closing, said[-1:] == [opening])

    def _mark(self, key: str, mark: str) -> int:
        found = mark_id(self.learner.tokenizer, mark)
        if found is None:
            raise ConfigError(f"play.{key}: {mark!r} is no single token of this tokenizer, as learning.hrd needs it")
        return found

    def _open_reference(self) -> Learner | None:
        """The policy that the KL penalty refers to, which is the one that the run began with.

        None where there is no penalty, or where that policy is under the adapters. It is not if the run began with
        adapters that had learned already: under those lies the model of before.
        """
        if self.config.learning.kl is None:
            return None
        if self.learner.adapter is not None and not is_adapter(self.config.model.path or ""):
            return None
        return open_learner(self.config.model, self.config.optimizer, self.ranks)

    def score_written(self, played: Played) -> float:
        """Note what the trainer makes of what was written, for the day when its weights have changed; the seconds."""
        start = time.perf_counter()
        new = {key: answer for key, answer in played.answers().items() if key not in played.scores}
        asked = {key: Sample(one.prompt_ids or (), one.answer_ids or ()) for key, one in new.items()}
        asked = {key: sample for key, sample in asked.items() if sample.prompt and sample.answer}
        if asked:
            samples = list(asked.values())
            batches = self._batches(samples, range(len(samples)))
            scores = self.learner.score(batches, token_offsets(samples)[-1], self.config.sampling.temperature)
            parts = scores.log_probs.split([len(sample.answer) for sample in samples])
            played.scores |= {key: part.clone() for key, part in zip(asked, parts, strict=True)}
        return time.perf_counter() - start

    def learn(self, data: StepData, step: int, scores: Scores) -> tuple[dict[str, Any], dict[str, float]]:
        """Change the weights by what the samples of a step say.

        Args:
            data: the samples.
            step: steps before this one.
            scores: of the samples that older weights wrote, under these (`score_written`, while they were in force).

        Returns:
            Numbers for the log, and durations.
        """
        config, start = self.config, time.perf_counter()
        if not data.samples:
            return {"skipped": "no samples"}, {}
        batches = self._batches(data.samples, range(len(data.samples)))
        before = self.learner.score(batches, data.num_tokens, config.sampling.temperature)
        reference = self._reference_log_probs(batches, data)
        sampled = _sampled(before.log_probs, data, scores)
        numbers: dict[str, Any] = {"entropy": float(before.entropy.double().mean())}
        prepared, told = self._prepare(data, sampled, step)
        numbers |= told
        if config.staleness:
            prepared, numbers["staleness"] = self._corrected(prepared, before.log_probs, sampled, data)
        middle = time.perf_counter()
        if reference is not None:
            numbers["kl_to_reference"] = float(kl_estimate(before.log_probs, reference, "k3").double().mean())
        numbers |= self._update(data, prepared, reference, step)
        return numbers, {"score": middle - start, "update": time.perf_counter() - middle}

    def _prepare(self, data: StepData, sampled: _Sampled, step: int) -> tuple[Prepared, dict[str, Any]]:
        """From rewards to the weight of each token, and what became of the samples."""
        config = self.config
        generator = torch.Generator().manual_seed(seed_of("prs", config.seed, str(step)))
        draws = torch.rand(len(data.samples), generator=generator, dtype=torch.float64)
        samples = data.columns(sampled.log_probs, draws, self._plan_marks)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MismatchWarning)
            prepared = prepare(samples, config.learning)
        num_dull = 0
        if config.filter_groups:
            prepared, num_dull = without_dull_groups(prepared, samples, config.learning)
        mismatch = (sampled.log_probs.double() - data.rollout_log_probs.double()).abs()
        numbers: dict[str, Any] = {
            "mismatch": {"mean": float(mismatch.mean()), "max": float(mismatch.max())},
            "samples": {**vars(prepared.report), "num_dull": num_dull},
        }
        if caught:
            numbers["warning"] = str(caught[-1].message)
        return prepared, numbers

    def _corrected(
        self, prepared: Prepared, before: Tensor, sampled: _Sampled, data: StepData
    ) -> tuple[Prepared, dict[str, float]]:
        """`prepared` for weights that have changed since: clipped around those of now, weighted for who sampled."""
        stale = stale_weights(before, sampled.log_probs, self.config.max_stale_weight)
        chosen = sampled.is_stale
        count = max(1, int(chosen.sum()))
        moved = kl_estimate(sampled.log_probs.double(), before.double(), "k3")
        numbers = {
            "samples": sampled.num_stale / len(data.samples),
            "ratio": float(stale.ratio[chosen].sum()) / count if sampled.num_stale else 1.0,
            "kl": float(moved[chosen].sum()) / count,
            "truncated": float(stale.truncated[chosen].sum()) / count,
        }
        return replace(prepared, old_log_probs=before, weights=prepared.weights * stale.weights), numbers

    def _update(self, data: StepData, prepared: Prepared, reference: Tensor | None, step: int) -> dict[str, Any]:
        """One or more changes of the weights, each from its part of the prompts.

        A part whose loss or gradient is not finite changes nothing; the others do all the same, and the log says both.
        """
        config = self.config
        taught = taught_samples(prepared, sample_of_token(data.samples))
        if prepared.skip_reason or not taught:
            return {"skipped": prepared.skip_reason or "all advantages are zero"}
        prompts = data.turns.prompt.tolist()
        parts = [
            [one for one in taught if prompts[one] % config.updates_per_step == number]
            for number in range(config.updates_per_step)
        ]
        results = [self._update_part(data, prepared, reference, step, part) for part in parts if part]
        applied = [one for one in results if one.taken is not None]
        num_skipped = len(results) - len(applied)
        self.num_skipped = self.num_skipped + 1 if num_skipped else 0
        numbers: dict[str, Any] = {"updates": {"applied": len(applied), "skipped": num_skipped}, "skipped": None}
        if num_skipped:
            share = f" in {num_skipped} of {len(results)} updates" if applied else ""
            numbers["skipped"] = f"loss or gradient is not finite{share}"
        taken = applied[-1].taken if applied else None
        if taken is None:
            return numbers | {"loss": results[-1].loss}
        sums = self.ranks.total(torch.stack([one.sums for one in applied]).sum(0)).tolist()
        count = max(1.0, sums[0])
        names = {"clipped": sums[1] / count, "dual_clipped": sums[2] / count, "kl": sums[3] / count}
        # Each part's loss is scaled as if it were the whole step's: their mean is what one update would have.
        loss = sum(one.loss for one in applied) / config.updates_per_step
        return {"loss": loss, "grad_norm": taken[0], "learning_rate": taken[1], **names, **numbers}

    def _update_part(
        self, data: StepData, prepared: Prepared, reference: Tensor | None, step: int, part: Sequence[int]
    ) -> _Update:
        """One change of the weights, from the samples `part`."""
        config = self.config
        sums = torch.zeros(4, dtype=torch.float64)

        def loss(batch: Batch, log_probs: Tensor) -> Tensor:
            tokens = batch.tokens.cpu()
            anchor = None if reference is None else reference[tokens]
            share = policy_loss(prepared, log_probs.cpu(), tokens, anchor)
            counts = (share.num_tokens, share.num_clipped, share.num_dual_clipped, share.sum_kl)
            sums.add_(torch.tensor(counts, dtype=torch.float64))
            return share.loss * config.updates_per_step

        value = self.learner.add_gradients(self._batches(data.samples, part), loss, config.sampling.temperature)
        return _Update(value, self.learner.step(step, step / config.steps, value), sums)

    def _batches(self, samples: Sequence[Sample], chosen: Sequence[int]) -> list[Batch]:
        packing = self.config.packing
        row_tokens, batch_tokens = packing.row_tokens, packing.micro_batch_tokens
        return self.learner.pack(samples, row_tokens, batch_tokens, chosen=chosen, any_order=True)

    def _reference_log_probs(self, batches: Sequence[Batch], data: StepData) -> Tensor | None:
        if self.config.learning.kl is None:
            return None
        temperature = self.config.sampling.temperature
        if self._reference is not None:
            return self._reference.score(batches, data.num_tokens, temperature).log_probs
        with self.learner.without_adapter():
            return self.learner.score(batches, data.num_tokens, temperature).log_probs


def _sampled(before: Tensor, data: StepData, scores: Scores) -> _Sampled:
    """`before`, (T,), but for the tokens that older weights wrote, which take their scores under these."""
    stale = [number for number, key in enumerate(data.keys) if key in scores]
    log_probs, is_stale = before.clone(), torch.zeros(len(before), dtype=torch.bool)
    offsets = token_offsets(data.samples)
    for number in stale:
        tokens = slice(offsets[number], offsets[number + 1])
        log_probs[tokens] = scores[data.keys[number]]
        is_stale[tokens] = True
    return _Sampled(log_probs, is_stale, len(stale))
