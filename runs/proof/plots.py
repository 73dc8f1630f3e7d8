"""Pictures: learning curves with bands, forests of differences, bars side by side and on end; as PNG and as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proof.bootstrap import Difference, Floats, band

INK, MUTED, ACCENT, GREY = "#1b1f24", "#6b7280", "#2563eb", "#9ca3af"
COLOURS = ("#2563eb", "#d97706", "#059669", "#b91c1c", "#7c3aed", "#0891b2")
DPI = 150
FEW_SEEDS = 4
"""So few are drawn one by one: a band of two degrees of freedom is wider than what it is about."""


def is_possible() -> bool:
    """Whether there is a library to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def forest(path: Path, rows: Sequence[tuple[str, Difference]], *, title: str, unit: str, factor: float = 100.0) -> None:
    """Differences with their intervals one above the other, the seeds as dots; filled where 0 is outside."""
    figure, axes = _new(8.6, 0.9 + 0.42 * len(rows))
    for place, (_, one) in enumerate(reversed(rows)):
        colour = ACCENT if one.excludes_zero else GREY
        seeds, below = [factor * x for x in one.by_seed], [place - 0.24] * len(one.by_seed)
        axes.scatter(seeds, below, s=11, color=MUTED, alpha=0.6, lw=0)
        if math.isfinite(one.low):
            axes.plot([factor * one.low, factor * one.high], [place, place], color=colour, lw=2.2)
        axes.scatter([factor * one.value], [place], s=44, color=colour, zorder=3)
    axes.axvline(0, color=INK, lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel(unit)
    axes.grid(axis="x", color="#e5e7eb", lw=0.7)
    _save(figure, axes, path, title)


def curves(
    path: Path,
    arms: Mapping[str, tuple[Sequence[float], Floats]],
    *,
    title: str,
    ylabel: str,
    xlabel: str = "step of RL",
    percent: bool = True,
    first_colour: int = 0,
) -> None:
    """Means over seeds with 95 % bands; few seeds are thin lines. `arms`: name to (points, (seeds, points) values)."""
    figure, axes = _new(7.6, 4.2)
    for number, (name, (points, values)) in enumerate(arms.items()):
        factor = 100.0 if percent else 1.0
        mean, low, high = (factor * part for part in band(values))
        colour = COLOURS[(first_colour + number) % len(COLOURS)]
        axes.plot(points, mean, color=colour, lw=1.8, label=name, marker="o" if len(points) < 12 else None, ms=3.5)
        if len(values) <= FEW_SEEDS:
            axes.plot(points, factor * values.T, color=colour, lw=0.7, alpha=0.5)
        else:
            axes.fill_between(points, low, high, color=colour, alpha=0.14, lw=0)
    axes.set_xlabel(xlabel)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(ylabel)
    low, high = axes.get_ylim()
    # The band of a few seeds may go beyond what a share can be; the axis need not.
    axes.set_ylim(0 if percent else min(0.0, low), min(high, 100.0) if percent else high)
    axes.grid(color="#e5e7eb", lw=0.7)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, axes, path, title)


def bars(path: Path, groups: Mapping[str, Mapping[str, Difference]], *, title: str, ylabel: str) -> None:
    """Bars side by side: group to name to a share; its interval as a line, the seeds as dots."""
    figure, axes = _new(max(6.4, 3.4 + 1.5 * len(groups)), 4.0)
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        for place, group in enumerate(groups.values()):
            if name not in group:
                continue
            got = group[name]
            x = place + (number - (len(names) - 1) / 2) * width
            label = name if place == 0 else None
            axes.bar([x], [100 * got.value], 0.92 * width, color=COLOURS[number % len(COLOURS)], label=label)
            if math.isfinite(got.low) and math.isfinite(got.high):
                axes.plot([x, x], [100 * max(0.0, got.low), 100 * min(1.0, got.high)], color=INK, lw=0.9)
            seeds = [100 * one for one in got.by_seed]
            axes.scatter([x] * len(seeds), seeds, s=14, color="white", edgecolors=INK, lw=0.8, zorder=3)
    axes.set_xticks(np.arange(len(groups)), list(groups))
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e5e7eb", lw=0.7)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.02, 1.0))  # beside the bars, not on them
    _save(figure, axes, path, title)


def shares(
    path: Path, groups: Sequence[tuple[str, str, Sequence[tuple[str, Mapping[str, float]]]]], *, title: str, unit: str
) -> None:
    """Bars of parts laid end to end, in groups from top to bottom. `groups`: label, note and named bars of each."""
    names = list(dict.fromkeys(name for _, _, each in groups for _, parts in each for name in parts))
    colours = {name: colour for name, colour in zip(names, (*COLOURS, ACCENT, GREY), strict=False)}
    colours |= {"wait": "#e5e7eb", "idle": "#e5e7eb", "other": GREY, "judging": INK}
    figure, axes = _new(9.6, 1.0 + 0.92 * len(groups))
    ticks: list[tuple[float, str]] = []
    for number, (label, note, each) in enumerate(groups):
        top = -2.9 * number
        axes.text(0.5, top + 0.72, label, fontsize=9, color=INK)
        axes.text(99.5, top + 0.72, note, fontsize=9, color=MUTED, ha="right")
        for row, (who, parts) in enumerate(each):
            left, place = 0.0, top - 0.86 * row
            ticks.append((place, who))
            for name, share in parts.items():
                axes.barh([place], [100 * share], 0.78, left=left, color=colours[name])
                left += 100 * share
    for name in names:
        axes.barh([0], [0], color=colours[name], label=name)
    axes.set_yticks([place for place, _ in ticks], [who for _, who in ticks], fontsize=8)
    axes.set_xlim(0, 100)
    axes.set_ylim(-2.9 * (len(groups) - 1) - 1.6, 1.6)
    axes.set_xlabel(unit)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    _save(figure, axes, path, title)


def _new(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "kerneldojo"  # equal figures are equal files
    figure, axes = pyplot.subplots(figsize=(width, height))
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, axes: Any, path: Path, title: str) -> None:
    from matplotlib import pyplot

    axes.set_title(title, loc="left", fontsize=11, color=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=DPI, bbox_inches="tight")
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
