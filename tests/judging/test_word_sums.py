"""One pass weighs each word by a number of its own, that nobody can know, and is believed only if it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kerneldojo.judging import word_sums
from kerneldojo.judging.fingerprints import WORDS, fingerprint

DTYPES = (torch.uint8, torch.int16, torch.int32)


def check(device: str) -> int:
    """Change some words of tensors of some lengths, each by itself; returns how many changes were seen."""
    num = 0
    for dtype in DTYPES:
        assert word_sums.is_right(torch.device(device), dtype)
        for count in (1, 511, 513, word_sums.SPLIT, word_sums.SPLIT + 1, 5 * word_sums.SPLIT // 2 - 3):
            words = torch.randint(1, 100, (count,), dtype=dtype, device=device)  # A sum of zeros is zero for any seed.
            before = word_sums.word_sum(words, 77)
            assert 0 <= before < 1 << 64
            assert word_sums.word_sum(words.clone(), 77) == before, "wherever it lies"
            assert word_sums.word_sum(words, 78) != before
            assert word_sums.word_sum(words[:0], 77) == 0
            for place in {0, count // 3, count - 1}:
                words[place] += 1
                assert word_sums.word_sum(words, 77) != before
                words[place] -= 1
                num += 1
            if count > 1:
                assert word_sums.word_sum(words.flip(0) * 2 + 1, 77) != word_sums.word_sum(words * 2 + 1, 77)
    return num


def check_interpreted() -> int:
    """As `check`, with shorter parts: a program of the interpreter takes a fifth of a second for a whole one."""
    assert word_sums.is_right(torch.device("cpu"), torch.int32)
    word_sums.is_right.cache_clear()
    word_sums.SPLIT = 4 * word_sums.BLOCK
    return check("cpu")


def test_interpreted() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import test_word_sums as t; print(t.check_interpreted())"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 3 * (1 + 5 * 3)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    assert check("cuda") == 3 * (1 + 5 * 3)
    one = torch.rand(1 << 26, device="cuda").half()
    assert fingerprint(one, 5) == fingerprint(one.clone(), 5)
    other = one.clone()
    other[-1] = -other[-1]
    assert fingerprint(one, 5) != fingerprint(other, 5)


@pytest.mark.parametrize("wrong", ["all weigh the same", "nothing is seen", "it raises"])
def test_one_that_is_wrong_is_not_believed(
    wrong: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def word_sum(words: torch.Tensor, seed: int) -> int:
        if wrong == "it raises":
            raise RuntimeError("no kernel image")
        return int(words.sum()) * (seed | 1 << 61) % (1 << 64) if wrong == "all weigh the same" else 0

    monkeypatch.setattr(word_sums, "word_sum", word_sum)
    word_sums.is_right.cache_clear()
    assert not word_sums.is_right(torch.device("cpu"), torch.int32)
    word_sums.is_right.cache_clear()
    assert "by torch's operations" in caplog.text


@pytest.mark.parametrize("words", sorted({str(one).removeprefix("torch.") for one in WORDS.values()}))
def test_it_compiles_for_a_gpu(words: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fixed = {"BLOCK": word_sums.BLOCK, "SPLIT": word_sums.SPLIT}
    pointer = {"uint8": "*u8", "int16": "*i16", "int32": "*i32"}[words]
    types = {"words": pointer, "sums": "*i64", "count": "i64", "seed": "i64"}
    kernel = word_sums._sum_kernel
    signature = {name: "constexpr" if name in fixed else types[name] for name in kernel.arg_names}
    source = ASTSource(kernel, signature, fixed)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["cubin"]
