"""How much of everything: the scale of a side-by-side experiment, and the configurations that follow from it.

One corpus serves all seeds, as data does in the papers. Each seed has a start of its own (a model from nothing, trained
by SFT with that seed), and all arms of a seed begin from it. A single start would be cheaper, but an interval over RL
seeds alone would speak of that one start; what one would conclude is meant for any. Since arms are compared within a
seed, the differences between starts cancel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kerneldojo.episodes import PlayConfig
from kerneldojo.problems.suite import load_suite
from kerneldojo.schema import Frozen, Problem
from kerneldojo.training.config import SFTConfig

COLLECTED, STARTS, RESULTS, WORK, VERDICTS = "collected", "starts", "results", "work", "verdicts"
"""Folders of an experiment: the corpus, a model a seed, figures, what is under way, verdicts that all share."""
DONE, SCALE = "done.json", "scale.json"
"""Files: written last of all into the folder of a piece, and once for an experiment."""


class Scale(Frozen):
    """Sizes of an experiment."""

    device: str = "model:h100"
    """Where answers are judged."""
    num_seeds: int = Field(default=8, gt=0)
    """Seeds an arm: starts, and everything that is drawn from there on."""
    num_graphs: int = Field(default=1200, gt=0)
    """Graphs of the corpus, and of RL: many, for a policy that has seen few writes nothing right for others."""
    num_single: int = Field(default=1, gt=0)
    """Answers of the teacher to each graph, in episodes of one turn."""
    num_episodes: int = Field(default=1, gt=0)
    """Its episodes of three turns for each graph."""
    repair: float = Field(default=0.35, ge=0, le=1)
    """How often the teacher makes good use of feedback: seldom, so that RL over turns has something left to learn."""
    sft_epochs: float = Field(default=6.0, gt=0)
    """How often each answer is imitated."""
    steps: int = Field(default=20, gt=0)
    """Steps of RL."""
    answers_per_step: int = Field(default=240, gt=0)
    """Answers of a step, turns counted, before any are dropped: the same for all arms, up to rounding."""
    num_validation: int = Field(default=32, ge=0)
    """Graphs of `graphs:validation` for the curves; nothing is chosen by them."""
    num_test: int = Field(default=96, gt=0)
    """Graphs of `graphs:test`, opened once a trial, after its last step."""
    test_samples: int = Field(default=4, gt=0)
    """Samples of each at temperature 1, beside the greedy answer."""
    search_problems: int = Field(default=48, ge=0)
    """Test graphs on which ways of spending calls are compared."""
    search_calls: int = Field(default=9, gt=0)
    """Budget of each search."""

    @property
    def size(self) -> Literal["small", "full"]:
        """Size of the graphs."""
        return "full" if self.device.startswith("cuda") else "small"

    @property
    def suite(self) -> str:
        """The graphs to learn from."""
        return f"graphs:train:{self.num_graphs}:0"


FULL = Scale()
SMOKE = Scale(
    num_seeds=2,
    num_graphs=3,
    num_single=4,
    sft_epochs=40,
    steps=2,
    answers_per_step=8,
    num_validation=1,
    num_test=2,
    test_samples=2,
    search_problems=1,
    search_calls=3,
)
"""Everything once, to see that it works; what comes out means nothing."""
SCALES = {"full": FULL, "smoke": SMOKE}


def play_config(scale: Scale, num_turns: int) -> PlayConfig:
    """How every episode goes, the teacher's and the models' alike."""
    return PlayConfig(
        device=scale.device,
        protocol="quick",
        style="compact",
        num_turns=num_turns,
        max_answer_tokens=96,
        max_prompt_tokens=1024,
    )


def problems_of(scale: Scale, which: Literal["train", "test", "search"]) -> list[Problem]:
    """The problems of a phase."""
    if which == "train":
        return load_suite(scale.suite, scale.size)
    count = scale.num_test if which == "test" else scale.search_problems
    return load_suite("graphs:test", scale.size)[:count]


def sft_config(scale: Scale, folder: Path, seed: int) -> SFTConfig:
    """A start: imitate everything that was collected, good and bad, in one turn and in three."""
    return SFTConfig.model_validate(
        {
            "output": folder / WORK / f"start-{seed}",
            "data": (folder / COLLECTED / "one-turn", folder / COLLECTED / "three-turns"),
            "keep": {"statuses": None},
            "model": {"new": "laptop"},
            "optimizer": {"matrices": "muon", "learning_rate": 0.01, "schedule": "linear", "warmup_steps": 10},
            "packing": {"row_tokens": 256, "micro_batch_tokens": 2048},
            "batch_tokens": 2048,
            "epochs": scale.sft_epochs,
            "num_validation": min(32, scale.num_graphs * scale.num_single // 10),
            "evaluate_every": 50,
            "checkpoint_every": 50,
            "log": {"tensorboard": False},
            "seed": seed,
            "device": "cpu",
        }
    )


def base_rl(scale: Scale, folder: Path, arm: str, seed: int) -> dict[str, Any]:
    """What all arms have in common: Dr. Kernel's settings over one turn, for a small model."""
    return {
        "output": folder / WORK / arm / f"seed-{seed}",
        "problems": (scale.suite,),
        "size": scale.size,
        "model": {"path": str(folder / STARTS / f"seed-{seed}")},
        "play": play_config(scale, 1).model_dump(exclude_unset=True),
        "judge": {"cache": folder / VERDICTS, "slots": 1},
        "learning": {"mrs": {"reference_length": 2000}, "aggregation": {"mode": "token-mean"}},
        "optimizer": {"matrices": "muon", "learning_rate": 0.003, "matrix_learning_rate": 0.003},
        "packing": {"row_tokens": 256, "micro_batch_tokens": 4096},
        "steps": scale.steps,
        "prompts_per_step": max(1, scale.answers_per_step // 15),
        "samples_per_prompt": 15,
        "evaluation": {
            "problems": ("graphs:validation",) if scale.num_validation else (),
            "num_problems": max(1, scale.num_validation),
            "every": max(1, scale.steps // 4),
            "temperature": 0.0,
        },
        "checkpoint_every": max(1, scale.steps // 10),
        "keep_rollouts": False,
        "log": {"tensorboard": False},
        "seed": seed,
        "device": "cpu",
    }
