"""What a host offers is found by trying: once more where it is refused, for a busy host may refuse once what it has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kerneldojo.contestant.sandbox import probing


@pytest.mark.parametrize(("num_refusals", "is_found"), [(0, True), (1, True), (probing.NUM_ATTEMPTS, False)])
def test_what_is_refused_is_tried_again(tmp_path: Path, num_refusals: int, is_found: bool) -> None:
    tries = tmp_path / "tries"
    tries.touch()

    def attempt() -> None:
        with tries.open("a") as file:
            file.write(".")
        if tries.stat().st_size <= num_refusals:
            raise OSError("not now")

    assert probing._works(attempt) == is_found
    assert tries.stat().st_size == min(num_refusals + 1, probing.NUM_ATTEMPTS)


def test_what_hangs_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PATIENCE_SECONDS", 0.3)
    tries = tmp_path / "tries"

    def attempt() -> None:
        with tries.open("a") as file:
            file.write(".")
        time.sleep(600)

    assert not probing._works(attempt)
    assert tries.read_text() == "."
