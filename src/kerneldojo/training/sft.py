"""Supervised training: imitate the answers that the judge passed (or a chosen mixture of others).

Each turn is one sample: its prompt as RL would render it, and the loss on the answer's tokens alone, the end token
included. Order and packing of an epoch follow from the seed, so that a run that was killed goes on exactly where its
last checkpoint left it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerneldojo.episodes import PromptTooLong, answer_ids, config_of, messages_at, render
from kerneldojo.schema import Episode, Problem, Status, Turn, content_hash
from kerneldojo.training.checkpoints import CheckpointError, Checkpoints
from kerneldojo.training.config import HELD_OUT, KeepConfig, SFTConfig
from kerneldojo.training.display import Display
from kerneldojo.training.journal import Journal, tracker_of
from kerneldojo.training.learner import Learner, open_learner
from kerneldojo.training.models import num_parameters
from kerneldojo.training.packing import Batch, Sample
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.runs import Outcome, open_run, point
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.stopping import StopSwitch
from kerneldojo.training.tokens import train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def train_sft(config: SFTConfig, ranks: Ranks, *, resume: bool = False, show: bool = True) -> Outcome:
    """Train as `config` says; the newest weights are in `output/model` afterwards.

    Raises:
        ConfigError: the configuration, the data and the folder do not go together, in one line.
        JournalError: the tracker's package is missing, or the journal cannot be written.
    """
    tracker_of(config.log)
    with open_run(config, config.output, ranks, resume=resume, keep=config.keep_checkpoints) as (checkpoints, latest):
        episodes = list(read_episodes(config))
        tokenizer = None
        if latest is None and config.model.path is None:
            tokenizer = train_tokenizer(corpus(episodes), config.model.shape.vocabulary)
        learner = open_learner(
            config.model, config.optimizer, ranks, seed=config.seed, checkpoint=latest, tokenizer=tokenizer
        )
        limit = config.keep.max_tokens or getattr(learner.model.config, "max_position_embeddings", None)
        samples = list(samples_of(episodes, learner.tokenizer, config.keep, limit))
        if len(samples) <= config.num_validation:
            raise ConfigError(
                f"data: {len(samples)} samples pass `keep` and fit, and num_validation is {config.num_validation}"
            )
        return _Training(config, learner, samples, checkpoints).run(latest, show=show and ranks.is_first)


class _Training:
    """The state of a run between two steps."""

    def __init__(self, config: SFTConfig, learner: Learner, samples: list[Sample], checkpoints: Checkpoints) -> None:
        order = np.random.default_rng([config.seed, 0]).permutation(len(samples))
        self.config, self.learner, self.checkpoints = config, learner, checkpoints
        self.validation = [samples[i] for i in order[: config.num_validation]]
        self.samples = [samples[i] for i in order[config.num_validation :]]
        self.step, self.seconds, self.num_tokens, self.num_skipped = 0, 0.0, 0, 0
        self.fingerprint = fingerprint(samples)
        self.epoch, self.place = 0, 0
        """Which epoch is under way, and how many of its steps were taken."""
        self._batches = self._epoch(0)
        self.num_steps = max(1, math.ceil(config.epochs * len(self._batches)))
        """Of the whole run; another order may pack an epoch into a step more or less than the first one has."""

    def run(self, latest: Path | None, *, show: bool) -> Outcome:
        config, ranks = self.config, self.learner.ranks
        if latest is not None:
            self._restore(self.learner.restore(latest))
        journal = None
        if ranks.is_first:
            told = config.model_dump(mode="json")
            journal = Journal(config.output, config.log, told, -1 if latest is None else self.step)
        size = f"{num_parameters(self.learner.model) / 1e6:.1f} M parameters, {len(self.samples)} samples"
        try:
            with Display("sft", size, self.num_steps, enabled=show) as display, StopSwitch() as stop:
                reason = self._loop(journal, display, stop)
                return Outcome(self.step, self._save(reason, display))
        finally:
            if journal is not None:
                journal.close()

    def _loop(self, journal: Journal | None, display: Display, stop: StopSwitch) -> str:
        config, ranks = self.config, self.learner.ranks
        while self.step < self.num_steps and self.progress < 1:
            if ranks.from_first(stop.wanted):
                return "stopped"
            record = self._take_step(self._next_batches())
            if self.validation and (self.step % config.evaluate_every == 0 or self.step == self.num_steps):
                record["validation"] = {"loss": self._validation_loss()}
            if journal is not None:
                journal.write(record)
                display.show_sft(record, self.progress)
            if self.num_skipped >= config.max_skipped:
                return f"loss or gradient was not finite {self.num_skipped} times in a row"
            if self.step % config.checkpoint_every == 0:
                self._save("", display)
        return "finished"

    def _next_batches(self) -> list[Batch]:
        """The micro-batches of the next step."""
        if self.place == len(self._batches):
            self.epoch, self.place = self.epoch + 1, 0
            self._batches = self._epoch(self.epoch)
        self.place += 1
        return self._batches[self.place - 1]

    @property
    def progress(self) -> float:
        """Share of the run that is done, by steps or by the clock, whichever is further; alike on all ranks."""
        by_clock = self.seconds / self.config.max_seconds if self.config.max_seconds else 0.0
        return max(self.step / self.num_steps, by_clock)

    def _epoch(self, epoch: int) -> list[list[Batch]]:
        """The steps of an epoch, each a list of micro-batches."""
        config, packing = self.config, self.config.packing
        order = np.random.default_rng([config.seed, 1, epoch]).permutation(len(self.samples)).tolist()
        batches = self.learner.pack(self.samples, packing.row_tokens, packing.micro_batch_tokens, chosen=order)
        each = max(1, config.batch_tokens // packing.micro_batch_tokens)
        return [batches[start : start + each] for start in range(0, len(batches), each)]

    def _take_step(self, batches: Sequence[Batch]) -> dict[str, Any]:
        start = time.perf_counter()
        num_tokens = sum(len(batch.targets) for batch in batches)
        loss = self.learner.add_gradients(batches, lambda _, log_probs: -log_probs.sum() / num_tokens)
        taken = self.learner.step(self.step, self.progress, loss)
        self.step += 1
        self.num_skipped = 0 if taken else self.num_skipped + 1
        # All ranks go by the first one's clock: the schedule must be the same everywhere.
        self.seconds = self.learner.ranks.from_first(self.seconds + time.perf_counter() - start)
        self.num_tokens += sum(batch.num_tokens for batch in batches)
        record: dict[str, Any] = {"step": self.step, "loss": loss, "answer_tokens": num_tokens}
        record |= {"grad_norm": taken[0], "learning_rate": taken[1]} if taken else {"skipped": "not finite"}
        return record | {"seconds": {"total": self.seconds}, "tokens": self.num_tokens}

    def _validation_loss(self) -> float:
        """Mean loss a token on the samples kept apart."""
        packing = self.config.packing
        batches = self.learner.pack(self.validation, packing.row_tokens, packing.micro_batch_tokens)
        num_tokens = sum(len(sample.answer) for sample in self.validation)
        return -float(self.learner.score(batches, num_tokens, 1.0).log_probs.sum()) / num_tokens

    def _restore(self, state: dict[str, Any]) -> None:
        """Take up what `_save` noted.

        Raises:
            ConfigError: the samples are others than they were, so that the order of what is left means nothing.
        """
        if state.get("data", self.fingerprint) != self.fingerprint:  # older checkpoints have none
            raise ConfigError("data: its samples have changed since this run began, which can only go on as it was")
        counters = state["counters"]
        self.step, self.seconds = counters["step"], counters["seconds"]
        self.num_tokens, self.num_skipped = counters["tokens"], counters.get("skipped", 0)
        first = len(self._batches)
        self.epoch = counters.get("epoch", self.step // first)  # older checkpoints have none: all epochs were alike
        self.place = counters.get("place", self.step % first)
        self._batches = self._epoch(self.epoch)

    def _save(self, reason: str, display: Display) -> str:
        """Write a checkpoint; a full disk ends the run only if this was the last chance to keep its work."""
        model = self.config.output / "model"
        counters = {
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.num_tokens,
            "skipped": self.num_skipped,
            "epoch": self.epoch,
            "place": self.place,
        }
        save = self.learner.gather_weights()
        state = {**self.learner.state(), "counters": counters, "data": self.fingerprint}
        if not self.learner.ranks.is_first:
            return reason
        try:
            point(model, self.checkpoints.save(self.step, save, state) / "model")
            self.checkpoints.prune(model)
        except CheckpointError as error:
            display.say(str(error))
            return str(error) if reason else ""
        return reason


def read_episodes(config: SFTConfig) -> Iterator[Episode]:
    """All episodes of the run folders.

    Raises:
        ConfigError: a folder that is none, or holds no run, or answers to problems that are held out.
    """
    from kerneldojo.rollout import RunFolder

    seen: set[str] = set()
    for folder in config.data:
        if not folder.is_dir():
            raise ConfigError(f"data: {folder} is not a folder")
        if RunFolder(folder).manifest() is None:
            raise ConfigError(f"data: {folder} holds no run of `dojo collect`")
        for episode in RunFolder(folder).episodes():
            problem = episode.problem
            if problem.hash not in seen and (spec := set_of(problem)) in HELD_OUT:
                raise ConfigError(f"data: {folder} has answers to {spec}/{problem.name}, which is held out")
            seen.add(problem.hash)
            yield episode


def set_of(problem: Problem) -> str | None:
    """The frozen set that a generated graph belongs to, whatever it was drawn for (`graphs:test`); None for others."""
    from kerneldojo.problems.graphs import graph_of, split_of
    from kerneldojo.problems.source import ProblemError

    if problem.suite != "graphs":
        return None
    try:
        return f"graphs:{split_of(graph_of(problem))}"
    except ProblemError:  # a graph of another version, or somebody's own suite of this name
        return None


def corpus(episodes: Iterable[Episode]) -> Iterator[str]:
    """The texts a tokenizer should know: every prompt (feedback of earlier turns included) and every answer."""
    for episode in episodes:
        for turn in episode.turns:
            messages = messages_at(episode, turn.index)
            yield from (message.content for message in messages[-1:])
            yield turn.answer.text


def samples_of(
    episodes: Iterable[Episode], tokenizer: PreTrainedTokenizerBase, keep: KeepConfig, max_tokens: int | None
) -> Iterator[Sample]:
    """One sample for each turn that `keep` lets through; answers that were cut have no end and are left out.

    Answers are encoded by `tokenizer` from their text: ids that another model sampled mean nothing here. To it a prompt
    may be longer than to whoever collected it; where it exceeds the episode's budget the episode ends, as in RL.
    """
    coder = cast("Any", tokenizer)
    for episode in episodes:
        plain = without_ids(episode)
        play = config_of(plain)
        for turn in plain.turns:
            if turn.answer.finish != "stop" or not is_kept(turn, keep):
                continue
            try:
                asked = render(plain, turn.index, coder)
            except PromptTooLong:
                break
            sample = Sample(tuple(asked), tuple(answer_ids(turn.answer, play, coder)))
            if max_tokens is None or len(sample) <= max_tokens:
                yield sample


def fingerprint(samples: Iterable[Sample]) -> str:
    """What tells whether these are the same samples in the same order."""
    return content_hash(*(repr((sample.prompt, sample.answer)) for sample in samples))


def without_ids(episode: Episode) -> Episode:
    """The episode as text alone."""
    gone = {"prompt_ids": None, "answer_ids": None, "log_probs": None}
    turns = tuple(turn.model_copy(update={"answer": turn.answer.model_copy(update=gone)}) for turn in episode.turns)
    return episode.model_copy(update={"turns": turns})


def is_kept(turn: Turn, keep: KeepConfig) -> bool:
    """Whether a turn is imitated."""
    evaluation = turn.evaluation
    status = "not_parsed" if evaluation is None else evaluation.status
    if keep.statuses is not None and status not in keep.statuses:
        return False
    if evaluation is None or evaluation.status is not Status.PASSED:
        return True
    speedup, coverage = evaluation.speedup or 0.0, evaluation.coverage or 0.0
    return speedup >= (keep.min_speedup or 0.0) and coverage >= (keep.min_coverage or 0.0)
