"""Whoever computes in float32 in the rounds is timed against float32, and may not compute in TF32 then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.judging import figures
from kerneldojo.judging.contestant import Delivery
from kerneldojo.judging.inspection import Witness
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.ruling import Ruling
from kerneldojo.problems.arithmetic import squared_errors
from kerneldojo.problems.precision import tf32_emulation
from kerneldojo.schema import Status


class Play:
    """Products of one problem: of the reference, and of a candidate in either arithmetic."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x, w = (torch.randn(128, 512, generator=generator) for _ in range(2))
        self.native, self.truth = self.x @ w.t(), self.x.double() @ w.double().t()
        with tf32_emulation():
            self.coarse = self.x @ w.t()
        self.fine = sum(self.x[:, at : at + 64] @ w[:, at : at + 64].t() for at in range(0, 512, 64))

    def in_(self, arithmetic: str) -> Any:
        return self.fine if arithmetic == "float32" else self.coarse

    @property
    def expected(self) -> Expected:
        runs = {"native": [self.native], "float64": [self.truth], "tf32": [self.coarse]}
        return Expected(self.native, runs, {}, mutates_inputs=False, work=[])


def rounds(arithmetic: str) -> Rounds:
    seen = Rounds(told_class="ieee" if arithmetic == "float32" else "tf32")
    for seed in range(7):
        play = Play(seed)
        errors = squared_errors(play.truth, play.native, play.coarse, play.in_(arithmetic))
        assert errors is not None
        seen.errors.append(errors)
    return seen


def check(before: str, then: str) -> None:
    play = Play(99)
    match: Any = SimpleNamespace(
        reference=SimpleNamespace(expect=lambda *_: play.expected),
        conduct=SimpleNamespace(variants=("native", "float64", "tf32"), reduction_length=512),
        delivery=Delivery(names=[], needed=False),
        seen=rounds(before),
    )
    figures._check(match, Witness(inputs=[play.x], outputs=[play.in_(then)]), [play.x.to("meta")])


@pytest.mark.parametrize(("before", "then"), [("float32", "float32"), ("TF32", "TF32"), ("TF32", "float32")])
def test_who_keeps_to_an_arithmetic_or_becomes_finer_passes(before: str, then: str) -> None:
    check(before, then)


def test_who_becomes_coarser_is_convicted() -> None:
    with pytest.raises(Ruling, match="in float32 in the rounds") as caught:
        check("float32", "TF32")
    assert caught.value.status is Status.EXPLOIT
    assert [exploit.name for exploit in caught.value.exploits] == ["wrong_when_timed"]
