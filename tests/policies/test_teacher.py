"""The teacher's answers before the real judge: every quality is what it says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldojo import Candidate, Status
from kerneldojo.judging.shared import shared
from kerneldojo.policies.teacher import broken, cheating, teach
from kerneldojo.policies.teacher.tasks import GraphTask, KataTask, task_of
from kerneldojo.problems import load_suite
from kerneldojo.problems.graphs import CLASSES, graph_of, graph_problems
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.schema import Problem

EXAMPLE = Path(__file__).parents[2] / "examples" / "reference.py"


@pytest.fixture(scope="module")
def judge():
    """The one of this process, which other tests have warmed."""
    return shared("model:h100")


@pytest.fixture(scope="module")
def examples():
    """The first problem of every class in the validation set."""
    problems = graph_problems("validation")
    return {name: next(problem for problem in problems if problem.name.startswith(name)) for name in CLASSES}


def verdict(judge, problem, source):
    return judge.judge(problem, Candidate(source=source), device="model:h100", protocol_name="quick")


@pytest.mark.parametrize("graph_class", CLASSES)
def test_tuned_is_faster_than_fused_is_faster_than_lazy(judge, examples, graph_class):
    problem = examples[graph_class]
    lazy, fused, tuned = (verdict(judge, problem, teach(problem, level)) for level in ("lazy", "fused", "tuned"))
    assert [one.status for one in (lazy, fused, tuned)] == [Status.PASSED] * 3, (lazy.message, fused.message)
    assert 0.9 < lazy.speedup <= 1.0 + 1e-9
    assert lazy.coverage < 0.7
    assert fused.speedup > 1.2
    assert tuned.speedup >= fused.speedup
    assert fused.coverage == tuned.coverage == 1.0
    assert all(kernel.num_launches == 1 for kernel in fused.kernels)


@pytest.mark.parametrize(("place", "kind"), list(enumerate(broken.EXPECTED)))
def test_broken_answers_fail_as_foreseen(judge, examples, place, kind):
    problem = examples[CLASSES[place % len(CLASSES)]]
    found = verdict(judge, problem, broken.broken(graph_of(problem), kind, Stream("test", kind)))
    assert found.status is broken.EXPECTED[kind], found.message


@pytest.mark.parametrize(("place", "kind"), list(enumerate(cheating.EXPECTED)))
def test_cheats_are_convicted(judge, examples, place, kind):
    problem = examples[CLASSES[-1 - place % len(CLASSES)]]
    found = verdict(judge, problem, cheating.cheating(graph_of(problem), kind))
    assert found.status in cheating.EXPECTED[kind], found.message
    assert found.speedup is None


@pytest.mark.parametrize("kind", broken.EXPECTED)
def test_every_fault_changes_every_class(examples, kind):
    for problem in examples.values():
        task = GraphTask(graph_of(problem))
        assert task.broken(kind, Stream("test")) != task.fused(is_tuned=False)


def test_every_training_graph_can_be_written_at_every_level_and_size():
    for size in ("small", "full"):
        for number, problem in enumerate(graph_problems("train", 40, size=size)):
            task = task_of(problem)
            for level in ("lazy", "fused", "tuned"):
                code = teach(problem, level, number)
                compile(code, problem.name, "exec")
                assert code.count("@triton.jit") in (1, 2) and "#" not in code
                assert task.level_of(code) == level
            assert (
                "torch.relu" not in teach(problem, "fused")
                and "F." not in teach(problem, "fused").partition("class")[2]
            )


def test_answers_use_few_distinct_lines():
    lines = set()
    lengths = []
    for number, problem in enumerate(graph_problems("train", 200)):
        for level in ("lazy", "fused", "tuned"):
            code = teach(problem, level, number).splitlines()
            lengths.append(len([line for line in code if line]))
            lines.update(code)
    assert sum(lengths) / len(lengths) < 36
    assert len(lines) < 700


def test_katas_of_both_levels_are_understood():
    tasks = [task_of(problem) for problem in load_suite(["katas:1", "katas:2"], "small")]
    assert all(isinstance(task, KataTask) for task in tasks)
    assert sum(task.understood is not None for task in tasks) >= 40
    assert all(task.understood or task.reason for task in tasks)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("1/layer_norm", "fused"),
        ("1/integer_mix", "fused"),
        ("1/matmul_transposed", "tuned"),
        ("2/softmax_with_entropy", "tuned"),
        ("2/linear_gelu_bf16", "fused"),
        ("1/max_rows", "lazy"),
        ("3/squeeze_excite", "lazy"),
    ],
)
def test_katas_are_answered_correctly(judge, name, level):
    problem = load_suite(f"katas:{name}", "small")[0]
    found = verdict(judge, problem, teach(problem, level))
    assert found.status is Status.PASSED, found.message
    assert found.coverage == (1.0 if level != "lazy" else pytest.approx(found.coverage))
    assert level != "lazy" or found.coverage < 0.9


def test_katas_have_their_faults_and_cheats_too(judge):
    problem = load_suite("katas:2/linear_relu", "small")[0]
    task = task_of(problem)
    assert verdict(judge, problem, task.broken("shape", Stream("test"))).status is Status.INCORRECT
    assert verdict(judge, problem, task.cheating("decoy")).status is Status.EXPLOIT


def test_the_example_is_understood_with_what_its_constructor_is_given(judge):
    problem = Problem(name="reference", source=EXAMPLE.read_text())
    found = verdict(judge, problem, teach(problem, "tuned"))
    assert found.status is Status.PASSED, found.message
    assert found.coverage == 1.0
    assert found.speedup > 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.randn(columns)", "torch.randn(1)"),
        ("torch.randn(columns)", "torch.randn(ROWS, columns)"),
        ("self.scale = scale", "self.scale = scale\n        for self.scale in (2.0, 3.0):\n            pass"),
        ("self.scale = scale", "self.scale = scale\n        if columns > 10:\n            self.scale = 2.0"),
        ("return [COLUMNS, 0.5]", "values = [COLUMNS, 0.5]\n    return values"),
        ("    def forward", "    def train(self, mode=True):\n        self.scale += 1\n\n    def forward"),
    ],
)
def test_what_cannot_be_told_from_the_text_is_left_to_the_library(old, new):
    source = EXAMPLE.read_text()
    task = task_of(Problem(name="other", source=source.replace(old, new)))
    assert old in source
    assert isinstance(task, KataTask)
    assert task.understood is None
