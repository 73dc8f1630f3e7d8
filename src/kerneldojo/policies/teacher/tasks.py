"""A problem as the teacher understands it, and what it can write for it."""

from __future__ import annotations

from typing import Protocol

from kerneldojo.policies.teacher import broken, cheating, writing
from kerneldojo.policies.teacher.config import Level
from kerneldojo.policies.teacher.katas import KataTask
from kerneldojo.problems.graphs import Graph, graph_of
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.problems.source import ProblemError, check_source
from kerneldojo.schema import Problem

_FORMS = {
    "elementwise": "elementwise kernel",
    "reduction": "kernel over rows",
    "norm": "kernel over rows",
    "softmax": "kernel over rows",
    "product": "product kernel",
}


class Task(Protocol):
    """A problem for which answers can be written."""

    def plan(self, level: Level) -> str:
        """One line that says what an honest answer of a level does."""
        ...

    def lazy(self) -> str:
        """Correct, and mostly the library's work."""
        ...

    def fused(self, *, is_tuned: bool) -> str:
        """Correct, and all of it own kernels, as far as the teacher can."""
        ...

    def broken(self, kind: str, stream: Stream) -> str:
        """One of the faults of `broken.EXPECTED`."""
        ...

    def cheating(self, kind: str) -> str:
        """One of the cheats of `cheating.EXPECTED`."""
        ...

    def level_of(self, code: str) -> Level | None:
        """The level of code that the teacher itself wrote; None for anything else."""
        ...


class GraphTask:
    """A generated problem."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def plan(self, level: Level) -> str:
        """See `Task`."""
        if level == "lazy":
            chosen = self.graph.nodes[self._chosen()].operation
            return f"Write {chosen} as a kernel.\nLeave the rest to the library."
        launch = writing.launch_of(self.graph, is_tuned=level == "tuned")
        return f"Fuse everything into one {_FORMS[self.graph.graph_class]}.\nGive each program {launch.warps} warps."

    def lazy(self) -> str:
        """See `Task`."""
        return writing.lazy(self.graph, self._chosen())

    def fused(self, *, is_tuned: bool) -> str:
        """See `Task`."""
        return writing.fused(self.graph, is_tuned=is_tuned)

    def broken(self, kind: str, stream: Stream) -> str:
        """See `Task`."""
        return broken.broken(self.graph, kind, stream)

    def cheating(self, kind: str) -> str:
        """See `Task`."""
        return cheating.cheating(self.graph, kind)

    def level_of(self, code: str) -> Level | None:
        """See `Task`."""
        if code.strip() == self.lazy().strip():
            return "lazy"
        if code.strip() == self.fused(is_tuned=False).strip():
            return "fused"
        return "tuned" if code.strip() == self.fused(is_tuned=True).strip() else None

    def _chosen(self) -> int:
        """The operation that is least work to write: elementwise, on a whole matrix, with nothing beside it."""
        graph = self.graph

        def trouble(place: int) -> tuple[bool, ...]:
            node = graph.nodes[place]
            kinds = {graph.kind_of(operand) for operand in node.operands}
            family = node.definition.family
            return family not in ("unary", "scalar", "binary"), "column" in kinds, "row" in kinds, family == "binary"

        return min(reversed(range(len(graph.nodes))), key=trouble)


def task_of(problem: Problem) -> Task:
    """Understand a problem.

    Raises:
        ProblemError: it is not a problem that the teacher can write anything for.
    """
    try:
        return GraphTask(graph_of(problem))
    except ProblemError:
        check_source(problem.source, problem.name)
        return KataTask(problem)
