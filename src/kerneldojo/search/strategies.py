"""Strategies: given the tree so far, which nodes to continue from next.

A strategy is a small configuration with one method. It is asked again after every verdict; what it has started but not
heard of yet shows in `Node.num_started`, so that many continuations can be under way at once.
"""

from __future__ import annotations

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
        new = [tree.root] * min(self.num_chains - _num_going_on(tree.root), num)
        waiting = [node for node in tree if not _num_going_on(node) and node.is_open and self._goes_on(node)]
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
    def name(self) -> str:
        """See `Strategy`."""
        return self.type if self.memory == Best() else f"{self.type}:{self.memory.window}"

    @property
    def context(self) -> ContextConfig | None:
        """The best turns."""
        return self.memory

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The last answer."""
        return Serial().pick(tree, num)


class BestFirst(_Typed):
    """Best-first search over turns: deepen what promises most, and leave it when it no longer improves.

    A node promises what its answer is worth, s / (1 + s) for a speedup s; one that failed promises what mending such
    answers has brought so far, which is `hope` before anything is known. Every continuation asked for takes
    `staleness` off, and so does every answer since the best one on the node's path. The root promises what first
    answers have been worth, and a known node goes before a fresh start that promises no more. So a chain is deepened
    as serial refinement would do it; once it is stuck, the search branches from an earlier node or starts afresh.

    A continuation under way counts like one that brought nothing (virtual loss). As long as little is known an answer
    is worth more than time, so the number under way grows with the number of answers, one for each `widening` of them.

    What it gains and what it does not, beside the other strategies: docs/results/search/RESULT.md.
    """

    type: Literal["best-first"] = "best-first"
    staleness: float = Field(default=0.07, ge=0)
    """Worth taken off for each continuation, and for each answer of a path since its best."""
    hope: float = Field(default=0.3, ge=0)
    """Worth expected of a first answer, and of mending a failed one, before the search has seen any."""
    widening: int = Field(default=8, ge=1)
    """Answers known for each further one that may be under way."""
    max_depth: int = Field(default=16, ge=1)
    """Longest chain."""

    def pick(self, tree: Tree, num: int) -> list[Node]:
        """The nodes that promise most, counting continuations as they are handed out."""
        started = {node: node.num_started for node in tree.nodes}
        num_under_way = sum(started.values()) - len(tree)
        width = 1 + len(tree) // self.widening
        promises = self.promises(tree)
        picked: list[Node] = []
        while promises and len(picked) < min(num, width - num_under_way):
            best = max(promises, key=lambda node: (promises[node] - self._tried(node, started[node]), node.index))
            started[best] += 1
            picked.append(best)
        return picked

    def promises(self, tree: Tree) -> dict[Node, float]:
        """What each node that can be continued promises, before its own continuations are counted."""
        first = self._expected([_worth(node) for node in tree.root.children])
        mended: dict[Status | None, list[float]] = {}
        for node in tree:
            if node.parent is not None and node.parent is not tree.root and node.parent.speedup is None:
                mended.setdefault(_kind(node.parent), []).append(_worth(node))
        promises: dict[Node, float] = {}
        for node in tree.nodes:
            if not node.is_open or node.depth >= self.max_depth:
                continue
            if node is tree.root:
                promises[node] = first
            else:
                worth = self._expected(mended.get(_kind(node), [])) if node.speedup is None else _worth(node)
                promises[node] = worth - self.staleness * _num_stale(node)
        return promises

    def _expected(self, seen: list[float]) -> float:
        """A mean in which `hope` counts as one observation."""
        return (self.hope + sum(seen)) / (1 + len(seen))

    def _tried(self, node: Node, num_started: int) -> float:
        """Taken off for continuations; the root's answers are in its mean, so that only those under way count."""
        return self.staleness * (num_started - len(node.children) if node.parent is None else num_started)


def _num_going_on(node: Node) -> int:
    """Continuations that a chain may go on through; an answer that this device cannot judge is a dead end."""
    return node.num_started - node.num_refused


def _worth(node: Node) -> float:
    speedup = node.speedup
    return 0.0 if speedup is None else speedup / (1 + speedup)


def _num_stale(node: Node) -> int:
    """Answers on the path to a node since its best one; a path on which nothing passed counts its retries."""
    worths: list[float] = []
    while node.parent is not None:
        worths.append(_worth(node))
        node = node.parent
    worths.reverse()
    return len(worths) - 1 - worths.index(max(worths)) if worths else 0


def _kind(node: Node) -> Status | None:
    return node.evaluation.status if node.evaluation else None


StrategyConfig = Annotated[
    Parallel | Serial | ParallelSerial | Sequential | BestFirst,
    Field(discriminator="type"),
]
"""Any strategy; `type` tells which."""

_ADAPTER: TypeAdapter[Any] = TypeAdapter(StrategyConfig)


def parse_strategy(settings: str | Mapping[str, Any]) -> Strategy:
    """A strategy from a table, a bare name, Kevin's way of writing chains (`16x8`), or `sequential:W` for W turns.

    Raises:
        ValueError: unknown, in one line.
    """
    if isinstance(settings, str):
        chains, cross, turns = settings.partition("x")
        if cross and chains.isdecimal() and turns.isdecimal() and int(chains) and int(turns):
            return ParallelSerial(num_chains=int(chains), num_turns=int(turns))
        kind, colon, window = settings.partition(":")
        if kind == "sequential" and colon:
            return Sequential(memory=Best(window=_turns(settings, window)))
        names = ("parallel", "serial", "parallel-serial", "sequential", "best-first")
        if settings not in names:
            raise ValueError(
                f"unknown strategy {settings!r}: choose one of {', '.join(names)}, or MxN chains as in 16x8"
            )
        settings = {"type": settings}
    return _ADAPTER.validate_python(dict(settings))


def _turns(settings: str, window: str) -> int:
    if not (window.isdecimal() and int(window)):
        raise ValueError(f"strategy {settings!r}: a number of turns of at least 1 is needed, as in sequential:4")
    return int(window)
