"""The arms: each is the base configuration with a few keys changed, and the comparisons that they were made for.

Arms of one seed share their start, the order of their problems and the seeds of their answers; those of one comparison
also play equally many answers a step. What differs is what `side_by_side.py --list` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from kerneldojo.schema import Frozen
from kerneldojo.training.config import RLConfig
from proof.scales import Scale, base_rl

START = "start"
"""The arm that does not learn: the policy after SFT, measured like all others."""
DROPPED = 0.25
"""Probability with which a trajectory is cut before a turn, where turns are dropped."""
UNIFORM = {"type": "kevin", "correct": 0.3 / 0.7, "speedup_cap": 2.0}
"""TritonRL's uniform reward for beta = 0.3, times 10/7: the form that does not tell plan from code."""


class Arm(Frozen):
    """One way to learn."""

    name: str
    about: str
    changes: dict[str, Any] = Field(default_factory=dict)
    """Keys of `RLConfig` that differ from the base."""
    eval_turns: int = 1
    """Turns of an episode on the test graphs."""
    searches: bool = False
    """Whether ways of spending calls are compared with its policy."""


class Comparison(Frozen):
    """Two arms, and the question that their difference answers."""

    name: str
    question: str
    treatment: str
    control: str
    turn: Literal["first", "last"] = "last"
    """Which turn of a test episode the primary figure is of."""


def config_of(arm: Arm, scale: Scale, folder: Path, seed: int) -> RLConfig:
    """The whole configuration of one trial.

    Raises:
        pydantic.ValidationError: a change that is none.
    """
    return RLConfig.model_validate(merged(base_rl(scale, folder, arm.name, seed), arm.changes))


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` put in, table by table; a table that names another `type` replaces the old one."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and "type" not in value:
            result[key] = merged(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value))
        else:
            result[key] = value
    return result


def differences(arm: Arm, scale: Scale) -> dict[str, tuple[Any, Any]]:
    """Every key in which the validated configuration of an arm differs from that of the base: (base, arm)."""
    place = Path()
    base = flat(config_of(Arm(name=arm.name, about=""), scale, place, 0).model_dump(mode="json"))
    mine = flat(config_of(arm, scale, place, 0).model_dump(mode="json"))
    return {key: (base.get(key), mine.get(key)) for key in sorted({*base, *mine}) if base.get(key) != mine.get(key)}


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def arms(scale: Scale) -> dict[str, Arm]:
    """All arms by name."""
    found = [
        Arm(name=START, about="SFT alone, episodes of three turns", eval_turns=3, searches=True),
        *_estimators(scale),
        *_rejection(),
        *_decomposition(),
        *_turns(scale),
    ]
    return {arm.name: arm for arm in found}


def _estimators(scale: Scale) -> list[Arm]:
    """TRLOO beside GRPO in groups that are small and uneven: three turns, of which some are dropped at random."""
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "trloo": ("leave one out", {"type": "trloo"}),
        "grpo": ("centred on the group's mean", {"type": "grpo", "std": False}),
        "grpo-std": ("centred, and divided by the group's deviation", {"type": "grpo", "std": True}),
    }
    return [
        Arm(
            name=f"{name}-n{size}",
            about=f"{about}; groups of at most {size}, turns dropped",
            changes={
                "play": {"num_turns": 3},
                "prompts_per_step": max(1, scale.answers_per_step // (3 * size)),
                "samples_per_prompt": size,
                "drop_turns": DROPPED,
                "learning": {"advantage": advantage},
            },
            eval_turns=3,
        )
        for size in (2, 3, 4)
        for name, (about, advantage) in kinds.items()
    ]


def _rejection() -> list[Arm]:
    """With and without PR in the reward, with and without PRS."""
    without_pr: dict[str, Any] = {"play": {"reward": {"type": "dr_kernel", "coverage": False}}}
    without_prs: dict[str, Any] = {"learning": {"prs": None}}
    return [
        Arm(name="pr-prs", about="Dr. Kernel: PR in the reward, PRS", changes={}),
        Arm(name="pr", about="PR in the reward, no PRS", changes=without_prs),
        Arm(name="prs", about="no PR in the reward, PRS", changes=without_pr),
        Arm(name="plain", about="neither", changes={**without_pr, **without_prs}),
    ]


def _decomposition() -> list[Arm]:
    """TritonRL's decomposition, and what its ablation left out: a uniform reward with plan tokens weighted."""
    hrd: dict[str, Any] = {"play": {"reward": {"type": "tritonrl"}}}
    uniform: dict[str, Any] = {"play": {"reward": UNIFORM}}
    return [
        Arm(
            name="hrd-0.1",
            about="plan paid for speed, code for being right; alpha 0.1",
            changes={**hrd, "learning": {"prs": None, "hrd": {"alpha": 0.1}}},
        ),
        Arm(
            name="hrd-1",
            about="the same with alpha 1",
            changes={**hrd, "learning": {"prs": None, "hrd": {"alpha": 1.0}}},
        ),
        Arm(name="uniform", about="one reward for all tokens", changes={**uniform, "learning": {"prs": None}}),
        Arm(
            name="uniform-0.1",
            about="one reward, plan tokens weighted by 0.1",
            changes={**uniform, "learning": {"prs": None, "hrd": {"alpha": 0.1}}},
        ),
    ]


def _turns(scale: Scale) -> list[Arm]:
    """Three turns of training beside one, at equal verdicts: the same prompts, a third of the episodes."""
    prompts = max(1, scale.answers_per_step // 15)
    return [
        Arm(
            name="multi-turn",
            about="5 episodes of 3 turns a prompt",
            changes={"play": {"num_turns": 3}, "prompts_per_step": prompts, "samples_per_prompt": 5},
            eval_turns=3,
            searches=True,
        ),
        Arm(
            name="single-turn",
            about="15 episodes of 1 turn a prompt",
            changes={"prompts_per_step": prompts, "samples_per_prompt": 15},
            eval_turns=3,
            searches=True,
        ),
    ]


COMPARISONS = (
    *(
        Comparison(
            name=f"TRLOO over {title}, N = {size}",
            question=f"groups of at most {size} with turns dropped",
            treatment=f"trloo-n{size}",
            control=f"{other}-n{size}",
        )
        for other, title in (("grpo", "GRPO"), ("grpo-std", "GRPO with std"))
        for size in (2, 3, 4)
    ),
    Comparison(
        name="with PRS over without", question="with PRS or without, PR in the reward", treatment="pr-prs", control="pr"
    ),
    Comparison(
        name="with PR over without",
        question="with PR in the reward or without, PRS on",
        treatment="pr-prs",
        control="prs",
    ),
    Comparison(name="PR and PRS over neither", question="both or neither", treatment="pr-prs", control="plain"),
    Comparison(name="HRD: alpha 0.1 over 1", question="HRD with alpha 0.1 or 1", treatment="hrd-0.1", control="hrd-1"),
    Comparison(
        name="HRD over uniform", question="HRD at 0.1 or a uniform reward", treatment="hrd-0.1", control="uniform"
    ),
    Comparison(
        name="HRD over uniform, weighted",
        question="HRD at 0.1 or a uniform reward with plan tokens weighted by 0.1",
        treatment="hrd-0.1",
        control="uniform-0.1",
    ),
    Comparison(
        name="3 turns over 1: first answer",
        question="training over three turns or one, at equal verdicts: the first turn",
        treatment="multi-turn",
        control="single-turn",
        turn="first",
    ),
    Comparison(
        name="3 turns over 1: third answer",
        question="training over three turns or one, at equal verdicts: the third turn",
        treatment="multi-turn",
        control="single-turn",
    ),
)
"""What is compared; the primary figure of each is fast@1.2 on the test graphs, sampled at temperature 1."""

STRATEGIES = ("parallel", "serial", "3x3")
"""Ways of spending calls; `3x3` is three chains of as many turns as were trained."""
SEARCHERS = (START, "multi-turn", "single-turn")
"""Arms whose policies search."""
