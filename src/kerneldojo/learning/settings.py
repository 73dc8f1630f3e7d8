"""What `dojo learn` is told: sizes of its phases, and the settings of each.

The settings are those of `recipes/laptop-sft.toml` and `recipes/laptop-rl.toml`, so that each phase can also be run by
itself; a test holds the two together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kerneldojo.schema import Frozen

if TYPE_CHECKING:
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.schema import Problem
    from kerneldojo.training.config import RLConfig, SFTConfig

COLLECTED, SFT, RL, VERDICTS = "collected", "sft", "rl", "verdicts"
"""Folders of a run."""


class LearnConfig(Frozen):
    """How much of everything; the defaults fit into a few minutes on two cores."""

    device: str = "model:h100"
    """Where answers are judged."""
    seed: int = Field(default=0, ge=0)
    """Of everything that is drawn."""
    num_graphs: int = Field(default=1100, gt=0)
    """Graphs to learn from, for the teacher and in RL."""
    num_answers: int = Field(default=1, gt=0)
    """Answers of the teacher to each."""
    sft_epochs: float = Field(default=7.5, gt=0)
    """How often each answer is imitated."""
    rl_steps: int = Field(default=20, gt=0)
    """Steps of RL."""
    prompts_per_step: int = Field(default=16, gt=0)
    """Graphs of a step."""
    samples_per_prompt: int = Field(default=16, ge=2)
    """Answers to each of them."""
    num_validation: int = Field(default=32, gt=0)
    """Graphs of `graphs:validation` on which the best checkpoint is chosen."""
    num_test: int = Field(default=96, gt=0)
    """Graphs of `graphs:test` for the figures before and after."""
    max_answer_tokens: int = Field(default=96, gt=0)
    """Longest answer; the teacher's have 30 to 45 tokens."""

    @property
    def size(self) -> Literal["small", "full"]:
        """Size of the graphs: what a device without a GPU can take, or a GPU's."""
        return "full" if self.device.startswith("cuda") else "small"

    @property
    def suite(self) -> str:
        """The graphs to learn from."""
        return f"graphs:train:{self.num_graphs}:{self.seed}"


def play_config(config: LearnConfig) -> PlayConfig:
    """How every episode goes, the teacher's and the model's alike: one turn, a compact prompt, Dr. Kernel's reward."""
    from kerneldojo.episodes import PlayConfig

    return PlayConfig(
        device=config.device,
        protocol="quick",
        style="compact",
        num_turns=1,
        max_answer_tokens=config.max_answer_tokens,
        max_prompt_tokens=1024,
    )


def graphs(config: LearnConfig, split: Literal["train", "test"]) -> list[Problem]:
    """The problems of a phase: those that are learned from, or those of the figures."""
    from kerneldojo.problems.suite import load_suite

    if split == "train":
        return load_suite(config.suite, config.size)
    return load_suite("graphs:test", config.size)[: config.num_test]


def sft_config(folder: Path, config: LearnConfig) -> SFTConfig:
    """Imitate everything that was collected, good and bad: the mixture is wanted as it is."""
    from kerneldojo.training.config import SFTConfig

    return SFTConfig.model_validate(
        {
            "output": folder / SFT,
            "data": (folder / COLLECTED,),
            "keep": {"statuses": None},
            "model": {"new": "laptop"},
            "optimizer": {
                "matrices": "muon",
                "learning_rate": 0.01,
                "schedule": "linear",
                "warmup_steps": 10,
            },
            "packing": {"row_tokens": 256, "micro_batch_tokens": 2048},
            "batch_tokens": 2048,
            "epochs": config.sft_epochs,
            "num_validation": min(32, config.num_graphs * config.num_answers // 10),
            "evaluate_every": 50,
            "checkpoint_every": 100,
            "seed": config.seed,
            "device": "cpu",
        }
    )


def rl_config(folder: Path, config: LearnConfig) -> RLConfig:
    """Dr. Kernel's reward and TRLOO, with Muon: every answer is for a graph whose answers SFT has seen."""
    from kerneldojo.training.config import RLConfig

    return RLConfig.model_validate(
        {
            "output": folder / RL,
            "problems": (config.suite,),
            "size": config.size,
            "model": {"path": str(folder / SFT / "model")},
            "play": play_config(config),
            "judge": {"cache": folder / VERDICTS},
            "learning": {"mrs": {"reference_length": 2000}, "aggregation": {"mode": "token-mean"}},
            "optimizer": {
                "matrices": "muon",
                "learning_rate": 0.003,
                "matrix_learning_rate": 0.003,
                "schedule": "linear",  # With constant steps, what is right falls from 76 % to 25 % in the last ones.
            },
            "packing": {"row_tokens": 256, "micro_batch_tokens": 4096},
            "steps": config.rl_steps,
            "prompts_per_step": config.prompts_per_step,
            "samples_per_prompt": config.samples_per_prompt,
            "evaluation": {
                "problems": ("graphs:validation",),
                "num_problems": config.num_validation,
                "every": max(1, config.rl_steps // 4),
                "temperature": 0.0,
            },
            "checkpoint_every": max(1, config.rl_steps // 4),
            "seed": config.seed,
            "device": "cpu",
        }
    )
