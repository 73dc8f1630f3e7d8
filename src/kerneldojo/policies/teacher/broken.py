"""Answers that fail, each in one of the ways in which beginners fail: a good answer with one thing wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

from kerneldojo.policies.teacher.writing import fused
from kerneldojo.problems.graphs import Graph
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.schema import Status

EXPECTED: dict[str, Status] = {
    "syntax": Status.COMPILE_ERROR,
    "name": Status.COMPILE_ERROR,
    "library": Status.COMPILE_ERROR,
    "crash": Status.RUNTIME_ERROR,
    "omission": Status.INCORRECT,
    "mask": Status.INCORRECT,
    "grid": Status.INCORRECT,
    "shape": Status.INCORRECT,
}
"""What the judge says to each kind of fault."""


def broken(graph: Graph, kind: str, stream: Stream) -> str:
    """Write a fused answer with one fault.

    Args:
        graph: the problem.
        kind: one of `EXPECTED`.
        stream: chooses what is left out, where something is.
    """
    if kind == "omission":
        return _omitting(graph, stream)
    return spoilt(fused(graph), kind)


def spoilt(source: str, kind: str) -> str:
    """Put a fault into a good answer: any but `omission`; `syntax` where another finds no place."""
    changed = _FAULTS[kind](source)
    return changed if changed != source else _without_colon(source)


def _omitting(graph: Graph, stream: Stream) -> str:
    """Forget one operation; its other operand is passed in vain."""
    places = [
        place for place, node in enumerate(graph.nodes) if node.definition.family in ("unary", "scalar", "binary")
    ]
    omitted = stream.choose(places)
    spine = len(graph.inputs) + omitted
    nodes = [
        node.model_copy(update={"operands": tuple(_without(place, spine, graph, omitted) for place in node.operands)})
        for number, node in enumerate(graph.nodes)
        if number != omitted
    ]
    return fused(graph.model_copy(update={"nodes": tuple(nodes)}))


def _without(operand: int, spine: int, graph: Graph, omitted: int) -> int:
    """Where a value stands once the node whose value stood at `spine` is gone."""
    if operand == spine:
        return graph.nodes[omitted].operands[0]
    return operand - 1 if operand > spine else operand


def _without_colon(source: str) -> str:
    return re.sub(r"^(class ModelNew\(.*\)):$", r"\1", source, flags=re.MULTILINE)


def _with_unknown_name(source: str) -> str:
    return source.replace("tl.program_id(0)", "tl.program_number(0)")


def _with_library_in_kernel(source: str) -> str:
    """Call PyTorch where only Triton's language works: right before the result is stored."""
    return re.sub(r"^    tl\.store\(", "    x = torch.clone(x)\n    tl.store(", source, count=1, flags=re.MULTILINE)


def _crashing(source: str) -> str:
    for old, new in (
        ("columns = out.shape[-1]", "columns = out.shape[2]"),
        ("rows, columns = x.shape", "batch, rows, columns = x.shape"),
        ("rows, inner = x.shape", "batch, rows, inner = x.shape"),
        ("n = out.numel()\n    kernel", "n = out.numel\n    kernel"),
        ("// columns\n", "// (columns - columns)\n"),
    ):
        source = source.replace(old, new)
    return source


def _masked_too_early(source: str) -> str:
    for bound in ("offsets < n", "row < rows"):
        source = source.replace(bound, f"{bound} - 1")
    return source


def _one_program(source: str) -> str:
    return re.sub(r"kernel\[\(.*\)\]", "kernel[(1, 1)]", source)


def _wrong_shape(source: str) -> str:
    result = re.compile(r"^        return (out|out0|copied\(result\))$", flags=re.MULTILINE)
    return result.sub(r"        return \1[None]", source)


_FAULTS: dict[str, Callable[[str], str]] = {
    "syntax": _without_colon,
    "name": _with_unknown_name,
    "library": _with_library_in_kernel,
    "crash": _crashing,
    "mask": _masked_too_early,
    "grid": _one_program,
    "shape": _wrong_shape,
}
