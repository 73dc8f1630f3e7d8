"""Generated graphs: four sets that never change and never overlap, texts that are read back, problems worth judging."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems import ProblemError, load_suite
from kerneldojo.problems.graphs import (
    CLASSES,
    COUNTS,
    SPLITS,
    Graph,
    Input,
    Node,
    Shape,
    graph_of,
    graph_problems,
    graphs,
    render,
    signature,
    split_of,
)
from kerneldojo.problems.graphs.sample import is_instructive
from kerneldojo.problems.graphs.splits import LONGEST, has_unseen_pair
from kerneldojo.schema import Problem, content_hash

GOLDEN = {
    ("train", "small"): "306e20c028e016075889eb2470837c1435a124353ceac6e33307d37024554990",
    ("validation", "small"): "35a2836e8b8ad227110d646bb70cda130a49aa2e6c97df569a5945ae8569c7c1",
    ("test", "small"): "3aea9e098ff4cc1b7425623f663f4b340fc6d013b2f8f53810acfe6325a35a94",
    ("extrapolation", "small"): "da50443ad029a42d65c1727694c0eb1383d7e0722ade3909c29cd22975a3dc12",
    ("test", "full"): "bd7774ae5c03d6e6379399cde33dc1982205f36d807f3d3fd89a238de3b9ab64",
}
"""Hashes of whole sets: whoever changes one of these changes the meaning of every result that names the set."""


@pytest.mark.parametrize(("split", "size"), GOLDEN)
def test_sets_are_the_same_for_ever(split, size):
    problems = graph_problems(split, size=size)
    assert (
        content_hash(*(text for problem in problems for text in (problem.name, problem.source))) == GOLDEN[split, size]
    )


def test_sets_do_not_depend_on_the_process():
    code = (
        "from kerneldojo.problems.graphs import graph_problems\n"
        "from kerneldojo.schema import content_hash\n"
        "import sys\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "print(content_hash(*(p.source for p in graph_problems('validation'))))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {content_hash(*(p.source for p in graph_problems("validation"))) + "\n"}


@cache
def drawn_from(split: str) -> list[Graph]:
    return list(graphs(split))


@pytest.fixture(scope="module")
def frozen() -> dict[str, set[str]]:
    return {split: {graph.signature for graph in drawn_from(split)} for split in SPLITS}


def test_sets_have_their_sizes_and_distinct_signatures(frozen):
    assert {split: len(signatures) for split, signatures in frozen.items()} == COUNTS


@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
@settings(max_examples=12, deadline=None)
def test_nothing_that_is_trained_on_is_in_another_set(frozen, seed, count):
    drawn = {graph.signature for graph in graphs("train", count, seed)}
    assert len(drawn) == count
    for split in ("validation", "test", "extrapolation"):
        assert not drawn & frozen[split]


@pytest.mark.parametrize("split", SPLITS)
def test_every_set_has_every_class_and_only_what_belongs_there(split):
    drawn = drawn_from(split)
    assert {graph.graph_class for graph in drawn} == set(CLASSES)
    for graph in drawn:
        beyond = len(graph.nodes) > LONGEST or has_unseen_pair(graph)
        assert beyond == (split == "extrapolation")
        assert len(graph.nodes) >= 2


def test_extrapolation_has_both_longer_graphs_and_unseen_pairs():
    drawn = drawn_from("extrapolation")
    assert sum(len(graph.nodes) > LONGEST for graph in drawn) >= 20
    assert sum(has_unseen_pair(graph) and len(graph.nodes) <= LONGEST for graph in drawn) >= 20


def test_a_longer_draw_begins_with_the_shorter_one():
    assert list(graphs("train", 20, seed=7))[:9] == list(graphs("train", 9, seed=7))
    assert list(graphs("train", 9, seed=7)) != list(graphs("train", 9, seed=8))


def test_both_sizes_hold_the_same_graphs():
    small, full = graph_problems("test", size="small"), graph_problems("test", size="full")
    assert [problem.name for problem in small] == [problem.name for problem in full]
    assert all(one.hash != other.hash for one, other in zip(small, full, strict=True))
    assert all(graph_of(problem).shape.rows * graph_of(problem).shape.columns >= 1 << 22 for problem in full)
    assert all(graph_of(problem).shape.rows * graph_of(problem).shape.columns <= 1 << 12 for problem in small)


@pytest.mark.parametrize("split", SPLITS)
def test_graphs_are_read_back_from_their_problems(split):
    for graph in drawn_from(split):
        assert graph_of(render(graph)) == graph


NAMES = ("relu", "gelu", "scale", "shift", "add", "subtract", "maximum", "softmax", "rms_norm")


@st.composite
def spines(draw) -> Graph:
    """Any spine over matrices and rows, worth asking for or not."""
    beside = (Input(name="a", kind="matrix"), Input(name="b", kind="matrix"), Input(name="u", kind="row"))
    inputs = (Input(name="x", kind="matrix"), *beside)
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 8))):
        spine = len(inputs) + len(nodes) - 1 if nodes else 0
        name = draw(
            st.sampled_from(["relu", "gelu", "scale", "shift", "add", "subtract", "maximum", "softmax", "rms_norm"])
        )
        if name in ("add", "subtract", "maximum"):
            nodes.append(Node(operation=name, operands=(spine, draw(st.integers(1, 3)))))
        elif name in ("scale", "shift"):
            constant = draw(st.floats(-8, 8, allow_nan=False).map(lambda value: round(value, 3)))
            nodes.append(Node(operation=name, operands=(spine,), constants=(constant,)))
        else:
            nodes.append(Node(operation=name, operands=(spine,)))
    shape = Shape(rows=draw(st.integers(1, 64)), columns=draw(st.integers(1, 4096)))
    return Graph(inputs=inputs, nodes=tuple(nodes), shape=shape)


@given(spines())
@settings(max_examples=60, deadline=None)
def test_any_spine_is_read_back(graph):
    assert graph_of(render(graph)) == graph


@given(spines(), st.data())
@settings(max_examples=60, deadline=None)
def test_names_order_shapes_and_constants_are_not_in_the_signature(graph, data):
    order = data.draw(st.permutations(range(1, 4)))
    moved = {0: 0, **{old: new for new, old in enumerate(order, 1)}}
    nodes = []
    for node in graph.nodes:
        operands = tuple(moved.get(place, place) for place in node.operands)
        if node.definition.commutative and data.draw(st.booleans()):
            operands = operands[::-1]
        constants = tuple(value + 1.0 for value in node.constants)
        nodes.append(Node(operation=node.operation, operands=operands, constants=constants))
    inputs = (graph.inputs[0], *(graph.inputs[old].model_copy(update={"name": f"n{old}"}) for old in order))
    other = Graph(inputs=inputs, nodes=tuple(nodes), shape=Shape(rows=3, columns=5))
    assert signature(other) == signature(graph)
    assert split_of(other) == split_of(graph)


def test_signatures_tell_apart_what_differs():
    inputs = (Input(name="x", kind="matrix"), Input(name="a", kind="matrix"), Input(name="b", kind="matrix"))
    shape = Shape(rows=4, columns=8)

    def spine(*steps: tuple[str, int]) -> str:
        nodes = []
        for place, (name, second) in enumerate(steps):
            first = 0 if place == 0 else 2 + place
            nodes.append(Node(operation=name, operands=(first, second) if second else (first,)))
        return Graph(inputs=inputs, nodes=tuple(nodes), shape=shape).signature

    texts = {
        spine(("add", 1), ("multiply", 1)),
        spine(("add", 1), ("multiply", 2)),
        spine(("multiply", 1), ("add", 2)),
        spine(("subtract", 1), ("multiply", 2)),
        spine(("relu", 0), ("add", 1)),
        spine(("add", 1), ("relu", 0)),
    }
    assert len(texts) == 6
    assert spine(("add", 1), ("multiply", 2)) == spine(("add", 2), ("multiply", 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.replace("x = ", "x = -", 1),
        lambda source: source.replace("        return x", "        x = x.cpu()\n        return x"),
        lambda source: source.replace("import torch\n", "import torch\nimport os\n", 1),
        lambda source: source.replace("return []", "return [1]"),
        lambda source: source.replace("ROWS, COLUMNS =", "ROWS, COLUMNS, MORE ="),
        lambda source: "class Model: pass",
    ],
)
def test_what_is_no_generated_problem_is_refused_in_one_line(change):
    source = next(p.source for p in graph_problems("validation") if p.name.startswith("elementwise"))
    with pytest.raises(ProblemError) as error:
        graph_of(Problem(name="other", source=change(source)))
    assert "\n" not in str(error.value)


def _chain(*names: str) -> Graph:
    constants = {"scale": (2.0,), "shift": (1.0,)}
    nodes = [
        Node(operation=name, operands=(place,), constants=constants.get(name, ())) for place, name in enumerate(names)
    ]
    return Graph(inputs=(Input(name="x", kind="matrix"),), nodes=tuple(nodes), shape=Shape(rows=4, columns=384))


@pytest.mark.parametrize(
    "names",
    [
        ("sigmoid", "relu"),
        ("softmax", "cos"),
        ("softmax", "shift"),
        ("shift", "softmax"),
        ("scale", "layer_norm"),
        ("square", "square", "square", "square"),
        ("layer_norm", "mean"),
        ("relu", "abs"),
    ],
)
def test_degenerate_chains_are_not_asked_for(names):
    assert not is_instructive(_chain(*names))


def test_ordinary_chains_are_asked_for():
    assert is_instructive(_chain("scale", "gelu"))
    assert is_instructive(_chain("layer_norm", "relu"))


def test_suites_are_named_by_set_count_seed_and_name():
    assert len(load_suite("graphs:validation", "small")) == 64
    assert load_suite("graphs:train:5", "small") == graph_problems("train", 5)
    assert load_suite("graphs:train:5:3", "small") == graph_problems("train", 5, 3)
    first = load_suite("graphs:test", "small")[0]
    assert load_suite(f"graphs:test/{first.name}", "small") == [first]
    assert first.suite == "graphs" and first.size == "small"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("graphs:nix", "sets are train, validation, test, extrapolation"),
        ("graphs:test:5", "only graphs:train is drawn by count and seed"),
        ("graphs:test/nix", "no such problem"),
        ("graphs:", "use graphs:SET"),
    ],
)
def test_unknown_sets_are_refused_in_one_line(spec, words):
    with pytest.raises(ProblemError, match=words) as error:
        load_suite(spec)
    assert "\n" not in str(error.value)


def test_a_sample_of_every_class_is_admitted():
    from kerneldojo.judging import audit_problem

    problems = graph_problems("validation")
    for graph_class in CLASSES:
        problem = next(problem for problem in problems if problem.name.startswith(graph_class))
        report = audit_problem(problem, "cpu", fresh=True)
        assert report.status == "admitted", report.reason
