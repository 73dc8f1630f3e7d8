"""Strategies: given the tree so far, which nodes to continue from next.

A strategy is a small configuration with one method. It is asked again after every verdict; what it has started but not
heard of yet shows in `Node.num_started`, so that many continuations can be under way at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, TypeAdapter

from kerneldojo.episodes import Best, ContextConfig
from kerneldojo.schema import Frozen, Status
from kerneldojo.search.tree import Node, Tree


class Strategy(Protocol):
    """One way to spend a budget."""

    @property
    def name(self) -> str:
        """For reports, for example `serial`."""
        ...

    @property
    def context(self) -> ContextConfig | None:
        """What prompts hold of earlier turns, where the strategy is tied to one; None for the run's own."""
        ...

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """At most `num` nodes to continue from now, repeats allowed.

        An empty list means: wait for what is under way, and if nothing is, the search is over.
        """
        ...


class _Typed(Frozen):
    """What strategies share: each is known by its `type`, and most take the prompts of the run as they are."""

    type: Any

    @property
    def name(self) -> str:
        """See `Strategy`."""
        return self.type

    @property
    def context(self) -> ContextConfig | None:
        """See `Strategy`."""
        return None


class Parallel(_Typed):
    """Independent first answers: best of n."""

    type: Literal["parallel"] = "parallel"

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The root, always."""
        return [tree.root] * num


class ParallelSerial(_Typed):
    """Chains of refinement side by side: Kevin's (arXiv 2507.11948) 16 x 8 by default."""

    type: Literal["parallel-serial"] = "parallel-serial"
    num_chains: int = Field(default=16, ge=1)
    """Chains."""
    num_turns: int | None = Field(default=8, ge=1)
    """Answers of each; None for as many as the budget allows."""

    @property
    def name(self) -> str:
        """See `Strategy`."""
        return f"{self.num_chains}x{self.num_turns or 'n'}"

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """New chains first, so that all go side by side; then the shortest chain that waits."""
        new = [tree.root] * min(self.num_chains - tree.root.num_started, num)
        waiting = [node for node in tree if node.num_started == 0 and node.is_open and self._goes_on(node)]
        waiting.sort(key=lambda node: (node.depth, node.index))
        return (new + waiting)[:num]

    def _goes_on(self, node: Node) -> bool:
        return self.num_turns is None or node.depth < self.num_turns


class Serial(_Typed):
    """One chain of refinement, each answer after the feedback on the one before."""

    type: Literal["serial"] = "serial"

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The last answer."""
        return ParallelSerial(num_chains=1, num_turns=None).pick(tree, num)


class Sequential(_Typed):
    """Dr. Kernel's (arXiv 2602.05885) sequential scaling: one chain whose prompt holds the best turns of its memory."""

    type: Literal["sequential"] = "sequential"
    memory: Best = Best()
    """Which turns the prompt holds."""

    @property
    def context(self) -> ContextConfig | None:
        """The best turns."""
        return self.memory

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The last answer."""
        return Serial().pick(tree, num)


class BestFirst(_Typed):
    """Best-first search over turns: continue where the next answer is worth most, and doubt what was tried seldom.

    A node's score is the expected worth of an answer that continues it, plus the upper confidence bound of bandits,
    `exploration * sqrt(ln(1 + answers) / (1 + continuations))`. The worth of an answer is s / (1 + s) for a speedup s,
    and 0 unless it passed. What to expect is learned from the tree itself: a node's own continuations, and before
    there are any, what continuing *such* a node (passed, or failed in this way) has brought so far. Where first
    answers are as good as refined ones the search is parallel, where refinement pays it is serial.
    """

    type: Literal["best-first"] = "best-first"
    exploration: float = Field(default=0.25, ge=0)
    """Weight of doubt."""
    headroom: float = Field(default=0.1, ge=0)
    """Bonus of a passed answer far from the physical limit, whose kernel can still become faster."""
    num_first: int = Field(default=2, ge=1)
    """First answers before any refinement."""
    max_depth: int = Field(default=16, ge=1)
    """Longest chain."""

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The nodes with the highest scores, counting continuations as they are handed out."""
        started = {node.index: node.num_started for node in tree.nodes}
        open_nodes = [node for node in tree.nodes if node.is_open and node.depth < self.max_depth]
        expected, known = self.expected_worths(tree)
        picked: list[Node] = []
        while len(picked) < num and open_nodes:
            best = tree.root
            if started[0] >= self.num_first:
                doubt = self.exploration * math.sqrt(math.log1p(sum(started.values())))
                scores = {
                    node: expected[node.index] + doubt / math.sqrt(1 + known[node.index] + started[node.index])
                    for node in open_nodes
                }
                best = max(open_nodes, key=lambda node: (scores[node], -node.index))
            started[best.index] += 1
            picked.append(best)
        return picked

    def expected_worths(self, tree: Tree) -> tuple[dict[int, float], dict[int, int]]:
        """For each node, the expected worth of an answer that continues it, and how often such nodes were continued.

        The first is in [0, 1 + headroom].
        """
        gains: dict[Status | None, list[float]] = {kind: [gain] for kind, gain in _PRIOR_GAINS.items()}
        for node in tree:
            if node.parent is not None and node.parent is not tree.root:
                gains.setdefault(_kind(node.parent), [0.0]).append(_worth(node) - _worth(node.parent))
        means = {kind: sum(values) / len(values) for kind, values in gains.items()}
        expected: dict[int, float] = {}
        known: dict[int, int] = {}
        for node in tree.nodes:
            kind = _kind(node)
            before = _UNKNOWN if node is tree.root else _worth(node) + means.get(kind, 0.0)
            seen = [_worth(child) for child in node.children]
            expected[node.index] = (before + sum(seen)) / (1 + len(seen)) + self._room(node)
            known[node.index] = 0 if node is tree.root else len(gains.get(kind, ())) - len(seen)
        return expected, known

    def _room(self, node: Node) -> float:
        evaluation = node.evaluation
        if evaluation is None or not evaluation.correct or not evaluation.roofline:
            return 0.0
        fraction = evaluation.roofline.fraction
        return 0.0 if fraction is None else self.headroom * (1 - min(fraction, 1.0))


_UNKNOWN = 0.3
"""Worth of an answer of which nothing is known."""
_PRIOR_GAINS = {
    Status.PASSED: 0.0,
    Status.COMPILE_ERROR: 0.3,
    Status.RUNTIME_ERROR: 0.3,
    Status.INCORRECT: 0.35,
    Status.OUT_OF_MEMORY: 0.25,
    Status.TIMEOUT: 0.15,
    Status.EXPLOIT: 0.05,
}
"""Gain expected from an answer to such a verdict; counts as one observation beside those of the search."""


def _worth(node: Node) -> float:
    speedup = node.speedup
    return 0.0 if speedup is None else speedup / (1 + speedup)


def _kind(node: Node) -> Status | None:
    return node.evaluation.status if node.evaluation else None


StrategyConfig = Annotated[
    Parallel | Serial | ParallelSerial | Sequential | BestFirst,
    Field(discriminator="type"),
]
"""Any strategy; `type` tells which."""

_ADAPTER: TypeAdapter[Any] = TypeAdapter(StrategyConfig)


def parse_strategy(settings: str | Mapping[str, Any]) -> Strategy:
    """A strategy from a table, a bare name, or Kevin's way of writing chains (`16x8`).

    Raises:
        ValueError: unknown, in one line.
    """
    if isinstance(settings, str):
        chains, cross, turns = settings.partition("x")
        if cross and chains.isdigit() and turns.isdigit():
            return ParallelSerial(num_chains=int(chains), num_turns=int(turns))
        names = ("parallel", "serial", "parallel-serial", "sequential", "best-first")
        if settings not in names:
            raise ValueError(
                f"unknown strategy {settings!r}: choose one of {', '.join(names)}, or MxN chains as in 16x8"
            )
        settings = {"type": settings}
    return _ADAPTER.validate_python(dict(settings))
