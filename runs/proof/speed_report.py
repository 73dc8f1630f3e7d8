"""The speed of both trainers as Markdown: what each side took, and how many times theirs is ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proof.speed_ours import SIDES as OURS
from proof.speed_task import PHASES
from proof.speed_trl import WAYS
from proof.speed_vllm import SIDES as SERVED
from proof.tables import read_json

SIDES = (*OURS, *SERVED, *(f"trl-{way}" for way in WAYS))
TRY = "try"
"""Name of the short measurements by which their way of generating is chosen."""


def fastest_way(folder: Path) -> str | None:
    """The side of theirs that generates fastest; None before all ways were tried, or where none got through."""
    tried = _tried(folder)
    rates = {side: one["tokens_a_second"]["generate"] for side, one in tried.items() if "too_slow" not in one}
    return max(rates, key=lambda side: rates[side]) if rates and len(tried) == len(WAYS) else None


def _tried(folder: Path) -> dict[str, Any]:
    sides = [f"trl-{way}" for way in WAYS]
    return {side: read_json(path) for side in sides if (path := folder / f"{TRY}-{side}.json").exists()}


def report(folder: Path) -> str:
    """What is there, as Markdown."""
    lines = ["# Speed of the trainer", ""]
    for name, title in (("fixed", "Answers of equal length"), ("drawn", "Lengths drawn")):
        found = {side: read_json(path) for side in SIDES if (path := folder / f"{name}-{side}.json").exists()}
        if not found:
            continue
        lines += [f"## {title}", "", *_table(found), "", *_remarks(found), ""]
    if tried := _tried(folder):
        lines += [_tries(tried), ""]
    return "\n".join(lines)


def _tries(tried: dict[str, Any]) -> str:
    told = [
        f"`{side}` over {one['too_slow']:.0f} s for two steps"
        if "too_slow" in one
        else f"`{side}` {one['tokens_a_second']['generate']:,.0f}"
        for side, one in tried.items()
    ]
    return f"Ways that TRL generates without vLLM, one step after another one, tokens a second: {', '.join(told)}."


def _table(found: dict[str, Any]) -> list[str]:
    names = ("generate", *PHASES[1:], "learn")
    heads = ["generated", "log-probs", "forward", "backward", "step", "these four"]
    lines = ["Tokens a second (prompts count, but for what is generated), medians:", ""]
    lines += [f"| | {' | '.join(heads)} | seconds a step | without log-probs | warm-up, s | peak memory, GiB |"]
    lines.append("|---|" + "---|" * (len(heads) + 4))
    for side, one in found.items():
        rates = [_rate(one["tokens_a_second"][name]) for name in names]
        whole, bare = sum(one["median_seconds"].values()), one["median_seconds"]["log_probs"]
        memory = one["memory"]["allocated_gib"] if one["memory"] else None
        warm = sum(one["warm_up_seconds"].values())
        peak = f"{memory:.1f}" if memory else ""
        lines.append(f"| {side} | {' | '.join(rates)} | {whole:.2f} | {whole - bare:.2f} | {warm:.1f} | {peak} |")
    return lines


def _remarks(found: dict[str, Any]) -> list[str]:
    theirs = [side for side in found if side not in {*OURS, *SERVED}]
    lines: list[str] = []
    for their in theirs:
        lines.append(f"TRL {found[their]['version']}; its fastest generation without vLLM: `{their}`.")
        for side in (side for side in OURS if side in found):
            times = {
                name: found[side]["tokens_a_second"][name] / found[their]["tokens_a_second"][name]
                for name in ("generate", *PHASES[1:], "learn")
            }
            lines.append(
                f"`{side}` over `{their}`: generation {times['generate']:.2f}, log-probabilities "
                f"{times['log_probs']:.2f}, forward {times['forward']:.2f}, backward {times['backward']:.2f}, step "
                f"{times['step']:.2f}, these four {times['learn']:.2f}."
            )
        lines.append(
            "With one update a batch TRL computes no log-probabilities apart, so that its step is the column without "
            "them; ours always has them."
        )
    one = next(iter(found.values()))
    task, where = one["task"], one["machine"]
    lines.append(
        f"{task['num_prompts']} prompts of {task['prompt_tokens']} tokens, {task['num_samples']} answers each, "
        f"micro-batches of {task['micro_batch']} rows, checkpointing {'on' if task['checkpointing'] else 'off'}; "
        f"{task['num_steps']} steps after {task['num_warm']}; on {one['device']}, {', '.join(where.get('gpus', []))} "
        f"{where['processor']}, torch {where['versions'].get('torch')}, commit {where['commit']}."
    )
    weights = {f"{side}: {one['weights']}" for side, one in found.items()}
    return [*lines, f"Weights: {'; '.join(sorted(weights))}."]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
