"""What a protocol can be told, and what it refuses in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kerneldojo.judging.protocol import protocol


def test_changes_are_taken_and_what_is_not_said_stays() -> None:
    told = protocol("quick", timeout=3.0, baseline=None, precision="ieee")
    assert (told.timeout, told.baseline, told.precision, told.num_rounds) == (3.0, "eager", "ieee", 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": -1.0}, "timeout must be above 0"),
        ({"timeout": math.nan}, "timeout must be above 0"),
        ({"timeout": math.inf}, "timeout must be above 0"),
        ({"timeout": 1e300}, "at most 86400 seconds"),
        ({"baseline": "numpy"}, "unknown baseline 'numpy': choose one of eager, compile"),
        ({"precision": "fp8"}, "unknown precision 'fp8': choose one of ieee, tf32"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        protocol("standard", **changes)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="unknown protocol"):
        protocol("lenient")
