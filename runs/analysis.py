"""What a side-by-side experiment says: paired differences with intervals, as Markdown, CSV, PNG and SVG.

    python runs/analysis.py FOLDER [FOLDER ...] --out docs/results/side-by-side

Reads `results/` of the folders that `side_by_side.py` wrote (or that a pack was unpacked into; several are joined) and
writes `README.md`, `differences.csv`, `levels.csv`, `rows.csv.xz` (the raw data) and the plots. Which figure is primary
was fixed beforehand in docs/results/README.md; the others are there to be looked at. Nothing here is run on a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proof import plots
from proof.arms import COMPARISONS, SEARCHERS, STRATEGIES, Comparison
from proof.bootstrap import Difference, Floats, paired
from proof.figures import MEASURES, cells, difference, level
from proof.scales import COLLECTED, DONE, RESULTS, SCALE
from proof.tables import Row, read_json, read_rows

from kerneldojo.search.record import SearchRecord
from kerneldojo.search.record import read as read_searches
from kerneldojo.training.journal import read_journal

SAMPLED, GREEDY = "t=1", "greedy"
PRIMARY = "fast@1.2"
TRAINING, LAST_STEPS = "fast@1.2 in training", 5
"""A figure of the graphs of training, over so many last steps."""
DIFFERENCE_COLUMNS = ("comparison", "treatment", "control", "turn", "measure", "way", "primary")
VALUE_COLUMNS = ("value", "low", "high", "seeds", "problems")
CURVES = ("reward", "correct", "fast_1.2", "exploits", "coverage", "entropy")
"""Numbers of the logs of training that are kept as data."""
Key = tuple[str, int]
"""An arm and a seed."""


def _are_one_experiment(folders: Sequence[Path]) -> None:
    """See that all have one scale and one corpus, as far as they say; a line and the end if not."""
    for what, path in (("scale", Path(SCALE)), ("corpus", Path(COLLECTED, DONE))):
        told = {folder: read_json(folder / path) for folder in folders if (folder / path).exists()}
        found = {json.dumps(one.get("digest", one), sort_keys=True) for one in told.values()}
        if len(found) > 1:
            raise SystemExit(f"{', '.join(map(str, told))} cannot be joined: each has another {what}")


class Results:
    """Everything that was measured, by arm and seed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Read folders; a trial counts once it is done, and in the first folder that has it."""
        self.rows: dict[Key, list[Row]] = {}
        self.metrics: dict[Key, list[dict[str, Any]]] = {}
        self.searches: dict[Key, list[SearchRecord]] = {}
        self.notes: dict[Key, dict[str, Any]] = {}
        _are_one_experiment(folders)
        for folder in folders:
            for done in sorted((folder / RESULTS).glob("*/seed-*/done.json")):
                key = (done.parent.parent.name, int(done.parent.name.removeprefix("seed-")))
                if key in self.rows:
                    continue
                self.rows[key] = read_rows(done.with_name("rows.csv"))
                self.notes[key] = read_json(done)
                if (metrics := done.with_name("metrics.jsonl")).exists():
                    self.metrics[key] = read_journal(metrics)
                if (searches := done.with_name("searches.jsonl")).exists():
                    self.searches[key] = list(read_searches(searches))
        if not self.rows:
            raise SystemExit(f"no finished trial in {', '.join(map(str, folders))}")

    @property
    def arms(self) -> list[str]:
        """Arms with at least one finished trial."""
        return list(dict.fromkeys(arm for arm, _ in self.rows))

    def of(self, arm: str) -> list[Row]:
        """All rows of an arm."""
        return [row for (name, _), rows in self.rows.items() if name == arm for row in rows]


def compare(results: Results, one: Comparison, measure: str, way: str, turn: str) -> Difference | None:
    """Treatment minus control."""
    sides = [cells(results.of(arm), measure, way=way, turn=turn) for arm in (one.treatment, one.control)]
    return paired(difference(*sides)[0])


def compare_all(results: Results) -> list[dict[str, Any]]:
    """Every comparison by every measure, sampled and greedy; primary is what was fixed beforehand."""
    found: list[dict[str, Any]] = []
    for one in COMPARISONS:
        if (trained := compare_training(results, one)) is not None:
            found.append({"comparison": one, "measure": TRAINING, "way": SAMPLED, "primary": False, "result": trained})
        for measure in MEASURES:
            for way in (SAMPLED, GREEDY):
                got = compare(results, one, measure, way, one.turn)
                if got is not None:
                    is_primary = measure == PRIMARY and way == SAMPLED
                    found.append(
                        {"comparison": one, "measure": measure, "way": way, "primary": is_primary, "result": got}
                    )
    return found


def training_cells(results: Results, arm: str, turn: str) -> dict[tuple[int, str], float]:
    """fast@1.2 of the answers in training in each of the last `LAST_STEPS` steps, by seed and step."""
    found: dict[tuple[int, str], float] = {}
    for (name, seed), records in results.metrics.items():
        if name != arm:
            continue
        for record in [record for record in records if "reward" in record][-LAST_STEPS:]:
            turns = [record["turns"][key] for key in sorted(record.get("turns") or {}, key=int)] or [record]
            found[seed, f"step {record['step']}"] = turns[0 if turn == "first" else -1]["fast_1.2"]
    return found


def compare_training(results: Results, one: Comparison) -> Difference | None:
    """Treatment minus control on the graphs of training, where both played the same turn."""
    if one.treatment == "multi-turn" and one.turn == "last":
        return None
    sides = [training_cells(results, arm, one.turn) for arm in (one.treatment, one.control)]
    return paired(difference(*sides)[0])


def search_cells(results: Results, arm: str, strategy: str, calls: int) -> dict[tuple[int, str], float]:
    """Whether a search would have announced more than 1.2 after so many calls, by seed and problem."""
    return {
        (seed, record.problem): float(record.speedups[calls - 1] > 1.2)
        for (name, seed), records in results.searches.items()
        if name == arm
        for record in records
        if record.strategy == strategy and len(record.speedups) >= calls
    }


def compare_searches(results: Results) -> list[tuple[str, str, Difference]]:
    """Each strategy minus parallel sampling, by arm, under the whole budget."""
    found: list[tuple[str, str, Difference]] = []
    for arm in SEARCHERS:
        budget = search_budget(results, arm)
        base = search_cells(results, arm, STRATEGIES[0], budget) if budget else {}
        for strategy in STRATEGIES[1:]:
            got = paired(difference(search_cells(results, arm, strategy, budget), base)[0]) if base else None
            if got is not None:
                found.append((arm, strategy, got))
    return found


def search_budget(results: Results, arm: str) -> int:
    """Calls of the searches of an arm; 0 where there are none."""
    lengths = [len(one.speedups) for (name, _), records in results.searches.items() if name == arm for one in records]
    return min(lengths, default=0)


# Text


def report(results: Results, found: Sequence[dict[str, Any]]) -> str:
    """The Markdown page."""
    seeds = {arm: sorted(seed for name, seed in results.rows if name == arm) for arm in results.arms}
    counts = sorted({len(one) for one in seeds.values()})
    lines = ["# Side by side on the modelled H100", ""]
    lines += [f"{len(results.rows)} trials, {'/'.join(map(str, counts))} seeds an arm. {_machines(results)}", ""]
    lines += [
        "Differences are treatment minus control, in percentage points of fast@1.2 on the test graphs, sampled at"
    ]
    lines += ["temperature 1, with 95 % intervals (seeds and problems drawn again; see ../README.md). None is adjusted"]
    lines += [f"for there being {len(COMPARISONS)} of them. Modelled times are for development: see docs/trust.md.", ""]
    lines += ["## Primary", "", "| comparison | treatment | control | difference | 95 % interval | seeds for |"]
    lines += ["|---|---|---|---|---|---|"]
    for row in found:
        if row["primary"]:
            lines.append(_difference_line(results, row))
    lines += ["", "![forest](forest.svg)", "", "## Other figures", ""]
    lines += _other_lines(found)
    lines += ["", "## Serial refinement and parallel sampling", ""]
    lines += _search_lines(results)
    lines += ["", "## Levels", "", *_level_lines(results), ""]
    pictures = [f"curves-{name}" for name, wanted in families().items() if set(wanted) & set(results.arms)]
    pictures += ["searches"] if search_budget(results, "multi-turn") else []
    lines += [f"![{name}]({name}.svg)" for name in pictures]
    return "\n".join(lines) + "\n"


def _other_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """A line a comparison, a column a figure that is not primary."""
    columns = [*((measure, SAMPLED) for measure in (*MEASURES, TRAINING) if measure != PRIMARY), (PRIMARY, GREEDY)]
    heads = [measure if way == SAMPLED else f"greedy {measure}" for measure, way in columns]
    lines = [f"| comparison | {' | '.join(heads)} |", "|---|" + "---|" * len(columns)]
    for name in dict.fromkeys(row["comparison"].name for row in found):
        own = {(row["measure"], row["way"]): row for row in found if row["comparison"].name == name}
        shown = [own.get(column) for column in columns]
        parts = [
            "" if row is None else f"{_signed(row, row['result'])} ({_interval(row, row['result'])})" for row in shown
        ]
        lines.append(f"| {name} | {' | '.join(parts)} |")
    return lines


def _difference_line(results: Results, row: Mapping[str, Any]) -> str:
    one, got = row["comparison"], row["result"]
    sides = [
        paired(level(cells(results.of(arm), PRIMARY, way=SAMPLED, turn=one.turn))[0])
        for arm in (one.treatment, one.control)
    ]
    shown = " | ".join(f"{100 * side.value:.1f} %" if side else "" for side in sides)
    better = sum(value > 0 for value in got.by_seed)
    mark = " **" if got.excludes_zero else " "
    end = "**" if got.excludes_zero else ""
    return (
        f"| {one.name} | {shown.partition(' | ')[0]} | {shown.partition(' | ')[2]} |{mark}{_signed(row, got)}{end} "
        f"| {_interval(row, got)} | {better} of {got.num_seeds} |"
    )


def _search_lines(results: Results) -> list[str]:
    lines = ["Share of problems with an announced speedup above 1.2 (judged twice), minus that of `parallel`:", ""]
    lines += ["| policy | calls | strategy | difference | 95 % interval |", "|---|---|---|---|---|"]
    for arm, strategy, got in compare_searches(results):
        ends = f"{100 * got.low:+.1f} to {100 * got.high:+.1f}"
        lines.append(f"| {arm} | {search_budget(results, arm)} | {strategy} | {100 * got.value:+.1f} | {ends} |")
    return lines


def _level_lines(results: Results) -> list[str]:
    lines = ["| arm | seeds | turn | " + " | ".join(MEASURES) + " | greedy fast@1.2 |"]
    lines.append("|---|---|---|" + "---|" * (len(MEASURES) + 1))
    for arm in results.arms:
        rows = results.of(arm)
        for turn in ("first", "last") if max(row.turn for row in rows) else ("last",):
            parts: list[str] = []
            for measure, way in [*((measure, SAMPLED) for measure in MEASURES), (PRIMARY, GREEDY)]:
                got = paired(level(cells(rows, measure, way=way, turn=turn))[0])
                parts.append("" if got is None else _plain(measure, got.value))
            num_seeds = len({row.seed for row in rows})
            lines.append(f"| {arm} | {num_seeds} | {turn} | {' | '.join(parts)} |")
    return lines


def _plain(measure: str, value: float) -> str:
    return f"{value:.3f}" if measure == "mean speedup" else f"{100 * value:.1f} %"


def _signed(row: Mapping[str, Any], got: Difference) -> str:
    return f"{got.value:+.3f}" if row["measure"] == "mean speedup" else f"{100 * got.value:+.1f}"


def _interval(row: Mapping[str, Any], got: Difference) -> str:
    if not math.isfinite(got.low):
        return "one seed: none"
    if row["measure"] == "mean speedup":
        return f"{got.low:+.3f} to {got.high:+.3f}"
    return f"{100 * got.low:+.1f} to {100 * got.high:+.1f}"


def _machines(results: Results) -> str:
    seen = {
        f"{note['machine']['processor']}, {note['machine']['cores']} cores, commit {note['machine']['commit']}, "
        f"torch {note['machine']['versions'].get('torch', '?')}"
        for note in results.notes.values()
        if "machine" in note
    }
    return "Machines: " + "; ".join(sorted(seen)) + "."


# Data and pictures


def write_data(results: Results, found: Sequence[dict[str, Any]], out: Path) -> None:
    """Raw rows, and all differences."""
    with lzma.open(out / "rows.csv.xz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row.model_fields)
        for key in sorted(results.rows):
            writer.writerows(row.model_dump().values() for row in results.rows[key])
    with (out / "differences.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*DIFFERENCE_COLUMNS, *VALUE_COLUMNS))
        for row in found:
            one, got = row["comparison"], row["result"]
            told = [one.name, one.treatment, one.control, one.turn, row["measure"], row["way"], int(row["primary"])]
            writer.writerow([*told, got.value, got.low, got.high, got.num_seeds, got.num_problems])
    with (out / "curves.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("arm", "seed", "step", *CURVES, "validation fast_1.2"))
        for (arm, seed), records in sorted(results.metrics.items()):
            for record in records:
                shown = record.get("evaluation", {})
                named = [record.get(name, "") for name in ("reward", "correct", "fast_1.2", "exploits", "coverage")]
                writer.writerow(
                    [arm, seed, record["step"], *named, record.get("entropy", ""), shown.get("fast_1.2", "")]
                )


def draw(results: Results, found: Sequence[dict[str, Any]], out: Path) -> None:
    """All pictures."""
    primary = [(row["comparison"].name, row["result"]) for row in found if row["primary"]]
    if primary:
        title = "fast@1.2 on the test graphs, sampled: treatment minus control"
        plots.forest(
            out / "forest",
            primary,
            title=title,
            unit="percentage points, 95 % interval (blue where it leaves 0 out); dots are seeds",
        )
    for name, wanted in families().items():
        shown = {arm: curve(results, arm, "fast_1.2") for arm in wanted if arm in results.arms}
        shown = {arm: got for arm, got in shown.items() if got is not None}
        if shown:
            title = f"fast@1.2 of the answers in training: {name}"
            plots.curves(out / f"curves-{name}", shown, title=title, ylabel="fast@1.2, %")
    searching: dict[str, tuple[Sequence[float], Floats]] = {}
    for strategy in STRATEGIES:
        if (budget := search_budget(results, "multi-turn")) > 0:
            values = [search_cells(results, "multi-turn", strategy, calls) for calls in range(1, budget + 1)]
            searching[strategy] = (range(1, budget + 1), by_seed(values))
    if searching:
        title = "Spending calls: problems with an announced speedup above 1.2"
        plots.curves(out / "searches", searching, title=title, ylabel="problems, %", xlabel="calls")


def families() -> dict[str, list[str]]:
    """Arms that are drawn together."""
    return {
        **{f"estimators-n{size}": [f"{name}-n{size}" for name in ("trloo", "grpo", "grpo-std")] for size in (2, 3, 4)},
        "rejection": ["pr-prs", "pr", "prs", "plain"],
        "decomposition": ["hrd-0.1", "hrd-1", "uniform", "uniform-0.1"],
        "turns": ["multi-turn", "single-turn"],
    }


def curve(results: Results, arm: str, name: str) -> tuple[Sequence[float], Floats] | None:
    """(steps, (seeds, steps) values) of a number in the logs of training."""
    seeds = [records for (one, _), records in results.metrics.items() if one == arm]
    steps = sorted({record["step"] for records in seeds for record in records if name in record})
    if not steps:
        return None
    values = np.full((len(seeds), len(steps)), np.nan)
    for row, records in enumerate(seeds):
        for record in records:
            if name in record and record[name] is not None:
                values[row, steps.index(record["step"])] = record[name]
    return steps, values


def by_seed(points: Sequence[Mapping[tuple[int, str], float]]) -> Floats:
    """(seeds, points): means over problems."""
    seeds = sorted({seed for point in points for seed, _ in point})
    values = np.full((len(seeds), len(points)), np.nan)
    for column, point in enumerate(points):
        gathered: dict[int, list[float]] = defaultdict(list)
        for (seed, _), value in point.items():
            gathered[seed].append(value)
        for seed, own in gathered.items():
            values[seeds.index(seed), column] = sum(own) / len(own)
    return values


def main(told: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="folder for tables and plots; by default FOLDER/analysis")
    args = parser.parse_args(told)
    out = args.out or args.folders[0] / "analysis"
    out.mkdir(parents=True, exist_ok=True)
    results = Results(args.folders)
    found = compare_all(results)
    write_data(results, found, out)
    text = report(results, found)
    (out / "README.md").write_text(text, "utf-8")
    if plots.is_possible():
        draw(results, found, out)
    else:
        print("no plots: matplotlib is not installed", file=sys.stderr)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
