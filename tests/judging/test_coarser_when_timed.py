"""Whoever computes in float32 in the rounds is timed against float32, and may not compute in TF32 then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.judging import figures
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.inspection import Witness
from kerneldojo.judging.outputs import Checked, check_outputs
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.ruling import Ruling
from kerneldojo.problems.precision import tf32_emulation
from kerneldojo.schema import Status


class Play:
    """Products of one problem: of the reference, and of a candidate in either arithmetic."""

    def __init__(self, seed: int, *, is_positive: bool = False) -> None:
        generator = torch.Generator().manual_seed(seed)
        length = 4096 if is_positive else 512
        draw = torch.rand if is_positive else torch.randn
        self.x, w = (draw(64, length, generator=generator) for _ in range(2))
        self.native, self.truth = self.x @ w.t(), self.x.double() @ w.double().t()
        with tf32_emulation():
            self.coarse = self.x @ w.t()
        with tf32_emulation("nearest"):
            self.rounded = self.x @ w.t()
        self.fine = sum(self.x[:, at : at + 64] @ w[:, at : at + 64].t() for at in range(0, length, 64))

    def in_(self, arithmetic: str) -> Any:
        return {"float32": self.fine, "TF32": self.coarse, "TF32 that rounds": self.rounded}[arithmetic]

    @property
    def expected(self) -> Expected:
        runs = {"native": [self.native], "float64": [self.truth], "tf32": [self.coarse]}
        return Expected(self.native, runs, {}, mutates_inputs=False, work=[])


def answer(play: Play, arithmetic: str) -> Answer:
    got = [play.in_(arithmetic)]
    return Answer(outputs=got, kinds=[{}], untold=None, work=[], specializations=[], elapsed=0.0)


def rounds(arithmetic: str, *, is_positive: bool) -> Rounds:
    seen = Rounds()
    for seed in range(4):
        play = Play(seed, is_positive=is_positive)
        checked = check_outputs(answer(play, arithmetic), play.expected, 512, Delivery(names=[], needed=False))
        seen.note_errors(checked, "own")
    return seen


def check(before: str, then: str, *, is_positive: bool = False) -> None:
    play = Play(99, is_positive=is_positive)
    match: Any = SimpleNamespace(
        reference=SimpleNamespace(expect=lambda *_: play.expected),
        conduct=SimpleNamespace(variants=("native", "float64", "tf32"), reduction_length=512),
        delivery=Delivery(names=[], needed=False),
        seen=rounds(before, is_positive=is_positive),
    )
    figures._check(match, Witness(inputs=[play.x], outputs=[play.in_(then)]), [play.x.to("meta")])


@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("float32", "float32"),
        ("TF32", "TF32"),
        ("TF32", "float32"),
        ("TF32 that rounds", "TF32 that rounds"),
        ("TF32 that rounds", "TF32"),
    ],
)
def test_who_keeps_to_an_arithmetic_or_becomes_finer_passes(before: str, then: str, is_positive: bool) -> None:
    check(before, then, is_positive=is_positive)


@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("then", ["TF32", "TF32 that rounds"])
def test_who_becomes_coarser_is_convicted(then: str, is_positive: bool) -> None:
    """Of positive numbers what is rounded averages out, next to what is cut: only tolerances tell it."""
    with pytest.raises(Ruling, match="in float32 in the rounds") as caught:
        check("float32", then, is_positive=is_positive)
    assert caught.value.status is Status.EXPLOIT
    assert [exploit.name for exploit in caught.value.exploits] == ["wrong_when_timed"]


def test_who_errs_more_than_the_library_is_not_convicted_for_inputs_on_which_both_err_more() -> None:
    """A long sum in one order: sixty times the error of a sum in pieces, but for inputs that cancel for everybody."""
    own, cancelling = (
        torch.tensor([*(one * one for one in levels), 0.0, 4096.0])
        for levels in ((4.4e-5, 7e-7, 6.5e-4), (1e-3, 1e-3, 0.3))
    )
    seen = Rounds()
    for found, distribution in ((own, "own"), (cancelling, "signed")):
        seen.note_errors(Checked(0.1, {0: "ieee"}, {0: found.double()}), distribution)
    assert not seen.were_finer(Checked(0.1, {0: "ieee"}, {0: own.double()}))
