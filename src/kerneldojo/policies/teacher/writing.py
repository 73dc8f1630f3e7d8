"""Whole answers from graphs: a kernel for all of it, or for one operation beside the library's others.

Every answer has the same lines in the same order, for a small model reads lines as tokens. Three kernels are known:

- *flat*: any number of elements, one after another; for what is elementwise;
- *tile*: whole rows, a few a program; for what runs along rows;
- *product*: a tile of the product and everything after it; whole rows where something runs along them.

How a kernel is cut is its `Launch`: `PLAIN` is what anybody would write first, `TUNED` keeps more of the GPU busy.
"""

from __future__ import annotations

from kerneldojo.policies.teacher.forms import form
from kerneldojo.problems.graphs import Graph, Input
from kerneldojo.problems.graphs.render import expression
from kerneldojo.schema import Frozen

HEADER = (
    "import torch",
    "import torch.nn as nn",
    "import torch.nn.functional as F",
    "import triton",
    "import triton.language as tl",
    "",
    "",
    "@triton.jit",
)
WIDE = 1 << 20
"""From so many elements on, a GPU is busy whatever the block: then blocks are cut for real ones."""


class Launch(Frozen):
    """How a kernel is cut into programs."""

    block: int = 1024
    """Elements of a program of the flat kernel."""
    rows: int = 1
    """Rows of a program of the tile kernel."""
    product: tuple[int, int, int] = (16, 32, 32)
    """Rows, columns and inner length of a block of the product kernel."""
    warps: int = 4


PLAIN = Launch()
TUNED = Launch(block=512, product=(16, 16, 32), warps=8)
PLAIN_WIDE = Launch(product=(64, 64, 32))
TUNED_WIDE = Launch(block=2048, product=(128, 128, 32), warps=8)
LAZY = Launch(block=512)
LAZY_COLUMN = Launch(block=32, warps=1)
"""As many warps as the library takes for as many elements, so that laziness is worth exactly nothing on a model."""


def is_wide(graph: Graph) -> bool:
    """Whether the graph is of the full size."""
    return graph.shape.rows * graph.shape.columns >= WIDE


def launch_of(graph: Graph, *, is_tuned: bool) -> Launch:
    """How the fused kernel of a graph is cut."""
    if is_wide(graph):
        return TUNED_WIDE if is_tuned else PLAIN_WIDE
    return TUNED if is_tuned else PLAIN


def fused(graph: Graph, *, is_tuned: bool = False) -> str:
    """Write the whole graph as one kernel (two, where a product is too wide for whole rows)."""
    launch = launch_of(graph, is_tuned=is_tuned)
    if graph.graph_class == "elementwise":
        return answer(flat_kernel(graph), arguments(graph), flat_call(graph, launch))
    if graph.graph_class != "product":
        return answer(tile_kernel(graph), arguments(graph), tile_call(graph, launch))
    if is_wide(graph) and runs_along_rows(graph):
        return in_two_kernels(graph, launch)
    return answer(product_kernel(graph), arguments(graph), product_call(graph, launch))


def lazy(graph: Graph, chosen: int) -> str:
    """Write one operation as a kernel and leave the others to the library.

    Args:
        graph: the problem.
        chosen: place of the operation among the nodes.
    """
    one = alone(graph, chosen)
    launch = LAZY_COLUMN if one.inputs[0].kind == "column" else LAZY
    if one.graph_class == "elementwise":
        kernel, call = flat_kernel(one), flat_call(one, launch)
    elif one.graph_class == "product":
        kernel, call = product_kernel(one), product_call(one, launch)
    else:
        kernel, call = tile_kernel(one), tile_call(one, launch)
    library = [f"x = {expression(graph, node)}" for node in graph.nodes]
    before, after = library[:chosen], library[chosen + 1 :]
    body = [*before, *call, *(["x = out", *after] if after else [])]
    return answer(kernel, arguments(graph), body, "x" if after else "out")


def in_two_kernels(graph: Graph, launch: Launch) -> str:
    """Write a product whose rows are too wide for one block: the product up to what needs whole rows, then the rest."""
    first = next(place for place, node in enumerate(graph.nodes) if node.definition.family in ("reduction", "rowwise"))
    spine = len(graph.inputs) + first - 1
    head = graph.model_copy(update={"nodes": graph.nodes[:first]})
    moved = [
        node.model_copy(update={"operands": tuple(_moved(place, spine, first) for place in node.operands)})
        for node in graph.nodes[first:]
    ]
    whole = graph.inputs[0].model_copy(update={"kind": "matrix"})
    rest = graph.model_copy(update={"inputs": (whole, *graph.inputs[1:]), "nodes": tuple(moved)})
    kernels = [*product_kernel(head), "", "", "@triton.jit", *tile_kernel(rest, "row_kernel")]
    calls = [*product_call(head, launch), "x = out", *tile_call(rest, launch, "row_kernel")]
    return answer(kernels, arguments(graph), calls)


def _moved(place: int, spine: int, gone: int) -> int:
    """Where a value stands once the nodes up to `spine` are the input `x`."""
    if place == spine:
        return 0
    return place - gone if place > spine else place


def alone(graph: Graph, chosen: int) -> Graph:
    """The graph that consists of one operation; the spine up to it is its input `x`."""
    node = graph.nodes[chosen]
    spine = node.operands[0]
    kind = graph.kind_of(spine)
    beside = [graph.inputs[place] for place in node.operands[1:]]
    first = graph.inputs[0].model_copy(update={"kind": kind})
    places = tuple(range(len(node.operands)))
    return Graph(inputs=(first, *beside), nodes=(node.model_copy(update={"operands": places}),), shape=graph.shape)


def runs_along_rows(graph: Graph) -> bool:
    """Whether an operation needs whole rows."""
    return any(node.definition.family in ("reduction", "rowwise") for node in graph.nodes)


def is_reduced(graph: Graph) -> bool:
    """Whether the answer has one value a row."""
    return graph.kind_of(len(graph.inputs) + len(graph.nodes) - 1) == "column"


def read_inputs(graph: Graph) -> list[Input]:
    """The inputs that some node uses."""
    used = {place for node in graph.nodes for place in node.operands}
    return [given for place, given in enumerate(graph.inputs) if place in used]


def arguments(graph: Graph) -> list[str]:
    """Names of the inputs in order."""
    return [given.name for given in graph.inputs]


def answer(kernel: list[str], inputs: list[str], body: list[str], result: str = "out") -> str:
    """Put a kernel and the lines that launch it together."""
    lines = [
        *HEADER,
        *kernel,
        "",
        "",
        "class ModelNew(nn.Module):",
        f"    def forward(self, {', '.join(inputs)}):",
        *(f"        {line}" for line in body),
        f"        return {result}",
    ]
    return "\n".join(lines) + "\n"


def body_lines(graph: Graph, first: int = 0) -> list[str]:
    """Operations from `first` on as a kernel writes them, one value `x` changed line by line."""
    lines: list[str] = []
    for node in graph.nodes[first:]:
        names = [graph.inputs[place].name if place < len(graph.inputs) else "x" for place in node.operands]
        lines += form(node.operation, "x", names, node.constants)
    return lines


def flat_kernel(graph: Graph) -> list[str]:
    """Elements one after another; a row is read by the remainder of the element's number."""
    pointers = ", ".join(f"{name}_ptr" for name in [*arguments(graph), "out"])
    lines = [
        "offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = offsets < n",
    ]
    for given in read_inputs(graph):
        place = "offsets % columns" if given.kind == "row" else "offsets"
        lines.append(f"{given.name} = tl.load({given.name}_ptr + {place}, mask=mask, other=0.0)")
    lines += [*body_lines(graph), "tl.store(out_ptr + offsets, x, mask=mask)"]
    return [f"def kernel({pointers}, n, columns, BLOCK: tl.constexpr):", *indented(lines)]


def flat_call(graph: Graph, launch: Launch) -> list[str]:
    """Launch the flat kernel on `x`."""
    return [
        "out = torch.empty_like(x)",
        "n = out.numel()",
        "columns = out.shape[-1]",
        f"kernel[(triton.cdiv(n, {launch.block}),)]({', '.join([*arguments(graph), 'out'])}, n, columns, "
        f"BLOCK={launch.block}, num_warps={launch.warps})",
    ]


def tile_kernel(graph: Graph, name: str = "kernel") -> list[str]:
    """Whole rows."""
    pointers = ", ".join(f"{name}_ptr" for name in [*arguments(graph), "out"])
    lines = [
        "row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        "col = tl.arange(0, BLOCK_N)[None, :]",
        "inside = col < columns",
        "mask = (row < rows) & inside",
        *_loads(graph),
        *body_lines(graph),
        _store(graph),
    ]
    return [
        f"def {name}({pointers}, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):",
        *indented(lines),
    ]


def tile_call(graph: Graph, launch: Launch, name: str = "kernel") -> list[str]:
    """Launch the tile kernel."""
    return [
        "rows, columns = x.shape",
        _allocation(graph),
        "block = triton.next_power_of_2(columns)",
        f"{name}[(triton.cdiv(rows, {launch.rows}),)]({', '.join([*arguments(graph), 'out'])}, rows, columns, "
        f"BLOCK_M={launch.rows}, BLOCK_N=block, num_warps={launch.warps})",
    ]


def product_kernel(graph: Graph) -> list[str]:
    """A tile of the product, then everything after it."""
    pointers = ", ".join(f"{name}_ptr" for name in [*arguments(graph), "out"])
    lines = [
        "row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        "col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        "inside = col < columns",
        "mask = (row < rows) & inside",
        "x = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        "for start in range(0, inner, BLOCK_K):",
        "    k = start + tl.arange(0, BLOCK_K)",
        "    left = tl.load(x_ptr + row * inner + k[None, :], mask=(row < rows) & (k[None, :] < inner), other=0.0)",
        "    right = tl.load(w_ptr + k[:, None] * columns + col, mask=(k[:, None] < inner) & inside, other=0.0)",
        "    x += tl.dot(left, right)",
        *_loads(graph),
        *body_lines(graph, 1),
        _store(graph),
    ]
    blocks = "BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr"
    return [f"def kernel({pointers}, rows, columns, inner, {blocks}):", *indented(lines)]


def product_call(graph: Graph, launch: Launch) -> list[str]:
    """Launch the product kernel; with whole rows where something runs along them."""
    m, n, k = launch.product
    whole = runs_along_rows(graph)
    columns = "block" if whole else str(n)
    lines = ["rows, inner = x.shape", "columns = w.shape[1]", _allocation(graph)]
    if whole:
        lines.append("block = triton.next_power_of_2(columns)")
    grid = f"(triton.cdiv(rows, {m}), triton.cdiv(columns, {columns}))"
    return [
        *lines,
        f"kernel[{grid}]({', '.join([*arguments(graph), 'out'])}, rows, columns, inner, "
        f"BLOCK_M={m}, BLOCK_N={columns}, BLOCK_K={k}, num_warps={launch.warps})",
    ]


def _loads(graph: Graph) -> list[str]:
    lines: list[str] = []
    for given in read_inputs(graph):
        if given.kind == "matrix":
            lines.append(f"{given.name} = tl.load({given.name}_ptr + row * columns + col, mask=mask, other=0.0)")
        elif given.kind == "row":
            lines.append(f"{given.name} = tl.load({given.name}_ptr + col, mask=inside, other=0.0)")
    return lines


def _store(graph: Graph) -> str:
    if is_reduced(graph):
        return "tl.store(out_ptr + row, x, mask=row < rows)"
    return "tl.store(out_ptr + row * columns + col, x, mask=mask)"


def _allocation(graph: Graph) -> str:
    if is_reduced(graph):
        return "out = torch.empty(rows, device=x.device, dtype=x.dtype)"
    return "out = torch.empty(rows, columns, device=x.device, dtype=x.dtype)"


def indented(lines: list[str]) -> list[str]:
    """Four spaces further in."""
    return [f"    {line}" for line in lines]
