"""A graph written as a problem in KernelBench's format: always the same lines, one operation a line.

A small model that reads whole lines as tokens learns from these texts, so there is one way to write everything: the
value that is worked on is `x`, matrices beside it are `a` and `b`, rows `u` and `v`, the right operand of a product is
`w`, and all sizes stand in one line.
"""

from __future__ import annotations

from kerneldojo.problems.graphs.graph import Graph, Input, Node

_DRAWS = {
    "left": "torch.randn(ROWS, INNER)",
    "right": "torch.randn(INNER, COLUMNS) / INNER**0.5",
    "matrix": "torch.randn(ROWS, COLUMNS)",
    "row": "torch.randn(COLUMNS)",
}
OFFSET = " + torch.randn(ROWS, 1)"
"""Every row of `x` has a mean of its own, so that no reduction comes near a constant however long the rows are."""


def render(graph: Graph) -> str:
    """Write `graph` as a source with `Model`, `get_inputs` and `get_init_inputs`."""
    shape = graph.shape
    names, sizes = ("ROWS, COLUMNS", f"{shape.rows}, {shape.columns}")
    if shape.inner:
        names, sizes = ("ROWS, INNER, COLUMNS", f"{shape.rows}, {shape.inner}, {shape.columns}")
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "",
        f"{names} = {sizes}",
        "",
        "",
        "class Model(nn.Module):",
        f"    def forward(self, {', '.join(input.name for input in graph.inputs)}):",
        *(f"        {line}" for line in forward_lines(graph)),
        "        return x",
        "",
        "",
        "def get_inputs():",
        f"    return [{', '.join(draw(input) for input in graph.inputs)}]",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def draw(given: Input) -> str:
    """How `get_inputs` draws one tensor."""
    return _DRAWS[given.kind] + (OFFSET if given.name == "x" else "")


def forward_lines(graph: Graph) -> list[str]:
    """Write the operations of a spine, one a line."""
    return [f"x = {expression(graph, node)}" for node in graph.nodes]


def expression(graph: Graph, node: Node) -> str:
    """Write one operation as PyTorch does; on a spine every node is called `x`."""
    names = [graph.inputs[place].name if place < len(graph.inputs) else "x" for place in node.operands]
    constants = {f"c{number}": repr(value) for number, value in enumerate(node.constants)}
    return node.definition.torch.format(*names, **constants)
