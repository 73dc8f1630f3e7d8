"""A graph of operations, its canonical signature, and what kind of problem it is.

Generated graphs are a spine: one value, `x`, is changed line by line; other inputs stand beside it. The signature
knows nothing of names, of the order of operands that commute, of shapes or of the values of constants: two graphs with
the same signature ask for the same kernel, and must not lie on both sides of a split.
"""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations
from typing import Literal

from pydantic import model_validator

from kerneldojo.problems.graphs.operations import OPERATIONS, Kind, Operation
from kerneldojo.schema import Frozen, content_hash

GraphClass = Literal["elementwise", "reduction", "norm", "softmax", "product"]
CLASSES: tuple[GraphClass, ...] = ("elementwise", "reduction", "norm", "softmax", "product")


class Input(Frozen):
    """A tensor that the graph is given."""

    name: str
    kind: Kind
    """`matrix` is rows by columns, `row` has one value a column, `left` is rows by inner, `right` inner by columns."""


class Node(Frozen):
    """One operation on earlier values."""

    operation: str
    operands: tuple[int, ...]
    """Places of values: the inputs come first, then the nodes."""
    constants: tuple[float, ...] = ()

    @property
    def definition(self) -> Operation:
        """What the operation is."""
        return OPERATIONS[self.operation]


class Shape(Frozen):
    """Sizes of a graph's matrices."""

    rows: int
    columns: int
    inner: int = 0
    """Inner dimension of the product; 0 where there is none."""


class Graph(Frozen):
    """Operations in the order in which they are written; the last one is the answer."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    shape: Shape

    @model_validator(mode="after")
    def _is_well_formed(self) -> Graph:
        if not self.nodes or not self.inputs:
            raise ValueError("a graph has at least one input and one node")
        for place, node in enumerate(self.nodes):
            if node.operation not in OPERATIONS:
                raise ValueError(f"unknown operation {node.operation!r}")
            known = len(self.inputs) + place
            if not all(0 <= operand < known for operand in node.operands):
                raise ValueError(f"node {place} uses a value that is not there yet")
            if len(node.constants) != len(node.definition.constants):
                raise ValueError(f"{node.operation} takes {len(node.definition.constants)} constants")
        return self

    def kind_of(self, place: int) -> Kind:
        """Kind of the value at `place`."""
        if place < len(self.inputs):
            return self.inputs[place].kind
        node = self.nodes[place - len(self.inputs)]
        if node.definition.family == "reduction":
            return "column"
        if node.definition.family == "product":
            return "matrix"
        kinds = {self.kind_of(operand) for operand in node.operands}
        for widest in ("matrix", "left", "row"):
            if widest in kinds:
                return widest
        return "column"

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations in order."""
        return tuple(node.operation for node in self.nodes)

    @property
    def graph_class(self) -> GraphClass:
        """What decides the form of the kernel: a product, else a softmax, a norm or a reduction, else nothing."""
        names = set(self.operations)
        if "product" in names:
            return "product"
        if "softmax" in names:
            return "softmax"
        if names & {"layer_norm", "rms_norm"}:
            return "norm"
        if any(node.definition.family == "reduction" for node in self.nodes):
            return "reduction"
        return "elementwise"

    @property
    def signature(self) -> str:
        """Canonical text: equal for graphs that differ only in names, commuted operands, shapes or constants."""
        return signature(self)

    @property
    def hash(self) -> str:
        """Content hash of the signature."""
        return content_hash("graph", self.signature)


def signature(graph: Graph) -> str:
    """Write the graph as nested operations, operands that commute sorted, inputs numbered by first appearance.

    While sorting, inputs are told apart by nothing but their kind, so that names cannot matter. Operands that are then
    equal (two matrices that are added) are tried in both orders, and the smallest text counts.
    """

    @cache
    def plain(place: int) -> str:
        if place < len(graph.inputs):
            return f"~{graph.inputs[place].kind}"
        node = graph.nodes[place - len(graph.inputs)]
        operands = [plain(operand) for operand in node.operands]
        if node.definition.commutative:
            operands.sort()
        return f"{node.operation}({','.join(operands)})"

    def numbered(place: int, swapped: frozenset[int], numbers: dict[int, int]) -> str:
        if place < len(graph.inputs):
            number = numbers.setdefault(place, len(numbers))
            return f"~{graph.inputs[place].kind}{number}"
        node = graph.nodes[place - len(graph.inputs)]
        operands = sorted(node.operands, key=plain) if node.definition.commutative else list(node.operands)
        if place in swapped:
            operands.reverse()
        return f"{node.operation}({','.join(numbered(operand, swapped, numbers) for operand in operands)})"

    ties = [
        len(graph.inputs) + place
        for place, node in enumerate(graph.nodes)
        if node.definition.commutative and len(set(node.operands)) == 2 and len(set(map(plain, node.operands))) == 1
    ]
    last = len(graph.inputs) + len(graph.nodes) - 1
    choices = chain.from_iterable(combinations(ties, count) for count in range(len(ties) + 1))
    return min(numbered(last, frozenset(swapped), {}) for swapped in choices)
