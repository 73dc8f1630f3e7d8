"""What is measured of a step of RL: who is on which GPU, the run that is timed, and the figures of its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from kerneldojo.schema import Frozen
from kerneldojo.training.config import RLConfig
from kerneldojo.training.journal import read_journal
from proof.arms import merged
from proof.h200_config import CHECKED, Places, ProofConfig, rl_config

Way = Literal["shared", "apart", "ahead"]
WAYS: dict[Way, str] = {
    "shared": "all judge, one learns in between",
    "apart": "one learns, the others judge",
    "ahead": "one learns, the others judge, two steps at once",
}
COUNTS = (8, 4, 2, 1)
"""GPUs, the most interesting number first."""
NUM_SKIPPED = 2
"""Steps at the start that are not counted: workers start, and the second one may be begun beside the first."""
NUM_STEPS, TINY_STEPS = 8, 5
TINY_GRAPHS = 64
"""To play in the tiny run: of the three that its start knows no answer would be new in the counted steps."""
START: dict[str, Any] = {"num_graphs": 500, "num_answers": 3}
"""A smaller corpus than the proof's: what is timed are steps, not what they lead to."""
START_EPOCHS = 8
PARTS = ("generate", "score", "update", "wait", "other")
"""What the policy does in a step; `wait` is for verdicts with nothing else to do, `other` all that has no name."""


class Arrangement(Frozen):
    """So many GPUs, and what each is for."""

    gpus: int
    """On a modelled device, which has none: slots of judges, and a processor for the policy."""
    way: Way

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.gpus}-{self.way}"

    @property
    def num_judges(self) -> int:
        """GPUs that judge."""
        return self.gpus if self.way == "shared" else self.gpus - 1


def arrangements(most: int) -> list[Arrangement]:
    """All that so many GPUs allow: with one there is no other to judge on."""
    counts = [count for count in COUNTS if count <= most]
    return [
        Arrangement(gpus=count, way=way) for count in counts for way in reversed(WAYS) if count > 1 or way == "shared"
    ]


def short_start(proof: ProofConfig) -> ProofConfig:
    """The proof's sizes with a start that is made in minutes."""
    return proof.model_copy(update=START | {"sft_changes": proof.sft_changes | {"epochs": START_EPOCHS}})


def step_config(proof: ProofConfig, place: Places, one: Arrangement, *, tiny: bool) -> RLConfig:
    """The proof's RL under this arrangement: `judge.devices` says who judges, and nothing is evaluated or saved."""
    on_gpus = place.device == "cuda"
    num_steps, num_graphs = (TINY_STEPS, TINY_GRAPHS) if tiny else (NUM_STEPS, proof.num_graphs)
    first = 0 if one.way == "shared" else 1
    judge: dict[str, Any] = {
        "devices": [f"cuda:{index}" for index in range(first, one.gpus)] if on_gpus else [place.device],
        "slots": one.num_judges * (proof.verdicts_per_gpu if on_gpus else 1),
    }
    if not on_gpus:
        judge["after_writing"] = one.way == "shared"  # on GPUs the trainer sees by itself who shares one
    changes: dict[str, Any] = {
        "output": str(run_folder(place.out, one)),
        "problems": [f"graphs:train:{num_graphs}:0"],
        "steps": num_steps,
        "staleness": int(one.way == "ahead"),
        "judge": judge,
        "evaluation": {"problems": []},
        "checkpoint_every": num_steps,
        "keep_checkpoints": 1,
    }
    return RLConfig.model_validate(merged(rl_config(proof, place, CHECKED, proof.seeds[0]).model_dump(), changes))


def run_folder(out: Path, one: Arrangement) -> Path:
    """Of the run while it is timed."""
    return out / "work" / one.name


def figures(folder: Path, num_steps: int) -> dict[str, Any]:
    """Means over the counted steps of the run in `folder`, which may have been stopped before its last.

    The last of `num_steps` is not counted: none is begun beside it. A step weighs in `judge_busy` what it lasted.

    Raises:
        ValueError: no step counts.
    """
    played = [one for one in read_journal(folder / "metrics.jsonl") if "reward" in one]
    counted = [one for one in played if NUM_SKIPPED < one["step"] < num_steps]
    if not counted:
        raise ValueError(f"{len(played)} steps, of which none counts")
    spent = [{**one["seconds"], "other": _other(one["seconds"])} for one in counted]
    looked = [one for one in spent if "judge_busy" in one]
    total = sum(one["step"] for one in spent)
    stale = [one["staleness"] for one in counted if one.get("staleness", {}).get("samples")]
    return {
        "steps": [one["step"] for one in counted],
        "seconds": {name: sum(one.get(name, 0.0) for one in spent) / len(spent) for name in ("step", *PARTS)},
        "each step": [one["step"] for one in spent],
        "judge_busy": _ratio(
            sum(one["judge_busy"] * one["step"] for one in looked), sum(one["step"] for one in looked)
        ),
        "verdicts": sum(one["verdicts"]["judged"] for one in counted) / len(counted),
        "verdicts_a_second": sum(one["verdicts"]["judged"] for one in counted) / total,
        "correct": sum(one["correct"] for one in counted) / len(counted),
        "exploits": sum(one["exploits"] for one in counted) / len(counted),
        "masked": sum(one["num_masked"] for one in counted),
        "stale": {name: sum(one[name] for one in stale) / len(stale) for name in stale[0]} if stale else {},
        "oldest": max((_oldest(folder, one["step"]) for one in played), default=0),
    }


def _other(seconds: dict[str, float]) -> float:
    return max(0.0, seconds["step"] - sum(seconds.get(name, 0.0) for name in PARTS))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _oldest(folder: Path, step: int) -> int:
    """Updates between the weights that wrote an answer and those that learned from it, at most."""
    lines = (folder / "rollouts" / f"step-{step:06d}.jsonl").read_text("utf-8").splitlines()
    answers = [turn["answer"] for line in lines for turn in json.loads(line)["turns"]]
    return max((step - 1 - one["version"] for one in answers if one.get("version") is not None), default=0)
