"""What was recorded on busy hosts: honest kernels, of which none is found to compute its calls at once."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.series import Series, charge, fits

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
RECORDED = (
    "h200/launch-bound.jsonl.xz",
    "h200/windows-busy-host.jsonl.xz",
    "h200/windows-longer.jsonl.xz",
    "h100/windows-slow-cores.jsonl.xz",
)


def recorded(name: str) -> Iterator[tuple[dict[str, Series], float]]:
    """Each series, and how slow the cores were; 1 where that was not noted."""
    with lzma.open(RESULTS / name, "rt") as lines:
        for row in map(json.loads, lines):
            yield {side: of_side(side, windows) for side, windows in row["series"].items()}, row.get("slowness", 1.0)


def of_side(side: str, windows: list[list[float]]) -> Series:
    return Series(
        windows=[
            Window(int(length), wall, bool(undisturbed), done, prime, int(turn), bool(rest[:1] and rest[0]), *rest[1:])
            for length, wall, done, prime, undisturbed, turn, *rest in windows
        ],
        is_trusted=side == "reference",
    )


@pytest.mark.parametrize("name", RECORDED)
def test_no_honest_kernel_that_was_recorded_is_charged_as_single_calls(name: str) -> None:
    """Not even where what is launched cold takes three times as long."""
    num = 0
    for series, slowness in recorded(name):
        found = fits(series, is_final=True)
        charged = charge(series, found, "contestant", "reference", slowness)
        assert not charged.batched, charged.evidence
        num += 1
    assert num >= 30
