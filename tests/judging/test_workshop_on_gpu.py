"""On a GPU, contestant and silent twin have an extension compiled for them once, and are told apart all the same."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from kerneldojo import Candidate, Problem, Status
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.cuda import judge_on_cuda
from kerneldojo.judging.gpu import CudaBench
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import language_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SUITE = Path(__file__).parent.parent / "exploits"
PROBLEM = Problem(name="swish", source=(SUITE / "problems" / "swish.py").read_text())
HONEST = (SUITE / "honest" / "swish_cuda.py").read_text()
DECOY = HONEST.replace("return extension.swish(x)", "extension.swish(x)\n        return x * torch.sigmoid(x)")


@pytest.fixture(scope="module")
def bench() -> Generator[CudaBench]:
    bench = CudaBench(0)
    yield bench
    bench.close()


def judged(bench: CudaBench, source: str, folder: Path) -> Findings:
    candidate = Candidate(source=source)
    findings = Findings(PROBLEM, candidate, protocol("quick"), "cuda:0")
    judge_on_cuda(bench, Auditor(folder), language_of(candidate), findings)
    return findings


@pytest.mark.parametrize("option", ["", "extra_cuda_cflags=['-O3 --use_fast_math', ''],"])
def test_an_honest_extension_is_compiled_once(bench: CudaBench, tmp_path: Path, option: str) -> None:
    findings = judged(bench, HONEST.replace('functions=["swish"],', f'functions=["swish"], {option}'), tmp_path)
    assert findings.num_built == (1, 2)
    assert any(kernel.own for kernel in findings.kernels)


def test_what_is_not_plain_is_compiled_by_each_for_itself(bench: CudaBench, tmp_path: Path) -> None:
    own = HONEST.replace('functions=["swish"],', 'functions=["swish"], extra_include_paths=["/usr/include"],')
    assert judged(bench, own, tmp_path).num_built == (0, 0)


def test_a_decoy_is_silenced_in_a_library_that_both_were_given(bench: CudaBench, tmp_path: Path) -> None:
    assert DECOY != HONEST
    with pytest.raises(Ruling) as caught:
        judged(bench, DECOY, tmp_path)
    assert caught.value.status is Status.EXPLOIT
    assert [exploit.name for exploit in caught.value.exploits] == ["no_causal_kernel"]
