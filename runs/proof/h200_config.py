"""What the proof on an H200 is told: `runs/h200.toml`, and the two recipes that it builds upon."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kerneldojo.policies.teacher.config import Level, TeacherConfig
from kerneldojo.schema import Frozen
from kerneldojo.training.config import RLConfig, SFTConfig
from proof.arms import merged

CHECKED, NAIVE, SFT = "rl", "naive", "sft"
"""Policies: trained on the judge's verdicts, on those of an evaluator without exploit checks, and not by RL at all."""
POLICIES = (SFT, CHECKED, NAIVE)


class ProofConfig(Frozen):
    """Sizes of the proof."""

    sft: Path
    """Recipe of the start."""
    rl: Path
    """Recipe of RL."""
    sft_changes: dict[str, Any] = Field(default_factory=dict)
    """Keys of the first that differ here."""
    rl_changes: dict[str, Any] = Field(default_factory=dict)
    """Keys of the second that differ here."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each with a start of its own, and both ways of RL from it."""
    num_graphs: int = Field(default=2000, gt=0)
    """Graphs that the teacher answers for, and that RL learns from."""
    num_answers: int = Field(default=1, gt=0)
    """The teacher's answers to each."""
    shares: dict[Level, float] = Field(default_factory=lambda: dict(TeacherConfig().shares))
    """How many of these are of which level (weights)."""
    collect_on: str = "model:h200"
    """Device that judges these, on the same graphs at their small size: SFT learns from all of them, whatever their
    verdict, so that they need no clock."""
    temperatures: tuple[float, ...] = (0.0, 0.3, 0.6, 1.0)
    """At which policies are measured; among these one is chosen on the validation graphs."""
    num_validation: int = Field(default=48, gt=0)
    """Graphs of `graphs:validation` for that choice."""
    validation_samples: int = Field(default=2, gt=0)
    """Samples of each (one where the temperature is 0)."""
    num_test: int = Field(default=96, gt=0)
    """Graphs of `graphs:test`, opened once for each policy."""
    test_samples: int = Field(default=2, gt=0)
    """Samples of each (one where the temperature is 0)."""
    test_protocol: Literal["standard", "strict"] = "standard"
    """Stricter than the protocol of training."""
    verdicts_per_gpu: int = Field(default=1, ge=1)
    """Verdicts under way at once on one GPU."""
    reuse_reference_times: bool = True
    """In training alone: take a problem's reference time from earlier verdicts."""


TINY: dict[str, Any] = {
    "sft_changes": {
        "model": {"new": "laptop", "precision": "float32"},
        "epochs": 60.0,
        "batch_tokens": 1024,
        "num_validation": 2,
        "evaluate_every": 50,
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 5},
        "packing": {"row_tokens": 256, "micro_batch_tokens": 1024},
    },
    "rl_changes": {
        "steps": 2,
        "prompts_per_step": 2,
        "samples_per_prompt": 4,
        "checkpoint_every": 1,
        "play": {"num_turns": 1, "max_answer_tokens": 96, "max_prompt_tokens": 1024},
        "sampling": {"engine": {"max_rows": 64}},
        "model": {"precision": "float32"},
        "packing": {"row_tokens": 256, "micro_batch_tokens": 1024},
        "evaluation": {"num_problems": 1, "every": 2},
    },
    "seeds": (0,),
    "num_graphs": 3,
    "num_answers": 5,
    "num_validation": 1,
    "validation_samples": 1,
    "num_test": 2,
    "test_samples": 1,
}
"""Everything once, to see that it works."""


def load_proof(path: Path, *, tiny: bool) -> ProofConfig:
    """Read the recipe of the proof; recipes that it names are found beside it.

    Raises:
        SystemExit: it cannot be read, in one line.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        table |= {key: str(path.parent / table[key]) for key in ("sft", "rl")}
        return ProofConfig.model_validate({**table, **TINY} if tiny else table)
    except (OSError, KeyError, ValueError) as error:
        raise SystemExit(f"{path}: {' '.join(str(error).split())}") from error


class Places(Frozen):
    """Where things are done, and where they lie."""

    out: Path
    judges: tuple[str, ...]
    """Devices that judge."""
    policy: str
    """Device of the policy in training. One that also judges is at rest then (`JudgeConfig.after_writing`)."""

    @property
    def sampler(self) -> str:
        """Device of the policy when it is measured: there it writes while earlier answers are timed."""
        return "cpu" if self.policy in self.judges else self.policy

    @property
    def device(self) -> str:
        """What jobs ask for."""
        return "cuda" if self.judges[0].startswith("cuda") else self.judges[0]

    @property
    def size(self) -> Literal["small", "full"]:
        """Size of the graphs."""
        return "full" if self.device == "cuda" else "small"

    def start(self, seed: int) -> Path:
        """The model after SFT, rounded to bf16 as it travels."""
        return self.out / "starts" / f"seed-{seed}"

    def trained(self, name: str, seed: int) -> Path:
        """The model after RL, rounded likewise."""
        return self.out / "trained" / f"{name}-{seed}"

    def work(self, name: str, seed: int) -> Path:
        """What is under way."""
        return self.out / "work" / f"{name}-{seed}"

    def result(self, name: str, seed: int) -> Path:
        """Figures of one policy."""
        return self.out / "results" / name / f"seed-{seed}"


def places(out: Path, device: str, policy: str) -> Places:
    """Which device does what: every GPU judges, and in training the first is the policy's in between."""
    if not device.startswith("cuda"):
        return Places(out=out, judges=(device,), policy="cpu" if policy == "auto" else policy)
    from kerneldojo import devices

    count = max(1, devices.num_cuda_devices())  # Collecting needs none, and belongs to the same proof.
    judges = tuple(f"cuda:{index}" for index in range(count)) if device == "cuda" else (device,)
    return Places(out=out, judges=judges, policy=judges[0] if policy == "auto" else policy)


def sft_config(proof: ProofConfig, place: Places, seed: int) -> SFTConfig:
    """The recipe with what the proof changes."""
    changes: dict[str, Any] = {
        "output": str(place.work(SFT, seed)),
        "data": [str(place.out / "collected")],
        "seed": seed,
        "device": place.policy,
        "log": {"tensorboard": False},
    }
    return SFTConfig.model_validate(merged(merged(_table(proof.sft), proof.sft_changes), changes))


def rl_config(proof: ProofConfig, place: Places, name: str, seed: int) -> RLConfig:
    """The recipe with what the proof changes; without checks, the reward is a naive evaluator's."""
    changes: dict[str, Any] = {
        "output": str(place.work(name, seed)),
        "problems": [f"graphs:train:{proof.num_graphs}:0"],
        "size": place.size,
        "model": {"path": str(place.start(seed))},
        "play": {"device": place.device},
        "seed": seed,
        "device": place.policy,
        "keep_rollouts": True,
        "log": {"tensorboard": False},
    }
    if name == NAIVE:
        changes["play"]["reward"] = {"type": "naive_for_experiments_only"}
    return RLConfig.model_validate(merged(merged(_table(proof.rl), proof.rl_changes), changes))


def _table(path: Path) -> dict[str, Any]:
    """A recipe as it stands; the word `none` stands for nothing, as in `dojo train`."""
    return _without_none(tomllib.loads(path.read_text("utf-8")))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items()}
    return None if value == "none" else value
