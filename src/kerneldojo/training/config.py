"""What a training run is told: every key of the TOML files, with the vetted settings as defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_serializer, field_validator, model_validator

from kerneldojo.algorithms import KevinConfig, LearningConfig
from kerneldojo.episodes import PlayConfig
from kerneldojo.policies.rows import SamplerConfig, ServedConfig
from kerneldojo.schema import Settings, Status
from kerneldojo.schema.base import NamedPath
from kerneldojo.training.journal import LogConfig
from kerneldojo.training.model_config import ModelConfig
from kerneldojo.training.optimizing import OptimizerConfig

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""What torch and numpy both take for a seed."""


MEASURED_ON = ("graphs:test", "graphs:extrapolation")
"""The frozen sets that are opened once, when a run is over: no weights are chosen by them."""
HELD_OUT = ("graphs:validation", *MEASURED_ON)
"""The frozen sets that nothing is trained on."""


def first_of(specs: Sequence[str], sets: tuple[str, ...]) -> str | None:
    """The first of `specs` that names problems of one of `sets`."""
    return next((spec for spec in specs if spec.strip().startswith(sets)), None)


class PackingConfig(Settings):
    """How samples become batches; no setting changes what is learned, but for rounding."""

    row_tokens: int = Field(default=512, gt=0)
    """Tokens of a row; a longer sample has a row of its own. Attention costs the square of it."""
    micro_batch_tokens: int = Field(default=2048, gt=0)
    """Tokens of one forward and backward pass."""

    @model_validator(mode="after")
    def _a_row_fits_a_batch(self) -> PackingConfig:
        if self.row_tokens > self.micro_batch_tokens:
            raise ValueError(f"row_tokens ({self.row_tokens}) is larger than micro_batch_tokens")
        return self


class KeepConfig(Settings):
    """Which turns of the collected episodes are learned from; the others still stand in later prompts."""

    statuses: tuple[Status | Literal["not_parsed"], ...] | None = (Status.PASSED,)
    """Verdicts whose answers are imitated (`not_parsed`: no code was found); None for all."""
    min_speedup: float | None = Field(default=None, ge=0)
    """Of passed ones, only those at least as fast as this."""
    min_coverage: float | None = Field(default=None, ge=0, le=1)
    """Of passed ones, only those with at least this share of the time in their own kernels."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Leave out samples with more tokens than this, prompt and answer together; None for what the model can hold."""


class SFTConfig(Settings):
    """Supervised training: imitate collected answers."""

    output: NamedPath
    """Folder of the run: checkpoints, `metrics.jsonl`, `model`."""
    data: tuple[NamedPath, ...] = Field(min_length=1)
    """Run folders that `dojo collect` wrote."""
    keep: KeepConfig = KeepConfig()
    """Which answers are imitated."""
    model: ModelConfig = ModelConfig()
    """Which model is trained."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """How its weights are changed."""
    packing: PackingConfig = PackingConfig()
    """How samples become batches."""
    batch_tokens: int = Field(default=2048, gt=0)
    """Tokens of one step (of its rows, prompts included), gathered over micro-batches and ranks."""
    epochs: float = Field(default=1.0, gt=0)
    """How often each sample is seen."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Stop after so many seconds of training, and let the schedule end then; None for no such limit."""
    num_validation: int = Field(default=64, ge=0)
    """Samples that are kept apart, to see the loss on."""
    evaluate_every: int = Field(default=100, gt=0)
    """Steps between two looks at these."""
    checkpoint_every: int = Field(default=500, gt=0)
    """Steps between two checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """How many of the latest are kept."""
    max_skipped: int = Field(default=5, gt=0)
    """Stop after so many steps in a row whose loss or gradient was not finite."""
    log: LogConfig = LogConfig()
    """Where numbers go."""
    seed: Seed = 0
    device: str = "auto"
    """`auto`, `cpu` or `cuda`: where the model is trained."""

    @model_validator(mode="after")
    def _a_step_holds_a_batch(self) -> SFTConfig:
        if self.batch_tokens < self.packing.micro_batch_tokens:
            raise ValueError(f"batch_tokens ({self.batch_tokens}) is smaller than packing.micro_batch_tokens")
        return self


class SamplingConfig(Settings):
    """How answers are sampled in training. Neither top-p nor top-k: the ratio of probabilities would mean nothing."""

    temperature: float = Field(default=1.0, gt=0)
    engine: SamplerConfig = SamplerConfig()
    """How the sampler spends memory."""
    served: ServedConfig | None = None
    """A vLLM server that samples instead; None for the sampler of this process."""


DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|model:[a-z0-9_-]+")
"""The shape of a device's name; whether there is such a device is seen when it is opened."""


class JudgeConfig(Settings):
    """Who judges the answers."""

    service: str | None = None
    """Address of a service (`http://host:port`); None for the devices of this machine."""
    devices: tuple[str, ...] | Literal["others"] | int | None = None
    """Which devices of this machine judge; `play.device` must leave them the choice (`cuda` is any GPU). Names:
    `["cuda:1", "cuda:2"]`, and `["cuda"]` for all GPUs. `others`: all GPUs that the policy does not train on (of R
    processes of torchrun these are `cuda:R` and later ones). A number: the first so many of those. None: what
    `play.device` means; with `staleness = 1`, where policy and judges must not share a GPU, of several the others."""
    slots: int | None = Field(default=None, gt=0)
    """Candidates judged at once on this machine's devices; None for the pool's own choice."""
    spared_cores: int | None = Field(default=None, ge=0)
    """Cores that this machine's judges leave to each rank of the policy, whole ones; nothing binds a rank to them.
    None: two, but of every eight two at most for all ranks together, where the policy is at work while its answers are
    judged: with `staleness = 1`, or as the only rank, on a device that does not judge. Else it rests, and has none."""
    cache: NamedPath | None = None
    """Folder in which this machine's verdicts are kept for other runs, too. None: those of `cpu` and `model:` devices
    in the run's own, `output/verdicts`, so that a run which goes on from a checkpoint gets equal ones."""
    patience_s: float = Field(default=600.0, ge=0)
    """Seconds that a fault of ours (a service that is down, a judge that failed) is waited out before it is masked, in
    all: where a service is down its client waits, and the trainer does not begin anew. An attempt that is under way as
    they end is still waited for."""
    after_writing: bool | None = None
    """Judge the answers of a turn when all of them are written, so that the policy computes nothing while something is
    timed. None: if a GPU of the policy also judges (on this machine; of a service only you know). The policy's memory
    is then missing to the largest problems."""

    @field_serializer("service", when_used="json")
    def _service_without_token(self, service: str | None) -> str | None:
        """A token may stand in the address; what is written down of a run is shown to others, and sent to trackers."""
        if service is None:
            return None
        from kerneldojo.client.connection import without_user  # Needs httpx, which no other judge does.

        return without_user(service)

    @field_validator("devices", mode="before")
    @classmethod
    def _devices_have_names(cls, told: Any) -> Any:
        """One line for all that can be wrong, where a union would tell what is wrong with each of its parts."""
        if told is None or told == "others" or (type(told) is int and told > 0):
            return told
        names = cast("list[Any]", [told] if isinstance(told, str) else told if isinstance(told, list | tuple) else [])
        if not names or not all(isinstance(name, str) and DEVICE.fullmatch(name) for name in names):
            raise ValueError('neither names (["cuda:1", "cuda:2"]), nor "others", nor a number of GPUs')
        return tuple(names)

    @model_validator(mode="after")
    def _judges_are_in_one_place(self) -> JudgeConfig:
        if self.service is not None and self.devices is not None:
            raise ValueError("service and devices contradict each other: devices are this machine's")
        return self


class EvaluationConfig(Settings):
    """The periodic look at problems that are not trained on."""

    problems: tuple[str, ...] = ()
    """Suites; none for no evaluation."""
    num_problems: int | None = Field(default=None, gt=0)
    """The first so many of them; None for all."""
    every: int = Field(default=10, gt=0)
    """Steps between two; there is one before the first step and one after the last as well."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    num_samples: int = Field(default=1, gt=0)
    """Episodes a problem."""
    num_turns: int | None = Field(default=None, gt=0)
    """Turns of these; None for as many as in training."""


class RLConfig(Settings):
    """Reinforcement learning on the judge's rewards; the defaults are Dr. Kernel's where it says."""

    output: NamedPath
    """Folder of the run: checkpoints, `metrics.jsonl`, `rollouts/`, `model`, `best`."""
    problems: tuple[str, ...] = Field(min_length=1)
    """Suites to train on."""
    size: Literal["small", "full"] = "small"
    """Size of katas and graphs: `small` for `cpu` and `model:` devices, `full` for a GPU."""
    model: ModelConfig
    """Which model is trained; usually the `model` of an SFT run."""
    play: PlayConfig = PlayConfig()
    """How episodes go: turns, prompt, device and protocol of the judge, reward."""
    sampling: SamplingConfig = SamplingConfig()
    """How answers are sampled."""
    judge: JudgeConfig = JudgeConfig()
    """Who judges."""
    learning: LearningConfig = LearningConfig()
    """From rewards to a loss."""
    filter_groups: bool = False
    """Leave out (prompt, turn) groups whose advantages are all zero, also from the loss's denominator."""
    drop_turns: float = Field(default=0.0, ge=0, lt=1)
    """For experiments: before it is learned from, a trajectory is cut with this probability before each turn, the first
    included, so that groups are uneven as where contexts overflow. Which are cut follows from seed and names alone."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-6, betas=(0.9, 0.999))
    """How weights are changed."""
    packing: PackingConfig = PackingConfig()
    """How samples become batches."""
    steps: int = Field(default=300, gt=0)
    """Steps of the run."""
    prompts_per_step: int = Field(default=16, gt=0)
    """Problems of a step."""
    samples_per_prompt: int = Field(default=16, gt=0)
    """Episodes a problem."""
    updates_per_step: int = Field(default=1, gt=0)
    """Changes of the weights a step, each from its part of the prompts; Kevin makes 2."""
    staleness: Literal[0, 1] = 0
    """Steps by which the weights that write an answer may lag behind those that learn from it. 0: play, then learn. 1:
    the next step is begun while the judges are busy with this one, so that neither waits for the other; importance
    weights make up for it (`algorithms/staleness.py`)."""
    max_stale_weight: float = Field(default=2.0, ge=1)
    """Largest importance weight of a token that older weights wrote; larger ones are cut to this."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """The periodic look at other problems."""
    checkpoint_every: int = Field(default=10, gt=0)
    """Steps between two checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """How many of the latest are kept; the best one beside them."""
    keep_rollouts: bool = True
    """Write every step's episodes to `rollouts/`."""
    max_skipped: int = Field(default=5, gt=0)
    """Stop after so many steps in a row whose loss or gradient was not finite, or in which not one verdict came:
    a broken model or a judge that stays away would use up all steps and teach nothing."""
    log: LogConfig = LogConfig()
    """Where numbers go."""
    seed: Seed = 0
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`: where the model is trained (judges: `play.device`, `judge.devices`)."""

    @model_validator(mode="after")
    def _parts_fit(self) -> RLConfig:
        if self.learning.prs is not None and self.play.device == "cpu":
            raise ValueError("learning.prs needs a profile and play.device 'cpu' has none: set learning.prs to 'none'")
        if self.model.path is None:
            raise ValueError("model.path is missing: RL starts from a model that can answer")
        if spec := first_of(self.problems, HELD_OUT):
            raise ValueError(f"problems: {spec} is held out, for policies to be measured on")
        if spec := first_of(self.evaluation.problems, MEASURED_ON):
            raise ValueError(f"evaluation.problems: {spec} is opened when a run is over: use graphs:validation")
        if self.updates_per_step > self.prompts_per_step:
            raise ValueError("updates_per_step is larger than prompts_per_step")
        if "learning_rate" not in self.optimizer.model_fields_set:
            raise ValueError("optimizer.learning_rate is missing: who tells of the optimizer tells it (papers: 1e-6)")
        if self.model.lora is not None and self.model.lora.dropout:
            raise ValueError("model.lora.dropout: probabilities before and after an update would differ by chance")
        pools_turns = isinstance(self.learning.advantage, KevinConfig) and self.play.num_turns > 1
        if self.samples_per_prompt == 1 and self.learning.advantage.alone == "zero" and not pools_turns:
            raise ValueError("samples_per_prompt = 1: with nobody to compare it with an answer's advantage is 0")
        heats = {self.sampling.temperature, self.evaluation.temperature} - {0.0, 1.0}
        if (served := self.sampling.served) is not None and served.logprobs_mode == "raw" and heats:
            raise ValueError("sampling.served.logprobs_mode: at temperatures other than 1 it must be 'processed'")
        if served is not None and self.model.lora is not None:
            raise ValueError("sampling.served: adapters (model.lora) cannot be served")
        if self.judge.after_writing and self.staleness:
            raise ValueError("judge.after_writing and staleness = 1 contradict each other")
        return self
