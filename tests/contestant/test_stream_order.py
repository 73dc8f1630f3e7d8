"""What a call returns is read as whoever uses it next would find it, and not once the whole device is done."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from kerneldojo.contestant.arena import HostArena, Slot
from kerneldojo.contestant.host_platform import HostPlatform
from kerneldojo.contestant.runner import Runner

SOURCE = """
import torch
LATE = []

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        if self.is_late:
            LATE.append((y, x + 1))
        else:
            y.copy_(x + 1)
        return y
    is_late = False
"""


class Device(HostPlatform):
    """One on which there is work that only waiting for everything waits for."""

    late: list[tuple[torch.Tensor, torch.Tensor]]

    def loading(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def synchronize(self) -> None:
        while self.late:
            y, right = self.late.pop()
            y.copy_(right)


def answered(folder: Path, *, is_late: bool) -> torch.Tensor:
    arena = HostArena.create(1 << 16)
    platform = Device([arena.fd])
    platform.late = []
    runner = Runner(platform, folder)
    source = SOURCE.replace("    is_late = False", f"    is_late = {is_late}")
    assert "failure" not in runner.answer({"op": "load", "number": 1, "source": source, "entry_point": "ModelNew"})
    platform.late = runner._module.LATE
    room = {"start": 1 << 10, "stop": 1 << 16}
    nothing = {"instance": "a", "entry_point": "ModelNew", "seed": 1, "training": True, "arguments": {"list": []}}
    made = runner.answer({"op": "construct", "number": 2, **nothing, **room})
    assert "failure" not in made, made
    arena.view(x := Slot(offset=0, shape=[4], stride=[1], dtype="float32")).fill_(1.0)
    command = {"instance": "a", "seed": 1, "arguments": {"list": [{"tensor": x.model_dump()}]}}
    answer = runner.answer({"op": "call", "number": 3, **command, **room})
    assert "failure" not in answer, answer
    return arena.view(Slot.model_validate(answer["outputs"]["tensor"])).clone()


def test_an_output_that_nobody_has_waited_for_is_not_there_yet(tmp_path: Path) -> None:
    assert answered(tmp_path, is_late=True).tolist() == [0.0] * 4


def test_one_that_is_there_in_order_is_read_as_it_is(tmp_path: Path) -> None:
    assert answered(tmp_path, is_late=False).tolist() == [2.0] * 4
