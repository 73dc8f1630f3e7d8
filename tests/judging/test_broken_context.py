"""A context in which a kernel of ours failed answers every call with that failure: its judge must say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kerneldojo.judging import Judge

PROGRAM = """
import torch
from kerneldojo.judging import Judge

judge = Judge()
print(judge.is_broken("cuda:0"))
judge.describe("cuda:0")
print(judge.is_broken("cuda:0"))
torch.zeros(4, device="cuda")[torch.tensor([7], device="cuda")]
print(judge.is_broken("cuda:0"), judge.is_broken("cpu"), flush=True)
import os
os._exit(0)
"""


def test_on_the_host_there_is_no_context_to_break() -> None:
    with Judge() as judge:
        assert not judge.is_broken("cpu")
        assert not judge.is_broken("model:h100")


@pytest.mark.gpu
def test_a_judge_knows_when_its_own_context_is_past_use() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.split() == ["False", "False", "True", "False"]
