"""A run as one HTML file that needs nothing else: no server, no other host, no other file.

What candidates wrote (code, names of kernels, messages) is hostile. It reaches the page only as data: the head holds
one JSON object in which `<`, `>`, `&` are spelled as escapes, the episodes are compressed and in base64, and the script
puts every string on the page as text, never as markup. Should that ever fail, the page's Content-Security-Policy allows
one script, by its hash, and no connection to anywhere.

A large run must still open. The head has one small number row a turn; the long texts of each problem are one compressed
block, unpacked when one of its episodes is looked at, and within a block each text is stored once however often it was
written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kerneldojo.files import write_whole
from kerneldojo.report.comparison import Comparison
from kerneldojo.report.metrics import Metrics, MetricsConfig
from kerneldojo.report.outcomes import BEST, LAST, attempts_of, cell_of, problem_key
from kerneldojo.schema import Episode, Evaluation, Turn
from kerneldojo.schema.finite import finite

WEB = Path(__file__).parents[1] / "web"
"""Style and scripts, shared with the service's pages."""
MAX_TEXT = 100_000
"""Longest single text that a page holds, in characters; the run folder has all of it."""
SPEED_STEPS = 160
"""Steps of p over which the fast_p curve is drawn."""
LEAST_SPEED, MOST_SPEED = 2.0, 16.0
"""Where the curve may end; it goes a little beyond the best speedup where it can."""


def write_report(
    path: Path, episodes: Iterable[Episode], metrics: Metrics, *, title: str, about: dict[str, str] | None = None
) -> None:
    """Write the report of a run to `path`, replacing it in one piece.

    Args:
        path: the HTML file.
        episodes: the run's episodes.
        metrics: what `measure` found for them.
        title: heading of the page.
        about: what a reader should know of the run, as pairs of a word and a value.
    """
    episodes = list(episodes)
    head, blocks = _content(episodes, metrics.config)
    data = {"title": title, "about": about or {}, "metrics": _plain(metrics), **head}
    _write(path, title, data, blocks, script="report.js")


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write the comparison of two runs to `path`, replacing it in one piece."""
    title = f"{comparison.a} and {comparison.b}"
    _write(path, title, {"title": title, "comparison": _plain(comparison)}, [], script="compare.js")


def inert_json(value: Any) -> str:
    """`value` as JSON that cannot end the element that it stands in; NaN and infinities become null."""
    text = json.dumps(finite(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _write(path: Path, title: str, data: dict[str, Any], blocks: Sequence[str], *, script: str) -> None:
    code = "\n".join(_asset(name) for name in ("text.js", "charts.js", script))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = _asset("report.html")
    parts = {
        "{{title}}": _escape(title),
        "{{hash}}": f"sha256-{digest}",
        "{{style}}": _asset("dojo.css") + _asset("report.css"),
        "{{data}}": inert_json(data),
        "{{blocks}}": "\n".join(
            f'<script type="text/plain" id="block-{number}">{block}</script>' for number, block in enumerate(blocks)
        ),
        "{{script}}": code,
    }
    pieces: list[str] = []
    rest = page
    for mark, text in parts.items():  # in the order of the template, so that no text is searched for marks
        before, found, rest = rest.partition(mark)
        assert found, f"report.html lacks {mark}"
        pieces += [before, text]
    write_whole(path, "".join([*pieces, rest]).encode())


def _content(episodes: Sequence[Episode], config: MetricsConfig) -> tuple[dict[str, Any], list[str]]:
    """The head's rows and, for each problem, its block of long texts."""
    grouped: dict[str, list[Episode]] = {}
    for episode in episodes:
        grouped.setdefault(problem_key(episode.problem), []).append(episode)
    problems: list[dict[str, Any]] = []
    blocks: list[str] = []
    for key, group in grouped.items():
        group.sort(key=lambda episode: episode.sample)
        rows = [_row(one, config) for one in group]
        problems.append({"name": key, "notes": group[0].problem.notes, "episodes": rows})
        blocks.append(_block(group))
    return {"problems": problems, "fast": _fast_curves(episodes, config)}, blocks


def _row(episode: Episode, config: MetricsConfig) -> dict[str, Any]:
    turns: list[list[Any]] = []
    for turn in episode.turns:
        cell = cell_of(turn, turn.evaluation, credited=config.credited)
        turns.append([cell.outcome, _rounded(cell.speedup), _rounded(cell.coverage), int(cell.scored)])
    return {"sample": episode.sample, "finish": episode.finish, "turns": turns}


def _block(group: Sequence[Episode]) -> str:
    """The long texts of one problem's episodes: JSON with a table of distinct texts, deflated, in base64."""
    texts: dict[str, int] = {}

    def at(text: str) -> int:
        if len(text) > MAX_TEXT:
            text = f"{text[:MAX_TEXT]}\n… ({len(text) - MAX_TEXT} characters more in the run folder)"
        return texts.setdefault(text, len(texts))

    rows = [[_detail(turn, at) for turn in episode.turns] for episode in group]
    content: dict[str, Any] = {"reference": at(group[0].problem.source), "episodes": rows}
    content["texts"] = list(texts)
    data = json.dumps(finite(content), ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _detail(turn: Turn, at: Any) -> dict[str, Any]:
    verdict = turn.evaluation
    detail: dict[str, Any] = {
        "answer": at(turn.answer.text),
        "code": at(turn.candidate.source) if turn.candidate else None,
        "feedback": at(turn.feedback),
        "reward": turn.reward,
        "finish": turn.answer.finish,
        "error": turn.answer.error,
        "usage": turn.answer.usage.model_dump(),
        "verdict": _verdict(verdict, at) if verdict else None,
    }
    return detail


def _verdict(verdict: Evaluation, at: Any) -> dict[str, Any]:
    kept = {
        "speedup", "coverage", "kernel_ms", "reference_ms", "exploits", "device", "precision_class", "max_error",
        "kernels", "unverified", "roofline", "notes",
    }  # fmt: skip
    shown = verdict.model_dump(mode="json", include=kept)
    shown["kernels"] = sorted(shown["kernels"], key=lambda kernel: -(kernel["device_ms"] or 0))[:20]
    protocol = verdict.protocol
    return shown | {
        "message": at(verdict.message),
        "modeled": verdict.timing.source == "modeled",
        "interval": verdict.timing.confidence_interval_ms,
        "trials": verdict.timing.num_trials,
        "host_bound": verdict.timing.host_bound,
        "protocol": f"{protocol.name} {protocol.version}: {protocol.num_rounds} rounds, {protocol.precision}, "
        f"against {protocol.baseline}",
        "isolation": list(protocol.isolation),
    }


def _fast_curves(episodes: Sequence[Episode], config: MetricsConfig) -> dict[str, Any]:
    """fast_p of all samples over p, as the figures have it, for the last turn and the best of history."""
    attempts = attempts_of(episodes, credited=config.credited)
    chosen = {one.label: [cell for group in attempts.selected(one) for cell in group] for one in (LAST, BEST)}
    speeds = [cell.speedup for cells in chosen.values() for cell in cells if cell.speedup is not None]
    end = min(max(math.ceil(1.05 * max(speeds, default=0.0)), LEAST_SPEED), MOST_SPEED)
    grid = [round(end * step / SPEED_STEPS, 4) for step in range(SPEED_STEPS + 1)]
    is_fast = operator.gt if config.strictly else operator.ge
    curves: dict[str, Any] = {"p": grid}
    for label, cells in chosen.items():
        found = [cell.speedup for cell in cells if cell.speedup is not None]
        total = len(found) + sum(not cell.correct for cell in cells)  # what is right and was not timed has no place
        if found:
            curves[label] = [sum(is_fast(speed, p) for speed in found) / total for p in grid]
    return curves


def _asset(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _escape(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _plain(value: BaseModel) -> Any:
    return value.model_dump(mode="json")


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
