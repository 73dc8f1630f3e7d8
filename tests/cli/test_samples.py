"""The sample kernels of the demo, judged for real through the command line on the modelled default device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dojo import EXAMPLES, dojo

from kerneldojo.cli.demo import find_samples, read_samples
from kerneldojo.schema import MAX_SOURCE_BYTES, Evaluation, Problem

REFERENCE = EXAMPLES / "reference.py"


def judged(kernel: Path, *options: str, code: int = 0, reference: Path = REFERENCE) -> dict[str, Any]:
    done = dojo("judge", reference, kernel, "--json", *options)
    assert done.returncode == code, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Evaluation]:
    """All samples judged in one process, as the demo does it, so that the fork servers start once."""
    from kerneldojo.judging import judge

    problem = Problem(name="demo", source=REFERENCE.read_text())
    return {
        sample.name: judge(problem, sample.candidate, device="model:h100", protocol="quick")
        for sample in read_samples(find_samples())
    }


@pytest.mark.parametrize(
    ("sample", "status"),
    [
        ("honest", "passed"),
        ("lazy", "passed"),
        ("wrong", "incorrect"),
        ("decoy", "exploit"),
        ("replay", "incorrect"),
        ("broken", "compile_error"),
    ],
)
def test_each_sample_gets_the_verdict_that_it_deserves(
    sample: str, status: str, verdicts: dict[str, Evaluation]
) -> None:
    assert verdicts[sample].status == status, verdicts[sample].message


def test_the_honest_sample_is_priced_as_faster_and_as_all_its_own_work(verdicts: dict[str, Evaluation]) -> None:
    honest, lazy = verdicts["honest"], verdicts["lazy"]
    assert honest.timing.source == "modeled"
    assert honest.coverage == pytest.approx(1.0)
    assert lazy.coverage is not None
    assert 0 < lazy.coverage < 0.9
    assert honest.speedup is not None
    assert honest.speedup > max(1.0, lazy.speedup or 0.0)


def test_standard_output_is_the_evaluation_whatever_the_candidate_prints(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.py"
    shout = 'import os, sys\nprint("NOISE")\nos.write(1, b"NOISE")\nos.system("echo NOISE")\n' + (
        'print("NOISE", file=sys.stderr)\n'
    )
    noisy.write_text(
        shout + (EXAMPLES / "honest.py").read_text().replace("rows, columns =", 'print("NOISE"); rows, columns =')
    )
    done = dojo("judge", REFERENCE, noisy, "--json", "--device", "cpu", "--protocol", "quick")
    assert done.returncode == 0, done.stderr
    assert "NOISE" not in done.stdout
    assert done.stdout.count("\n") == 1
    verdict = json.loads(done.stdout)
    del verdict["timing_source"]
    evaluation = Evaluation.model_validate(verdict)
    assert evaluation.correct, evaluation.message
    assert (evaluation.speedup, evaluation.coverage, evaluation.kernel_ms) == (None, None, None)
    assert evaluation.timing.source is None
    assert evaluation.protocol.name == "quick"


def test_a_problem_that_cannot_be_judged_is_exit_code_2_and_still_json(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text("this is not a problem\n")
    assert judged(EXAMPLES / "honest.py", code=2, reference=reference)["status"] == "invalid_problem"


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe junk", b"#" * (MAX_SOURCE_BYTES + 2)], ids=["empty", "junk", "huge"]
)
def test_a_candidate_that_is_no_source_is_a_verdict_and_not_bad_usage(tmp_path: Path, content: bytes) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_bytes(content)
    assert judged(kernel, "--device", "cpu")["status"] == "compile_error"


def test_without_json_a_panel_is_drawn() -> None:
    done = dojo("judge", REFERENCE, EXAMPLES / "honest.py", "--device", "model:h100", "--protocol", "quick")
    assert done.returncode == 0, done.stderr
    assert "PASSED" in done.stdout
    assert "modelled (not measured)" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_demo_ends_with_a_table_of_all_samples() -> None:
    done = dojo("demo", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    for sample in read_samples(find_samples()):
        assert sample.name in done.stdout
    for word in ("PASSED", "INCORRECT", "EXPLOIT", "COMPILE ERROR", "Judged on"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_an_audit_says_which_trivial_answers_a_degenerate_problem_accepts(tmp_path: Path) -> None:
    problem = tmp_path / "degenerate.py"
    problem.write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return x - x\n\n\n"
        "def get_inputs():\n    return [torch.randn(8, 16)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    hungry = tmp_path / "hungry.py"
    hungry.write_text(problem.read_text().replace("torch.randn(8, 16)", "torch.zeros(1 << 40)"))
    arguments = ("problems", "audit", problem, hungry, "--out", tmp_path / "audits.jsonl", "--memory-gb", "4")
    done = dojo(*arguments, COLUMNS="100")
    assert done.returncode == 1, done.stderr
    assert "degenerate" in done.stdout
    assert "zeros" in done.stdout
    assert "2 problems: 1 degenerate, 1 too large" in done.stdout
    assert dojo(*arguments, COLUMNS="100").stdout == done.stdout, "nothing is audited twice"
