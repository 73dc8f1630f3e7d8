"""Drawing graphs, for ever the same: set, seed and number decide.

A draw is repeated until the graph belongs to the set that is asked for, has a signature that the set does not have
yet, and is worth asking for (`sample.is_instructive`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kerneldojo.problems.graphs.graph import CLASSES, Graph, GraphClass, Input, Node, Shape
from kerneldojo.problems.graphs.operations import OPERATIONS, Kind
from kerneldojo.problems.graphs.render import render
from kerneldojo.problems.graphs.sample import is_instructive
from kerneldojo.problems.graphs.splits import LONGEST, Split, split_of
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.problems.source import Size
from kerneldojo.schema import Problem

COUNTS: dict[Split, int] = {"train": 512, "validation": 64, "test": 128, "extrapolation": 64}
SHARES: dict[GraphClass, float] = {
    "elementwise": 0.4,
    "reduction": 0.15,
    "norm": 0.15,
    "softmax": 0.12,
    "product": 0.18,
}
"""How often every class is drawn."""
EXTRA_OPERATIONS = 3
"""How many operations beyond `LONGEST` an extrapolated graph may have."""
LONGER = 0.5
"""Share of extrapolated graphs that are longer; the others have a pair that training never shows."""

SMALL = ((4, 384), (8, 192), (8, 320), (4, 640), (8, 256), (6, 256), (8, 384), (6, 512))
FULL = ((4096, 3072), (8192, 1536), (4096, 2560), (2048, 5120), (8192, 2048), (6144, 2048), (8192, 3072), (4096, 4096))
"""Rows and columns by size, in the same order. All small ones hold whole blocks of 512 elements."""
SMALL_PRODUCTS = ((32, 48, 64), (32, 64, 48), (48, 32, 64), (32, 32, 64), (64, 48, 32))
FULL_PRODUCTS = ((4096, 1024, 2048), (4096, 2048, 1536), (6144, 1024, 2048), (4096, 512, 4096), (8192, 1536, 1024))
"""Rows, inner dimension and columns by size."""

ELEMENTWISE = {"unary", "scalar", "binary"}
_UNARY = tuple(name for name, entry in OPERATIONS.items() if entry.family == "unary" and entry.generated)
_BINARY = tuple(name for name, entry in OPERATIONS.items() if entry.family == "binary" and entry.generated)
_CORES: dict[str, tuple[str, ...]] = {
    "reduction": ("sum", "mean", "max", "logsumexp"),
    "norm": ("layer_norm", "rms_norm"),
    "softmax": ("softmax",),
}


def graphs(split: Split, count: int | None = None, seed: int = 0, size: Size = "small") -> Iterator[Graph]:
    """Draw `count` graphs of a set with signatures that all differ.

    A longer draw begins with the shorter one; every size has the same graphs in the same order. Only `train` is meant
    to be drawn with other counts or seeds: the others are frozen at their defaults.
    """
    seen: set[str] = set()
    stream = Stream("graphs", split, seed)
    while len(seen) < (COUNTS[split] if count is None else count):
        writer = _Writer(stream, stream.weighted(SHARES))
        longer = split == "extrapolation" and stream.uniform() < LONGER
        while not _is_wanted(graph := _draw(writer, longer, size), split) or graph.signature in seen:
            pass
        seen.add(graph.signature)
        yield graph


def _is_wanted(graph: Graph, split: Split) -> bool:
    """Whether a graph belongs to the set and is worth asking for."""
    families = {node.definition.family for node in graph.nodes}
    repeats = any(first == second for first, second in pairwise(graph.operations))
    return not repeats and bool(families & ELEMENTWISE) and split_of(graph) == split and is_instructive(graph)


def graph_problems(split: Split, count: int | None = None, seed: int = 0, size: Size = "small") -> list[Problem]:
    """The same as problems of the suite `graphs`."""
    return [graph_problem(graph, size) for graph in graphs(split, count, seed, size)]


def graph_problem(graph: Graph, size: Size | None = None) -> Problem:
    """Write one graph as a problem, named by its class, its length and its hash."""
    return Problem(
        name=f"{graph.graph_class}{len(graph.nodes)}_{graph.hash[:10]}",
        source=render(graph),
        suite="graphs",
        size=size,
        notes=" > ".join(graph.operations),
    )


def _draw(writer: _Writer, longer: bool, size: Size) -> Graph:
    """One graph of the writer's class, wanted or not."""
    stream = writer.stream
    shortest, lengths = (LONGEST + 1, EXTRA_OPERATIONS) if longer else (2, LONGEST - 1)
    return writer.write(shortest + stream.below(lengths), size)


class _Writer:
    """Writes one spine of a class."""

    def __init__(self, stream: Stream, graph_class: GraphClass) -> None:
        self.stream = stream
        self.graph_class = graph_class
        self.beside: list[Input] = []

    def write(self, length: int, size: Size) -> Graph:
        """Draw one spine of a length, and its sizes."""
        self.beside = []
        steps, shape = self._steps(length), self._shape(size)
        first = Input(name="x", kind="left" if shape.inner else "matrix")
        inputs = (first, *sorted(self.beside, key=lambda given: "wabuv".index(given.name)))
        names = [given.name for given in inputs]
        nodes: list[Node] = []
        for operation, second, constants in steps:
            spine = len(inputs) + len(nodes) - 1 if nodes else 0
            operands = (spine, names.index(second)) if second else (spine,)
            nodes.append(Node(operation=operation, operands=operands, constants=constants))
        return Graph(inputs=inputs, nodes=tuple(nodes), shape=shape)

    def _shape(self, size: Size) -> Shape:
        """Sizes at the same place of every list, so that each size has the same graphs."""
        if self.graph_class == "product":
            place = self.stream.below(len(SMALL_PRODUCTS))
            rows, inner, columns = (SMALL_PRODUCTS if size == "small" else FULL_PRODUCTS)[place]
            return Shape(rows=rows, inner=inner, columns=columns)
        place = self.stream.below(len(SMALL))
        rows, columns = (SMALL if size == "small" else FULL)[place]
        return Shape(rows=rows, columns=columns)

    def _steps(self, length: int) -> list[tuple[str, str, tuple[float, ...]]]:
        """Operations with the name of the input beside the spine and constants."""
        stream, steps = self.stream, list[tuple[str, str, tuple[float, ...]]]()
        if self.graph_class == "elementwise":
            return [self._elementwise("matrix") for _ in range(length)]
        if self.graph_class == "product":
            self.beside.append(Input(name="w", kind="right"))
            steps.append(("product", "w", ()))
            has_core = length > 2 and stream.uniform() < 0.3
            steps += [self._elementwise("matrix") for _ in range(length - 2 if has_core else length - 1)]
            if has_core:
                steps.append((stream.choose(tuple(name for names in _CORES.values() for name in names)), "", ()))
            return steps
        before = stream.below(length)
        core = stream.choose(_CORES[self.graph_class])
        steps = [self._elementwise("matrix") for _ in range(before)]
        steps.append((core, "", ()))
        kind: Kind = "column" if self.graph_class == "reduction" else "matrix"
        while len(steps) < length:
            if kind == "matrix" and self.graph_class == "norm" and len(steps) == length - 1 and stream.uniform() < 0.2:
                steps.append((stream.choose(_CORES["reduction"]), "", ()))
            else:
                steps.append(self._elementwise(kind))
        return steps

    def _elementwise(self, kind: Kind) -> tuple[str, str, tuple[float, ...]]:
        stream = self.stream
        family = stream.weighted({"unary": 0.5, "binary": 0.35 if kind == "matrix" else 0.0, "scalar": 0.2})
        if family == "unary":
            return stream.choose(_UNARY), "", ()
        if family == "scalar":
            name = stream.choose(("scale", "shift"))
            return name, "", (stream.choose(OPERATIONS[name].constants[0]),)
        beside: Kind = "matrix" if stream.uniform() < 0.65 else "row"
        return stream.choose(_BINARY), self._input_beside(beside), ()

    def _input_beside(self, kind: Kind) -> str:
        """A name for an input of a kind: mostly the next new one, at times one that is there already."""
        names = "ab" if kind == "matrix" else "uv"
        there = [given.name for given in self.beside if given.kind == kind]
        if len(there) == len(names) or (there and self.stream.uniform() < 0.25):
            return self.stream.choose(there)
        self.beside.append(Input(name=names[len(there)], kind=kind))
        return names[len(there)]


assert set(SHARES) == set(CLASSES)
