"""RL: play, judge, compare, learn; the loop of the three papers, to be read from top to bottom.

    problems of the step -> episodes, turn by turn (`playing`) -> rewards by the judge
      -> advantages, rejections, a change of the weights (`updates`) -> journal, evaluation, checkpoint

With `staleness = 1` the next step is begun before this one is learned from, so that the judges never wait (`ahead`).

What a step does depends on the weights, the optimiser, the step's number and what was written of it before, on nothing
else: problems, seeds of answers and draws of PRS all follow from (run seed, step). So a run that was killed goes on
from its last checkpoint as if it had not been, and its journal has every step once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneldojo.episodes import seed_of
from kerneldojo.files import write_whole
from kerneldojo.policies.rows import SamplerConfig, ServedConfig
from kerneldojo.pool import Executor
from kerneldojo.schema import Episode, Problem
from kerneldojo.training.ahead import play_beside
from kerneldojo.training.checkpoints import CheckpointError, Checkpoints
from kerneldojo.training.config import RLConfig
from kerneldojo.training.display import Display
from kerneldojo.training.drawing import draw, load_problems
from kerneldojo.training.fitting import check_sampler, check_template, fitted
from kerneldojo.training.held_out import HeldOut
from kerneldojo.training.journal import Journal, read_journal, tracker_of
from kerneldojo.training.judges import judges_after_writing
from kerneldojo.training.learner import Learner, open_learner
from kerneldojo.training.metering import JudgeMeter
from kerneldojo.training.models import num_parameters
from kerneldojo.training.outage import Outage
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.playing import Played, Player
from kerneldojo.training.runs import Outcome, open_run, point
from kerneldojo.training.steps import by_turn, step_data, summary, thin
from kerneldojo.training.stopping import Stopped, StopSwitch
from kerneldojo.training.updates import Updates
from kerneldojo.training.verdicts import Verdicts

SERVED = "served"
"""Folder in a run's own through which weights travel to a server that samples."""


def train_rl(config: RLConfig, executor: Executor, ranks: Ranks, *, resume: bool = False, show: bool = True) -> Outcome:
    """Train as `config` says, judged by `executor`; `output/model` has the newest weights, `output/best` the best.

    Raises:
        ConfigError: configuration, model, problems and folder do not go together, in one line.
        JournalError: the tracker's package is missing, or the journal cannot be written.
    """
    tracker_of(config.log)
    problems, held_out = load_problems(config)
    with open_run(config, config.output, ranks, resume=resume, keep=config.keep_checkpoints) as (checkpoints, latest):
        learner = open_learner(
            config.model, config.optimizer, ranks, seed=config.seed, checkpoint=latest, sampler=_who_samples(config)
        )
        check_template(config, problems[0], learner)
        check_sampler(learner)
        run = _Training(fitted(config, learner), learner, executor, problems, held_out, checkpoints)
        return run.run(latest, show=show and ranks.is_first)


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
        self.problems, self.checkpoints = problems, checkpoints
        self.step, self.outage = 0, Outage()
        self.begun: Played | None = None
        """The step after this one, if it was begun already: as it was when the weights last changed."""
        self.stop = StopSwitch()
        self.meter = JudgeMeter(executor)
        self.updates = Updates(config, learner)
        assert learner.sampler is not None
        self.player = Player(
            learner.sampler,
            learner.tokenizer,
            Verdicts(executor, config.judge.patience_s, self._check),
            self.ranks,
            self._check,
            judges_after_writing=judges_after_writing(config, self.ranks, executor),
        )
        self.held_out = HeldOut(config, held_out, self.player)

    def _check(self) -> None:
        if self.ranks.count == 1:  # several ranks stop together, between two steps
            self.stop.check()

    def run(self, latest: Path | None, *, show: bool) -> Outcome:
        config = self.config
        if latest is not None:
            self._restore(self.learner.restore(latest))
        journal = None
        if self.ranks.is_first:
            after = self.step if latest is not None else -1
            journal = Journal(config.output, config.log, config.model_dump(mode="json"), after)
        earlier = [] if journal is None else self.held_out.scores(read_journal(journal.path), self.step)
        self.held_out.recall(self.ranks.from_first(earlier), self.step)
        size = f"{num_parameters(self.learner.model) / 1e6:.1f} M parameters, judged on {config.play.device}"
        try:
            with Display("rl", size, config.steps, enabled=show) as display, self.stop, self.meter:
                try:
                    reason = self._loop(journal, display)
                except Stopped:  # in the middle of play: nothing has changed since the step before
                    reason = "stopped"
                return Outcome(self.step, self._save(reason, display))
        finally:
            if journal is not None:
                journal.close()

    def _loop(self, journal: Journal | None, display: Display) -> str:
        config = self.config
        if self._evaluate(journal, display):
            self._save("", display)  # it may turn out to have been the best
        while self.step < config.steps:
            if self.ranks.from_first(self.stop.wanted):
                return "stopped"
            record = self._take_step()
            if journal is not None:
                journal.write(record)
                display.show_rl(record, self.step / config.steps)
            is_best = self._evaluate(journal, display)
            if self.updates.num_skipped >= config.max_skipped:
                return f"loss or gradient was not finite {self.updates.num_skipped} times in a row"
            if reason := self.outage.ends_run(config.max_skipped):
                return reason
            if (self.step % config.checkpoint_every == 0 or is_best) and self.step < config.steps:
                self._save("", display)
        return "finished"

    # One step

    def _take_step(self) -> dict[str, Any]:
        """Play, learn, count: the whole of a step. Until the weights change it can be given up without loss."""
        config, start = self.config, time.perf_counter()
        spent, num_faults = dict(self.player.seconds), self.player.verdicts.num_faults
        self.meter.take()
        played, following, scoring = self._play()
        if config.keep_rollouts and self.ranks.is_first:
            self._write_rollouts(played.episodes)
        data = step_data(thin(played.episodes, config.drop_turns, config.seed), hrd=config.learning.hrd is not None)
        ready = time.perf_counter()
        learned, seconds = self.updates.learn(data, self.step, played.scores)
        self.step += 1
        self.outage.note(played.episodes)
        self.begun = following
        self.player.verdicts.forget_measured()
        playing = {name: value - spent[name] for name, value in self.player.seconds.items()}
        seconds |= {**playing, "prepare": ready - start - scoring - sum(playing.values())}
        seconds["score"] = seconds.get("score", 0.0) + scoring
        seconds["step"] = time.perf_counter() - start
        busy = self.meter.take()
        if busy is not None:
            seconds["judge_busy"] = busy
        judging = {"asked": played.num_asked, "judged": played.num_judged}
        record = {"step": self.step, **summary(played.episodes), "turns": by_turn(played.episodes), **learned}
        retried = self.player.verdicts.num_faults - num_faults
        return record | {"verdicts": judging, "seconds": seconds, "faults": {"retried": retried}}

    def _play(self) -> tuple[Played, Played | None, float]:
        """The step, played; the one after it, if that was begun meanwhile; and seconds of scoring in between."""
        self._let_sampler_know()
        played = self._begin(self.step) if self.begun is None else self.begun.copy()
        if not self.config.staleness:
            self.player.finish(played)
            return played, None, 0.0
        following = self._begin(self.step + 1) if self.step + 1 < self.config.steps else None
        return played, following, play_beside(played, following, self.player, self.updates)

    def _begin(self, step: int) -> Played:
        """The episodes of the step after `step` others, before their first turn."""
        config, label = self.config, f"step-{step + 1:06d}"
        return self.player.begin(
            draw(self.problems, step, config.prompts_per_step, config.seed),
            config.play,
            samples=config.samples_per_prompt,
            temperature=config.sampling.temperature,
            seed=seed_of("step", config.seed, label),
            label=label,
        )

    def _let_sampler_know(self) -> None:
        """From now on it writes with the weights of now, and says so."""
        self.learner.refresh_sampler()
        self.player.version = self.step

    # Beside the steps

    def _evaluate(self, journal: Journal | None, display: Display) -> bool:
        """Play the held-out problems, if it is time to, and note what came out; whether it is the best so far."""
        if not self.held_out.is_due(self.step):
            return False
        self._let_sampler_know()
        record, is_best = self.held_out.look(self.step)
        if journal is not None:
            journal.write(record)
            display.show_evaluation(self.step, record["evaluation"])
        return is_best

    def _write_rollouts(self, episodes: Sequence[Episode]) -> None:
        """One file a step, whole or not at all; a step that is played again replaces its own."""
        folder = self.config.output / "rollouts"
        lines = "".join(episode.model_dump_json(round_trip=True) + "\n" for episode in episodes)
        try:
            folder.mkdir(exist_ok=True)
            write_whole(folder / f"step-{self.step + 1:06d}.jsonl", lines.encode())
        except OSError as error:
            raise CheckpointError(f"cannot write rollouts to {folder}: {error.strerror}") from error

    def _restore(self, state: dict[str, Any]) -> None:
        """Take up what `_save` noted."""
        counters = state["counters"]
        self.step, self.updates.num_skipped = counters["step"], counters["skipped"]
        self.outage.num_steps = counters.get("lost", 0)  # older checkpoints have none
        self.held_out.best = (counters["best_score"], counters["best_step"])
        if "begun" in state:
            self.begun = Played.unpacked(state["begun"], self.config.play, self.config.sampling.temperature)
            self.player.order_again(self.begun)

    def _save(self, reason: str, display: Display) -> str:
        """Write a checkpoint; a full disk ends the run only if this was the last chance to keep its work."""
        counters = {
            "step": self.step,
            "skipped": self.updates.num_skipped,
            "lost": self.outage.num_steps,
            "best_score": self.held_out.best[0],
            "best_step": self.held_out.best[1],
        }
        model, best = self.config.output / "model", self.config.output / "best"
        save, state = self.learner.gather_weights(), {**self.learner.state(), "counters": counters}
        if self.begun is not None:
            state["begun"] = self.begun.packed()
        if not self.ranks.is_first:
            return reason
        try:
            point(model, self.checkpoints.save(self.step, save, state) / "model")
            if self.held_out.best[1] in self.checkpoints.steps():
                point(best, self.checkpoints.path(self.held_out.best[1]) / "model")
            self.checkpoints.prune(model, best)
        except CheckpointError as error:
            display.say(str(error))
            return str(error) if reason else ""
        return reason


def _who_samples(config: RLConfig) -> SamplerConfig | ServedConfig:
    """The sampler of this process, or a server, with a folder for the weights that it is given."""
    served = config.sampling.served
    if served is None:
        return config.sampling.engine
    return served.model_copy(update={"weights": served.weights or config.output / SERVED})
