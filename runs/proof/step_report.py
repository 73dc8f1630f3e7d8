"""The table and the picture of a step's time: what the policy does, and how much of it the judges are at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proof import plots
from proof.step_task import COUNTS, PARTS, WAYS, Arrangement, arrangements
from proof.tables import read_json, write_text

CLAIMED_BUSY = 0.85
"""Of the judges' slots, with two steps at once on the most GPUs (docs/results/README.md)."""


def write_report(out: Path) -> str:
    """`README.md` and the picture beside it, of what is there; returns the text."""
    known = sorted(arrangements(COUNTS[0]), key=lambda one: (-one.gpus, list(WAYS).index(one.way)))
    found = {one: read_json(path) for one in known if (path := measured(out, one)).exists()}
    if not found:
        return "nothing is measured yet"
    lines = ["# Time of a step of RL", "", *_table(found), "", *_claims(found), "", *_remarks(found), ""]
    if plots.is_possible():
        groups = [(_label(one, told["sizes"]["device"]), _note(told), _bars(told)) for one, told in found.items()]
        plots.shares(out / "steps.png", groups, title="What policy and judges do in a step", unit="% of the step")
        lines += ["![What policy and judges do in a step](steps.png)", ""]
    text = "\n".join(lines)
    write_text(out / "README.md", text)
    return text


def measured(out: Path, one: Arrangement) -> Path:
    """File of an arrangement's figures."""
    return out / "measured" / f"{one.name}.json"


def _table(found: dict[Arrangement, Any]) -> list[str]:
    heads = ["GPUs", "who does what", "step", *PARTS, "judges busy", "verdicts a step", "a second", "steps"]
    lines = ["Seconds, means over the counted steps:", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for one, told in found.items():
        seconds = [f"{told['seconds'][name]:.2f}" for name in ("step", *PARTS)]
        rates = [f"{told['verdicts']:.0f}", f"{told['verdicts_a_second']:.2f}", str(len(told["steps"]))]
        row = [str(one.gpus), WAYS[one.way], *seconds, _percent(told["judge_busy"]), *rates]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _claims(found: dict[Arrangement, Any]) -> list[str]:
    """What was claimed beforehand, of the most GPUs that were measured with two steps at once."""
    both = next((one for one in found if one.way == "ahead"), None)
    if both is None:
        return ["Two steps at once were not measured."]
    told, busy = found[both], found[both]["judge_busy"]
    holds = "is not known" if busy is None else "holds" if busy >= CLAIMED_BUSY else "does not hold"
    lines = [
        f"- {both.gpus} GPUs, two steps at once: judges are busy {_percent(busy)} of the time; "
        f"claimed are at least {_percent(CLAIMED_BUSY)}, which {holds}."
    ]
    apart = found.get(both.model_copy(update={"way": "apart"}))
    if apart is not None and told["verdicts"] and apart["verdicts"]:
        alone, together = (one["seconds"]["step"] / one["verdicts"] for one in (apart, told))
        lines.append(
            f"- A verdict costs {together:.3f} s of a step, one step after the other {alone:.3f}: "
            f"{_percent(1 - together / alone)} less."
        )
    if busy is not None:
        work = sum(told["seconds"][name] for name in ("generate", "score", "update"))
        idle = (1 - busy) * told["seconds"]["step"]
        lines.append(f"- The policy works {work:.2f} s of a step, and the judges are idle for {idle:.2f} s.")
    stale = told["stale"]
    if stale:
        lines.append(
            f"- Staleness: {_percent(stale['samples'])} of the samples, the oldest by {told['oldest']} update; "
            f"importance weights {stale['ratio']:.3f} in the mean, {stale['kl']:.2g} nats to the weights before the "
            f"update, {100 * stale['truncated']:.2f} % of the tokens truncated."
        )
    return lines


def _remarks(found: dict[Arrangement, Any]) -> list[str]:
    told = next(iter(found.values()))
    where, sizes = told["machine"], told["sizes"]
    masked = sum(one["masked"] for one in found.values())
    return [
        f"{sizes['prompts']} prompts x {sizes['samples']} answers a step of {sizes['parameters'] / 1e6:.1f} million "
        f"parameters on {sizes['device']}; {_percent(told['correct'])} of them right, {masked} "
        "without a verdict in all. `score` and `update` are the trainer's passes, `wait` is for verdicts with nothing "
        "else to do, `other` all that is not named. Busy is the share of the judges' slots with a verdict under way.",
        "",
        f"{', '.join(where.get('gpus', [])) or 'no GPU'}; {where['processor']}, {where['cores']} cores, "
        f"torch {where['versions'].get('torch')}, commit {where['commit']}.",
    ]


def _bars(told: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    whole = told["seconds"]["step"]
    policy = {name: told["seconds"][name] / whole for name in PARTS}
    bars = [("policy", policy)]
    if told["judge_busy"] is not None:
        bars.append(("judges", {"judging": told["judge_busy"], "idle": 1 - told["judge_busy"]}))
    return bars


def _label(one: Arrangement, device: str) -> str:
    what = "GPU" if device == "cuda" else f"{device} slot"
    return f"{one.gpus} {what}{'s' if one.gpus > 1 else ''}: {WAYS[one.way]}"


def _note(told: dict[str, Any]) -> str:
    step, verdicts, busy = told["seconds"]["step"], told["verdicts"], _percent(told["judge_busy"])
    return f"{step:.1f} s a step, {verdicts:.0f} verdicts, judges busy {busy}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
