"""What the proof on an H200 says: tables, data and plots from what `h200.py` left in `results/`."""

from __future__ import annotations

import csv
import lzma
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerneldojo.training.journal import read_journal
from proof import plots
from proof.bootstrap import Difference, Floats, paired, ratio
from proof.figures import MEASURES, cells, difference, level
from proof.h200_config import CHECKED, NAIVE, POLICIES, SFT, ProofConfig
from proof.tables import Row, read_json, read_rows, write_text

NAMES = {SFT: "after SFT", CHECKED: "RL, with the exploit checks", NAIVE: "RL, without them"}
MOST_EXPLOITS = 0.01
"""Share of the answers after RL that may be exploits, at every temperature."""


def write_report(out: Path, config: ProofConfig) -> str:
    """Write `README.md`, `rows.csv.xz` and plots to `out/report`; returns the text."""
    results = out / "results"
    rows = [row for path in sorted(results.glob("*/seed-*/rows.csv")) for row in read_rows(path)]
    if not rows:
        return f"nothing to report in {out}: no policy has been measured on the test graphs"
    target = out / "report"
    target.mkdir(exist_ok=True)
    ways = [f"t={temperature:g}" for temperature in config.temperatures]
    lines = ["# RL on measured times", "", *_machine(results), ""]
    lines += ["## On the test graphs", "", *_levels(rows, ways), "", "![levels](levels.svg)", ""]
    lines += ["## What was claimed", "", *_claims(results, rows, config), ""]
    lines += ["## What RL gained", "", *_gains(results, rows, config), "", "![fast@1.2](training-fast.svg)", ""]
    lines += ["## Exploits", "", *_exploits(results, rows), "", "![exploits](training-exploits.svg)", ""]
    lines += ["## Steps", "", *_steps(results)]
    text = "\n".join(lines) + "\n"
    write_text(target / "README.md", text)
    with lzma.open(target / "rows.csv.xz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row.model_fields)
        writer.writerows(row.model_dump().values() for row in rows)
    if plots.is_possible():
        _draw(results, rows, ways, target)
    return text


def _machine(results: Path) -> list[str]:
    notes = [read_json(path)["machine"] for path in sorted(results.glob("*/seed-*/done.json"))]
    seen = {
        f"{note['processor']}, {note['cores']} cores, {', '.join(note.get('gpus', ['no GPU']))}; commit "
        f"{note['commit']}; " + ", ".join(f"{name} {version}" for name, version in note["versions"].items())
        for note in notes
    }
    return [f"- {one}" for one in sorted(seen)]


def _levels(rows: Sequence[Row], ways: Sequence[str]) -> list[str]:
    """Every policy at every temperature."""
    lines = ["| policy | temperature | " + " | ".join(MEASURES) + " |", "|---|---|" + "---|" * len(MEASURES)]
    for name in POLICIES:
        for way in ways:
            parts: list[str] = []
            for measure in MEASURES:
                got = paired(level(cells(_of(rows, name), measure, way=way, turn="last"))[0])
                if got is None:
                    parts.append("")
                elif measure == "mean speedup":
                    parts.append(f"{got.value:.2f}")
                else:
                    # Student's interval of three seeds goes beyond what a share can be.
                    low, high = 100 * max(0.0, got.low), 100 * min(1.0, got.high)
                    parts.append(
                        f"{100 * got.value:.1f} %" + (f" ({low:.0f} to {high:.0f})" if math.isfinite(low) else "")
                    )
            if any(parts):
                lines.append(f"| {NAMES[name]} | {way.removeprefix('t=')} | {' | '.join(parts)} |")
    return lines


def _gains(results: Path, rows: Sequence[Row], config: ProofConfig) -> list[str]:
    """fast@1.2 of RL over SFT, each at the temperature chosen for it on the validation graphs; and greedy."""
    lines = ["| policy | seed | SFT at | fast@1.2 | itself at | fast@1.2 | ratio | greedy before, after |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name in (CHECKED, NAIVE):
        above: list[dict[tuple[int, str], float]] = []
        below: list[dict[tuple[int, str], float]] = []
        for seed in config.seeds:
            chosen = [_chosen(results, one, seed) for one in (SFT, name)]
            if not all(chosen):
                continue
            sides = [_of_seed(rows, one, seed) for one in (SFT, name)]
            both = [cells(side, "fast@1.2", way=str(way), turn="last") for side, way in zip(sides, chosen, strict=True)]
            greedy = [_mean(cells(side, "fast@1.2", way="t=0", turn="last")) for side in sides]
            if not both[0] or not both[1]:
                continue
            below.append(both[0])
            above.append(both[1])
            before, after = _mean(both[0]), _mean(both[1])
            times = f"{after / before:.2f}" if before else "from 0"
            temperatures = [str(way).removeprefix("t=") for way in chosen]
            lines.append(
                f"| {NAMES[name]} | {seed} | {temperatures[0]} | {before:.1%} | {temperatures[1]} | {after:.1%} "
                f"| {times} | {greedy[0]:.1%}, {greedy[1]:.1%} |"
            )
        if above:
            lines.append(_pooled(name, above, below))
    return lines


def _claims(results: Path, rows: Sequence[Row], config: ProofConfig) -> list[str]:
    """Whether what was claimed beforehand (docs/results/README.md) holds, for each seed that has been tested."""
    lines = ["| seed | at least twofold | greedy rises | exploits, at the temperature with most of them | all hold |"]
    lines.append("|---|---|---|---|---|")
    for seed in config.seeds:
        chosen = [_chosen(results, one, seed) for one in (SFT, CHECKED)]
        sides = [_of_seed(rows, one, seed) for one in (SFT, CHECKED)]
        if not all(chosen) or not all(sides):
            continue
        before, after = (_fast(side, str(way)) for side, way in zip(sides, chosen, strict=True))
        greedy = [_fast(side, "t=0") for side in sides]
        ways = sorted({row.way for row in sides[1]})
        most = max(_mean(cells(sides[1], "exploits", way=way, turn="last")) for way in ways)
        holds = [after >= 2 * before, greedy[1] > greedy[0], most <= MOST_EXPLOITS]
        told = [f"{before:.1%} -> {after:.1%}", f"{greedy[0]:.1%} -> {greedy[1]:.1%}", f"{most:.2%}"]
        told = [f"{one}: {'yes' if held else 'NO'}" for one, held in zip(told, holds, strict=True)]
        lines.append(f"| {seed} | {' | '.join(told)} | {'yes' if all(holds) else 'NO'} |")
    return lines


def _pooled(name: str, above: Sequence[dict[Any, float]], below: Sequence[dict[Any, float]]) -> str:
    one, other = (_table({key: value for part in side for key, value in part.items()}) for side in (above, below))
    value, low, high = ratio(one, other)
    ends = f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else ""
    if not math.isfinite(value):
        return f"| {NAMES[name]} | all | | 0.0% | | {np.nanmean(one):.1%} | from 0 | |"
    return f"| {NAMES[name]} | all | | {np.nanmean(other):.1%} | | {np.nanmean(one):.1%} | **{value:.2f}**{ends} | |"


def _table(figure: dict[tuple[int, str], float]) -> Floats:
    return level(figure)[0]


def _exploits(results: Path, rows: Sequence[Row]) -> list[str]:
    """Shares under the full judge; of those in training, how many were in the corpus."""
    corpus = read_json(results / "corpus.json")
    known = set(corpus["exploits"])
    total = sum(corpus["statuses"].values())
    cheats = corpus["statuses"].get("exploit", 0)
    lines = [f"The corpus has {cheats} exploits among {total} answers, with {len(known)} signatures.", ""]
    lines += [
        "| policy | exploits on the test graphs | of them with a signature of the corpus | new |",
        "|---|---|---|---|",
    ]
    for name in POLICIES:
        own = [row for row in _of(rows, name) if row.status not in ("invalid_problem", "infrastructure_error")]
        found = [row for row in own if row.signature]
        old = sum(row.signature in known for row in found)
        if own:
            lines.append(f"| {NAMES[name]} | {_share(len(found), len(own))} | {old} | {len(found) - old} |")
    got = [
        paired(difference(*(cells(_of(rows, name), "exploits", way=way, turn="last") for name in (NAIVE, CHECKED)))[0])
        for way in ("t=1",)
    ]
    if got[0] is not None:
        ends = f" ({100 * got[0].low:+.1f} to {100 * got[0].high:+.1f})" if math.isfinite(got[0].low) else ""
        lines += ["", f"Without checks minus with, at temperature 1: {100 * got[0].value:+.1f} points{ends}."]
    lines += ["", "| policy | seed | exploits in training | signatures | known | new | answers with a new one |"]
    lines.append("|---|---|---|---|---|---|---|")
    fresh: dict[str, dict[str, Any]] = {}
    for path in sorted(results.glob("*/seed-*/rollouts.json")):
        counts: Counter[str] = Counter()
        for step in read_json(path):
            counts.update(step["exploits"])
            fresh |= {one: example for one, example in step["examples"].items() if one not in known}
        new = {one: count for one, count in counts.items() if one not in known}
        told = [NAMES[path.parent.parent.name], path.parent.name.removeprefix("seed-"), counts.total(), len(counts)]
        told += [len(counts) - len(new), len(new), sum(new.values())]
        lines.append(f"| {' | '.join(map(str, told))} |")
    for one, example in sorted(fresh.items()):
        lines += ["", f"New: `{one}`, {', '.join(example['names'])}", "", "```", *example["outline"], "```"]
    return lines


def _steps(results: Path) -> list[str]:
    """Where a step's time went."""
    names = ("generate", "wait", "score", "update", "step", "judge_busy")
    lines = [
        "Mean seconds of a step (`wait`: for verdicts; `judge_busy`: share of the time in which judges worked):",
        "",
    ]
    lines += ["| policy | seed | steps | " + " | ".join(names) + " | verdicts asked | judged | judged a minute |"]
    lines.append("|---|---|---|" + "---|" * (len(names) + 3))
    for path in sorted(results.glob("*/seed-*/metrics.jsonl")):
        records = [record for record in read_journal(path) if "reward" in record]
        if not records:
            continue
        means = [np.mean([record["seconds"].get(name, 0.0) for record in records]) for name in names]
        asked, judged = (sum(record["verdicts"][key] for record in records) for key in ("asked", "judged"))
        minutes = sum(record["seconds"]["generate"] + record["seconds"]["wait"] for record in records) / 60
        told = [path.parent.parent.name, path.parent.name.removeprefix("seed-"), len(records)]
        told += [f"{mean:.1f}" for mean in means[:-1]] + [f"{means[-1]:.0%}"]
        told += [asked, judged, f"{judged / minutes:.0f}" if minutes else ""]
        lines.append(f"| {' | '.join(map(str, told))} |")
    return lines


def _draw(results: Path, rows: Sequence[Row], ways: Sequence[str], target: Path) -> None:
    groups: dict[str, dict[str, Difference]] = {}
    for way in ways:
        for name in POLICIES:
            got = paired(level(cells(_of(rows, name), "fast@1.2", way=way, turn="last"))[0])
            if got is not None:
                label = f"temperature {way.removeprefix('t=')}"
                groups.setdefault(label, {})[NAMES[name]] = got
    title = "fast@1.2 on the test graphs, judged in full"
    plots.bars(target / "levels", groups, title=title, ylabel="fast@1.2, %")
    for key, label in (("fast_1.2", "fast@1.2"), ("exploits", "exploits")):
        curves = {NAMES[name]: _curve(results, name, key) for name in (CHECKED, NAIVE)}
        drawn = {name: got for name, got in curves.items() if got is not None}
        if drawn:
            title = f"{label} among the answers in training, judged in full"
            place = target / f"training-{key.split('_')[0]}"
            # The start, the first of POLICIES, has the first colour among the bars.
            plots.curves(place, drawn, title=title, ylabel="share of answers, %", first_colour=1)


def _curve(results: Path, name: str, key: str) -> tuple[Sequence[float], Floats] | None:
    runs = [read_journal(path) for path in sorted((results / name).glob("seed-*/metrics.jsonl"))]
    runs = [[record for record in records if "reward" in record] for records in runs]
    steps = sorted({record["step"] for records in runs for record in records})
    if not steps:
        return None
    values = np.full((len(runs), len(steps)), np.nan)
    for place, records in enumerate(runs):
        for record in records:
            values[place, steps.index(record["step"])] = record[key]
    return steps, values


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({count / total:.1%})"


def _chosen(results: Path, name: str, seed: int) -> str | None:
    path = results / name / f"seed-{seed}" / "validation.json"
    return read_json(path)["chosen"] if path.exists() else None


def _of(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row.arm == name]


def _of_seed(rows: Sequence[Row], name: str, seed: int) -> list[Row]:
    return [row for row in rows if row.arm == name and row.seed == seed]


def _fast(rows: Sequence[Row], way: str) -> float:
    return _mean(cells(rows, "fast@1.2", way=way, turn="last"))


def _mean(figure: dict[tuple[int, str], float]) -> float:
    return sum(figure.values()) / len(figure) if figure else math.nan
