"""Reading a graph back from its source, so that whoever answers needs nothing but the problem's text.

Only what `render` writes is read here, line by line; the source is parsed, never run.
"""

from __future__ import annotations

import re

from kerneldojo.problems.graphs.graph import Graph, Input, Node, Shape
from kerneldojo.problems.graphs.operations import OPERATIONS, Kind, Operation
from kerneldojo.problems.graphs.render import render
from kerneldojo.problems.source import ProblemError
from kerneldojo.schema import Problem

_SIZES = re.compile(r"^ROWS, (INNER, )?COLUMNS = ([\d, ]+)$", re.MULTILINE)
_FORWARD = re.compile(r"^    def forward\(self, (.+)\):\n((?:        x = .+\n)+)        return x$", re.MULTILINE)
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_NAMES: dict[str, Kind] = {"x": "matrix", "a": "matrix", "b": "matrix", "u": "row", "v": "row", "w": "right"}


def _pattern(operation: Operation) -> re.Pattern[str]:
    text = re.escape(operation.torch.format("@0", "@1", c0="@c"))
    for number in (0, 1):
        text = text.replace(f"@{number}", f"(?P<o{number}>[a-z])", 1).replace(f"@{number}", f"(?P=o{number})")
    return re.compile(f"^{text.replace('@c', _NUMBER.replace('(', '(?P<c0>', 1))}$")


_PATTERNS = {name: _pattern(operation) for name, operation in OPERATIONS.items()}


def graph_of(problem: Problem | str) -> Graph:
    """Read the graph out of a problem that `render` wrote.

    Args:
        problem: the problem, or its source.

    Raises:
        ProblemError: the source is not one of a generated graph, in one line.
    """
    source = problem if isinstance(problem, str) else problem.source
    sizes, forward = _SIZES.search(source), _FORWARD.search(source)
    if sizes is None or forward is None:
        raise ProblemError("not the source of an operation graph")
    numbers = [int(number) for number in sizes[2].split(",")]
    if len(numbers) != (3 if sizes[1] else 2):
        raise ProblemError("the sizes of the graph are malformed")
    inner = numbers[1] if sizes[1] else 0
    inputs = tuple(_input(name, bool(inner)) for name in forward[1].split(", "))
    nodes: list[Node] = []
    for line in forward[2].splitlines():
        nodes.append(_node(line.strip().removeprefix("x = "), inputs, len(nodes)))
    try:
        graph = Graph(inputs=inputs, nodes=tuple(nodes), shape=Shape(rows=numbers[0], columns=numbers[-1], inner=inner))
    except ValueError as error:
        raise ProblemError(f"not an operation graph: {str(error).splitlines()[0]}") from None
    if render(graph) != source:
        raise ProblemError("not the source of an operation graph: it holds more than its operations")
    return graph


def _input(name: str, has_product: bool) -> Input:
    if name not in _NAMES:
        raise ProblemError(f"operation graphs have no input called {name!r}")
    return Input(name=name, kind="left" if name == "x" and has_product else _NAMES[name])


def _node(text: str, inputs: tuple[Input, ...], place: int) -> Node:
    for name, pattern in _PATTERNS.items():
        match = pattern.match(text)
        if match is None:
            continue
        groups = match.groupdict()
        operands = [groups[key] for key in ("o0", "o1") if groups.get(key)]
        constants = (float(groups["c0"]),) if groups.get("c0") else ()
        return Node(
            operation=name,
            operands=tuple(_place(operand, inputs, place) for operand in operands),
            constants=constants,
        )
    raise ProblemError(f"not an operation: {text[:60]}")


def _place(name: str, inputs: tuple[Input, ...], nodes_before: int) -> int:
    if name == "x" and nodes_before:
        return len(inputs) + nodes_before - 1
    for place, given in enumerate(inputs):
        if given.name == name:
            return place
    raise ProblemError(f"the graph has no input called {name!r}")
