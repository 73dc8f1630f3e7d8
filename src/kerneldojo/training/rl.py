"""RL: play, judge, compare, learn; the loop of the three papers, to be read from top to bottom.

    problems of the step -> episodes, turn by turn (`playing`) -> rewards by the judge
      -> log-probabilities before the update -> advantages, PRS, MRS (`algorithms.prepare`)
      -> the clipped loss, packed -> one step of the optimiser -> journal, evaluation, checkpoint

What a step does depends on the weights, the optimiser and the step's number, on nothing else: problems, seeds of
answers and draws of PRS all follow from (run seed, step). So a run that was killed goes on from its last checkpoint as
if it had not been, and its journal has every step once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kerneldojo.algorithms import MismatchWarning, Prepared, kl_estimate, policy_loss, prepare
from kerneldojo.episodes import seed_of
from kerneldojo.pool import Executor
from kerneldojo.schema import Episode, Problem
from kerneldojo.training.checkpoints import CheckpointError, Checkpoints
from kerneldojo.training.config import RLConfig
from kerneldojo.training.display import Display
from kerneldojo.training.journal import Journal
from kerneldojo.training.learner import Learner, open_learner
from kerneldojo.training.models import num_parameters
from kerneldojo.training.packing import Batch, make_batches, sample_of_token
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.playing import Played, Player
from kerneldojo.training.runs import Outcome, open_run, point, replace_text
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.steps import StepData, by_turn, step_data, summary, taught_samples, without_dull_groups
from kerneldojo.training.stopping import Stopped, StopSwitch
from kerneldojo.training.tokens import plan_ids
from kerneldojo.training.verdicts import Verdicts


def train_rl(config: RLConfig, executor: Executor, ranks: Ranks, *, resume: bool = False, show: bool = True) -> Outcome:
    """Train as `config` says, judged by `executor`; `output/model` has the newest weights, `output/best` the best.

    Raises:
        ConfigError: configuration, model, problems and folder do not go together, in one line.
    """
    problems, held_out = _problems(config, config.problems, "problems"), _held_out(config)
    checkpoints, latest = open_run(config, config.output, ranks, resume=resume, keep=config.keep_checkpoints)
    learner = open_learner(
        config.model, config.optimizer, ranks, seed=config.seed, checkpoint=latest, sampler=config.sampling.engine
    )
    run = _Training(config, learner, executor, problems, held_out, checkpoints)
    return run.run(latest, show=show and ranks.is_first)


def _problems(config: RLConfig, specs: Sequence[str], key: str) -> list[Problem]:
    from kerneldojo.problems.source import ProblemError
    from kerneldojo.problems.suite import load_suite

    try:
        return load_suite(specs, config.size)
    except ProblemError as error:
        raise ConfigError(f"{key}: {error}") from error


def _held_out(config: RLConfig) -> list[Problem]:
    if not config.evaluation.problems:
        return []
    return _problems(config, config.evaluation.problems, "evaluation.problems")[: config.evaluation.num_problems]


class _Training:
    """The state of a run between two steps."""

    def __init__(
        self,
        config: RLConfig,
        learner: Learner,
        executor: Executor,
        problems: list[Problem],
        held_out: list[Problem],
        checkpoints: Checkpoints,
    ) -> None:
        self.config, self.learner, self.ranks = config, learner, learner.ranks
        self.problems, self.held_out, self.checkpoints = problems, held_out, checkpoints
        self.step, self.num_skipped, self.best = 0, 0, (-1.0, -1)
        self.stop = StopSwitch()
        self.plan_marks = plan_ids(learner.tokenizer)
        if config.learning.hrd is not None and self.plan_marks is None:
            raise ConfigError("learning.hrd: this tokenizer has no single tokens <plan> and </plan>")
        self.reference = self._reference()
        assert learner.sampler is not None
        self.player = Player(
            learner.sampler,
            learner.tokenizer,
            Verdicts(executor, config.judge.patience_s, self._check),
            self.ranks,
            self._check,
        )

    def _check(self) -> None:
        if self.ranks.count == 1:  # several ranks stop together, between two steps
            self.stop.check()

    def _reference(self) -> Learner | None:
        """The policy that the KL penalty refers to; None where there is no penalty, or it is under the adapters."""
        if self.config.learning.kl is None or self.learner.adapter is not None:
            return None
        return open_learner(self.config.model, self.config.optimizer, self.ranks)

    def run(self, latest: Path | None, *, show: bool) -> Outcome:
        config = self.config
        if latest is not None:
            counters = self.learner.restore(latest)["counters"]
            self.step, self.num_skipped = counters["step"], counters["skipped"]
            self.best = (counters["best_score"], counters["best_step"])
        journal = None
        if self.ranks.is_first:
            after = self.step if latest is not None else -1
            journal = Journal(config.output, config.log, config.model_dump(mode="json"), after)
        size = f"{num_parameters(self.learner.model) / 1e6:.1f} M parameters, judged on {config.play.device}"
        try:
            with Display("rl", size, config.steps, enabled=show) as display, self.stop:
                try:
                    reason = self._loop(journal, display, is_new=latest is None)
                except Stopped:  # in the middle of play: nothing has changed since the step before
                    reason = "stopped"
                return Outcome(self.step, self._save(reason, display))
        finally:
            if journal is not None:
                journal.close()

    def _loop(self, journal: Journal | None, display: Display, *, is_new: bool) -> str:
        config = self.config
        if is_new and self._evaluate(journal, display):
            self._save("", display)  # it may turn out to have been the best
        while self.step < config.steps:
            if self.ranks.from_first(self.stop.wanted):
                return "stopped"
            record = self._take_step()
            if journal is not None:
                journal.write(record)
                display.show_rl(record, self.step / config.steps)
            is_best = False
            if self.step % config.evaluation.every == 0 or self.step == config.steps:
                is_best = self._evaluate(journal, display)
            if self.num_skipped >= config.max_skipped:
                return f"loss or gradient was not finite {self.num_skipped} times in a row"
            if (self.step % config.checkpoint_every == 0 or is_best) and self.step < config.steps:
                self._save("", display)
        return "finished"

    # One step

    def _take_step(self) -> dict[str, Any]:
        """Play, learn, count: the whole of a step. Until the weights change it can be given up without loss."""
        config, start = self.config, time.perf_counter()
        played = self._play(self._draw_problems(), f"step-{self.step + 1:06d}")
        if config.keep_rollouts and self.ranks.is_first:
            self._write_rollouts(played.episodes)
        data = step_data(played.episodes, hrd=config.learning.hrd is not None)
        scored = time.perf_counter()
        learned, seconds = self._learn(data)
        self.step += 1
        self.player.version = self.step
        self.player.verdicts.forget_measured()
        seconds |= {"generate": played.generate_s, "judge": played.judge_s, "prepare": scored - start}
        seconds["prepare"] -= played.generate_s + played.judge_s
        seconds["step"] = time.perf_counter() - start
        judging = {"asked": played.num_asked, "judged": played.num_judged}
        record = {"step": self.step, **summary(played.episodes), "turns": by_turn(played.episodes), **learned}
        return record | {"verdicts": judging, "seconds": seconds, "faults": {"retried": played.num_faults}}

    def _draw_problems(self) -> list[Problem]:
        """The step's problems: a walk through all of them in an order that is shuffled anew each time round."""
        count, size = self.config.prompts_per_step, len(self.problems)
        places = range(self.step * count, (self.step + 1) * count)
        orders = {
            around: np.random.default_rng([self.config.seed, 2, around]).permutation(size)
            for around in {place // size for place in places}
        }
        return [self.problems[orders[place // size][place % size]] for place in places]

    def _play(self, problems: Sequence[Problem], label: str) -> Played:
        self.learner.refresh_sampler()
        config = self.config
        seed = seed_of("step", config.seed, label)
        return self.player.play(
            problems,
            config.play,
            samples=config.samples_per_prompt,
            temperature=config.sampling.temperature,
            seed=seed,
            label=label,
        )

    def _learn(self, data: StepData) -> tuple[dict[str, Any], dict[str, float]]:
        """Change the weights by what the step's samples say; numbers for the log, and durations."""
        config, start = self.config, time.perf_counter()
        if not data.samples:
            return {"skipped": "no samples"}, {}
        batches = self._batches(data, range(len(data.samples)))
        before = self.learner.score(batches, data.num_tokens, config.sampling.temperature)
        reference = self._reference_log_probs(batches, data)
        generator = torch.Generator().manual_seed(seed_of("prs", config.seed, str(self.step)))
        draws = torch.rand(len(data.samples), generator=generator, dtype=torch.float64)
        samples = data.columns(before.log_probs, draws, self.plan_marks, config.learning.hrd is not None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MismatchWarning)
            prepared = prepare(samples, config.learning)
        num_dull = 0
        if config.filter_groups:
            prepared, num_dull = without_dull_groups(prepared, samples, config.learning)
        middle = time.perf_counter()
        mismatch = (before.log_probs.double() - data.rollout_log_probs.double()).abs()
        numbers: dict[str, Any] = {
            "entropy": float(before.entropy.double().mean()),
            "mismatch": {"mean": float(mismatch.mean()), "max": float(mismatch.max())},
            "samples": {**vars(prepared.report), "num_dull": num_dull},
        }
        if caught:
            numbers["warning"] = str(caught[-1].message)
        if reference is not None:
            numbers["kl_to_reference"] = float(kl_estimate(before.log_probs, reference, "k3").double().mean())
        numbers |= self._update(data, prepared, reference)
        return numbers, {"score": middle - start, "update": time.perf_counter() - middle}

    def _update(self, data: StepData, prepared: Prepared, reference: Tensor | None) -> dict[str, Any]:
        """One or more changes of the weights, each from its part of the prompts."""
        config = self.config
        taught = taught_samples(prepared, sample_of_token(data.samples))
        if prepared.skip_reason or not taught:
            return {"skipped": prepared.skip_reason or "all advantages are zero"}
        totals = {"tokens": 0, "clipped": 0, "dual_clipped": 0, "kl": 0.0}

        def loss(batch: Batch, log_probs: Tensor) -> Tensor:
            tokens = batch.tokens.cpu()
            anchor = None if reference is None else reference[tokens]
            part = policy_loss(prepared, log_probs.cpu(), tokens, anchor)
            totals["tokens"] += part.num_tokens
            totals["clipped"] += part.num_clipped
            totals["dual_clipped"] += part.num_dual_clipped
            totals["kl"] += part.sum_kl
            return part.loss * config.updates_per_step

        losses: list[float] = []
        taken: tuple[float, float] | None = None
        for number in range(config.updates_per_step):
            prompts = data.turns.prompt.tolist()
            part = [one for one in taught if prompts[one] % config.updates_per_step == number]
            if not part:
                continue
            losses.append(self.learner.add_gradients(self._batches(data, part), loss, config.sampling.temperature))
            taken = self.learner.step(self.step, self.step / config.steps, losses[-1])
            if taken is None:
                self.num_skipped += 1
                return {"skipped": "loss or gradient is not finite", "loss": losses[-1]}
        self.num_skipped = 0
        assert taken is not None
        sums = self.ranks.total(torch.tensor(list(totals.values()), dtype=torch.float64)).tolist()
        count = max(1.0, sums[0])
        names = {"clipped": sums[1] / count, "dual_clipped": sums[2] / count, "kl": sums[3] / count}
        return {"loss": sum(losses), "grad_norm": taken[0], "learning_rate": taken[1], **names, "skipped": None}

    def _batches(self, data: StepData, chosen: Sequence[int]) -> list[Batch]:
        packing = self.config.packing
        return make_batches(
            data.samples,
            chosen=chosen,
            row_tokens=packing.row_tokens,
            batch_tokens=packing.micro_batch_tokens,
            pad_id=self.learner.pad_id,
        )

    def _reference_log_probs(self, batches: Sequence[Batch], data: StepData) -> Tensor | None:
        if self.config.learning.kl is None:
            return None
        temperature = self.config.sampling.temperature
        if self.reference is not None:
            return self.reference.score(batches, data.num_tokens, temperature).log_probs
        with self.learner.without_adapter():
            return self.learner.score(batches, data.num_tokens, temperature).log_probs

    # Beside the steps

    def _evaluate(self, journal: Journal | None, display: Display) -> bool:
        """Play the held-out problems and note what came out; whether it is the best so far."""
        settings = self.config.evaluation
        if not self.held_out:
            return False
        self.learner.refresh_sampler()
        play = self.config.play
        if settings.num_turns is not None:
            play = play.model_copy(update={"num_turns": settings.num_turns})
        start = time.perf_counter()
        played = self.player.play(
            self.held_out,
            play,
            samples=settings.num_samples,
            temperature=settings.temperature,
            seed=seed_of("evaluation", self.config.seed, ""),
            label="held-out",
        )
        results = summary(played.episodes)
        score = float(results["fast_1.2"])
        is_best = score > self.best[0]
        if is_best:
            self.best = (score, self.step)
        if journal is not None:
            seconds = {"evaluate": time.perf_counter() - start, "judge": played.judge_s}
            evaluation = {**results, "turns": by_turn(played.episodes)}
            verdicts = {"asked": played.num_asked, "judged": played.num_judged}
            journal.write({"step": self.step, "evaluation": evaluation, "verdicts": verdicts, "seconds": seconds})
            display.show_evaluation(self.step, results)
        return is_best

    def _write_rollouts(self, episodes: Sequence[Episode]) -> None:
        """One file a step, whole or not at all; a step that is played again replaces its own."""
        folder = self.config.output / "rollouts"
        lines = "".join(episode.model_dump_json(round_trip=True) + "\n" for episode in episodes)
        try:
            folder.mkdir(exist_ok=True)
            replace_text(folder / f"step-{self.step + 1:06d}.jsonl", lines)
        except OSError as error:
            raise CheckpointError(f"cannot write rollouts to {folder}: {error.strerror}") from error

    def _save(self, reason: str, display: Display) -> str:
        """Write a checkpoint; a full disk ends the run only if this was the last chance to keep its work."""
        counters = {
            "step": self.step,
            "skipped": self.num_skipped,
            "best_score": self.best[0],
            "best_step": self.best[1],
        }
        save, state = self.learner.gather_weights(), {**self.learner.state(), "counters": counters}
        if not self.ranks.is_first:
            return reason
        try:
            path = self.checkpoints.save(self.step, save, state, pinned=self.best[1])
            point(self.config.output / "model", path / "model")
            if self.best[1] in self.checkpoints.steps():
                point(self.config.output / "best", self.checkpoints.path(self.best[1]) / "model")
        except CheckpointError as error:
            display.say(str(error))
            return str(error) if reason else ""
        return reason
