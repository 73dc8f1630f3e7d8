"""Trying a graph on a small sample, to see whether it is worth asking for.

A graph may be well formed and still teach nothing: a ReLU of what is never negative, a softmax after which everything
is about 1/n, a chain that saturates, a difference that is always zero. So every candidate is worked through on a few
rows in plain Python (no torch: suites stay light), and refused where an operation changes nothing, values run away, or
the answer hardly depends on the inputs. The audit has the last word; this only saves its time.
"""

from __future__ import annotations

import math
from functools import cache

from kerneldojo.problems.graphs.graph import Graph, Node
from kerneldojo.problems.graphs.stream import normal_draws

ROWS, COLUMNS, INNER = 8, 96, 8
LARGEST = 300.0
"""Values beyond this would put the rest of the answer into the noise of its largest elements."""
SPREAD = {"matrix": 0.2, "column": 0.15}
"""Least standard deviation of the answer, as a share of its root mean square."""
CHANGED = 0.15
"""Least share of elements that every operation changes."""
DROWNED = 0.1
"""Least ratio of the root mean squares of the two operands of an operation."""
LIVELY = 0.1
"""Least spread of every value on the way."""
NEEDED = 0.05
"""Least change of the answer, as a share of its root mean square, if one operation were left out."""
SMALLEST = 1e-3
"""Least root mean square of the answer."""

Rows = list[list[float]]


def is_instructive(graph: Graph) -> bool:
    """Whether every operation does something, none could be left out, and the answer depends on the inputs."""
    values: list[Rows] = [_input(given.name, given.kind) for given in graph.inputs]
    for node in graph.nodes:
        before = values[node.operands[0]]
        after = _apply(node, [values[place] for place in node.operands])
        if not all(math.isfinite(value) and abs(value) <= LARGEST for row in after for value in row):
            return False
        if node.definition.family in ("unary", "binary", "rowwise") and not _differs(before, after):
            return False
        if node.definition.family == "binary" and not _is_match(before, values[node.operands[1]]):
            return False
        if _spread(after) < LIVELY:
            return False
        values.append(after)
    kind = graph.kind_of(len(values) - 1)
    if _spread(values[-1]) < SPREAD[kind] or _size(values[-1]) < SMALLEST:
        return False
    return not any(_could_be_left_out(graph, values, place) for place in range(len(graph.nodes)))


def _could_be_left_out(graph: Graph, values: list[Rows], omitted: int) -> bool:
    """Whether the answer hardly changes without one operation, as that of a softmax without a shift before it."""
    if graph.nodes[omitted].definition.family in ("product", "reduction"):
        return False
    start, changed = len(graph.inputs), dict[int, Rows]()
    changed[start + omitted] = values[graph.nodes[omitted].operands[0]]
    for place, node in enumerate(graph.nodes[omitted + 1 :], start + omitted + 1):
        changed[place] = _apply(node, [changed.get(operand, values[operand]) for operand in node.operands])
    last = changed[len(values) - 1]
    if not all(math.isfinite(value) for row in last for value in row):
        return False
    pairs = zip(values[-1], last, strict=True)
    differences = [[x - y for x, y in zip(row, other, strict=True)] for row, other in pairs]
    return _size(differences) < NEEDED * _size(values[-1])


def _size(rows: Rows) -> float:
    """Root mean square."""
    flat = [value * value for row in rows for value in row]
    return math.sqrt(math.fsum(flat) / len(flat))


def _is_match(first: Rows, second: Rows) -> bool:
    """Whether neither operand drowns the other, as a normal number drowns a probability of 1/n."""
    left, right = _size(first), _size(second)
    return left > DROWNED * right and right > DROWNED * left


def _spread(rows: Rows) -> float:
    """Standard deviation over root mean square."""
    flat = [value for row in rows for value in row]
    mean, size = math.fsum(flat) / len(flat), _size(rows)
    return math.sqrt(max(0.0, size * size - mean * mean)) / size if size else 0.0


def _differs(before: Rows, after: Rows) -> bool:
    pairs = [(old, new) for row, other in zip(before, after, strict=True) for old, new in zip(row, other, strict=True)]
    return sum(abs(old - new) > 1e-3 * (abs(old) + abs(new)) for old, new in pairs) >= CHANGED * len(pairs)


@cache
def _draws(name: str, count: int) -> tuple[float, ...]:
    return tuple(normal_draws(count, name))


def _input(name: str, kind: str) -> Rows:
    rows, columns = {"matrix": (ROWS, COLUMNS), "row": (1, COLUMNS), "left": (ROWS, INNER), "right": (INNER, COLUMNS)}[
        kind
    ]
    flat = _draws(name, rows * columns)
    matrix = [list(flat[row * columns : (row + 1) * columns]) for row in range(rows)]
    if kind == "right":
        return [[value / INNER**0.5 for value in row] for row in matrix]
    if name == "x":
        offsets = _draws("offsets", rows)
        return [[value + offset for value in row] for row, offset in zip(matrix, offsets, strict=True)]
    return matrix


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


_UNARY = {
    "relu": lambda x: max(x, 0.0),
    "sigmoid": _sigmoid,
    "tanh": math.tanh,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0))),
    "elu": lambda x: x if x > 0 else math.exp(x) - 1.0,
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "abs": abs,
    "square": lambda x: x * x,
    "sin": math.sin,
    "cos": math.cos,
    "leaky_relu": lambda x: x if x > 0 else 0.1 * x,
    "hardtanh": lambda x: min(max(x, -1.0), 1.0),
}
_BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
}


def _apply(node: Node, operands: list[Rows]) -> Rows:
    name, first = node.operation, operands[0]
    if name in _UNARY:
        return [[_UNARY[name](value) for value in row] for row in first]
    if name in ("scale", "shift"):
        constant = node.constants[0]
        return [[value * constant if name == "scale" else value + constant for value in row] for row in first]
    if name in _BINARY:
        second = operands[1] if len(operands[1]) > 1 else operands[1] * len(first)
        return [
            [_BINARY[name](left, right) for left, right in zip(row, other, strict=True)]
            for row, other in zip(first, second, strict=True)
        ]
    if name == "product":
        columns = list(zip(*operands[1], strict=True))
        return [[math.fsum(map(_BINARY["multiply"], row, column)) for column in columns] for row in first]
    return [_along(name, row) for row in first]


def _along(name: str, row: list[float]) -> list[float]:
    count = len(row)
    mean, top = math.fsum(row) / count, max(row)
    if name == "sum":
        return [math.fsum(row)]
    if name == "mean":
        return [mean]
    if name == "max":
        return [top]
    total = math.fsum(math.exp(value - top) for value in row)
    if name == "logsumexp":
        return [top + math.log(total)]
    if name == "softmax":
        return [math.exp(value - top) / total for value in row]
    if name == "layer_norm":
        scale = 1.0 / math.sqrt(math.fsum((value - mean) ** 2 for value in row) / count + 1e-5)
        return [(value - mean) * scale for value in row]
    scale = 1.0 / math.sqrt(math.fsum(value * value for value in row) / count + 1e-5)
    return [value * scale for value in row]
