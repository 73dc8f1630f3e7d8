from __future__ import annotations

from collections import Counter

import pytest
import torch
from in_process import InProcess

from kerneldojo.problems import load_suite, problem_id
from kerneldojo.problems.audit import audit

SMALL = load_suite("katas", "small")


def test_there_are_enough_of_each_level() -> None:
    counts = Counter(problem.level for problem in SMALL)
    assert sum(counts.values()) >= 60
    assert counts[1] >= 28
    assert counts[2] >= 24
    assert counts[3] >= 10


def test_sizes_differ_only_in_constants() -> None:
    for small, full in zip(SMALL, load_suite("katas", "full"), strict=True):
        assert small.name == full.name
        assert small.hash != full.hash
        differing = [(a, b) for a, b in zip(small.source.splitlines(), full.source.splitlines(), strict=True) if a != b]
        assert differing
        assert all(a.partition(" = ")[0] == b.partition(" = ")[0] and " = " in a for a, b in differing)
        assert "SMALL" not in full.source
        assert "IRREDUCIBLE" not in full.source


@pytest.mark.parametrize("problem", SMALL, ids=problem_id)
def test_small_kata_passes_the_audit(problem) -> None:
    report = audit(problem, InProcess(problem.source))
    assert report.admitted, report.reason
    assert report.oracle == "float64"
    assert report.mode == "train"
    assert not report.mutates_inputs
    assert report.memory_bytes < 1 << 20
    assert 0 < report.compulsory_bytes <= report.input_bytes + report.output_bytes


def test_kinds_of_tensors_that_katas_cover() -> None:
    dtypes, outputs, strided, updated = set(), set(), 0, 0
    for problem in SMALL:
        outcome = InProcess(problem.source).run(input_seed=1, init_seed=2)
        dtypes.update(x.dtype for x in outcome.inputs)
        outputs.add(len(outcome.outputs["native"]))
        strided += any(not x.is_contiguous() for x in outcome.inputs)
        updated += bool(outcome.buffers)
    assert {torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.bool} <= dtypes
    assert outputs == {1, 2}
    assert strided >= 3
    assert updated >= 3
