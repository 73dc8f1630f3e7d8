"""The tree of a search: the problem at its root, one answer with its verdict in every other node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kerneldojo.rewards import credited_speedup
from kerneldojo.schema import Candidate, Episode, Evaluation, Turn
from kerneldojo.search.budget import Spent


@dataclass(eq=False)
class Node:
    """One answer, at the end of the episode that led to it; the root has an episode without turns."""

    index: int
    """In the order in which answers came back; the root is 0."""
    parent: Node | None
    episode: Episode
    spent: Spent = field(default_factory=Spent)
    """What the whole search had spent when this answer was judged."""
    path: str = ""
    """Which continuation of which: `2.0` is the first answer after the third attempt. Empty for the root."""
    children: list[Node] = field(default_factory=list["Node"])
    num_started: int = 0
    """Continuations asked for, those under way included."""
    lost: list[int] = field(default_factory=list[int])
    """Numbers of continuations that came to nothing by a fault of ours: the next ones take their place, and seeds."""

    @property
    def turn(self) -> Turn | None:
        """Its own answer and verdict; None for the root."""
        return self.episode.turns[-1] if self.episode.turns else None

    def start(self) -> str:
        """Count one more continuation as asked for; its path, which no other one has."""
        number = self.lost.pop(0) if self.lost else self.num_started
        self.num_started += 1
        return f"{self.path}.{number}".lstrip(".")

    def lose(self, path: str) -> None:
        """Take back a continuation that came to nothing by a fault of ours."""
        self.lost.append(int(path.rpartition(".")[2]))
        self.num_started -= 1

    @property
    def num_refused(self) -> int:
        """Answers to it that this device cannot judge, so that nothing goes on from them."""
        return sum(child.evaluation is not None and child.evaluation.status.is_refusal for child in self.children)

    @property
    def depth(self) -> int:
        """Number of answers on the path to it."""
        return len(self.episode.turns)

    @property
    def evaluation(self) -> Evaluation | None:
        """The verdict on its answer."""
        return self.turn.evaluation if self.turn else None

    @property
    def candidate(self) -> Candidate | None:
        """The code in its answer."""
        return self.turn.candidate if self.turn else None

    @property
    def speedup(self) -> float | None:
        """The speedup that may be paid for; None unless it passed. A pass that was not timed counts as 1."""
        evaluation = self.evaluation
        if evaluation is None or not evaluation.correct:
            return None
        credited = credited_speedup(evaluation)
        return 1.0 if credited is None else credited

    @property
    def is_open(self) -> bool:
        """Whether its episode can go on."""
        return self.episode.finish == ""


class Tree:
    """All nodes of a search, in the order in which their verdicts came."""

    def __init__(self, root: Episode) -> None:
        self.nodes = [Node(0, None, root)]

    @property
    def root(self) -> Node:
        """The problem."""
        return self.nodes[0]

    def add(self, parent: Node, episode: Episode, spent: Spent, path: str) -> Node:
        """Append the answer that continues `parent`."""
        node = Node(len(self.nodes), parent, episode, spent, path)
        parent.children.append(node)
        self.nodes.append(node)
        return node

    def __iter__(self) -> Iterator[Node]:
        """The answers: every node but the root."""
        return iter(self.nodes[1:])

    def __len__(self) -> int:
        """Number of answers."""
        return len(self.nodes) - 1

    def best(self) -> Node | None:
        """The passed answer with the highest speedup, the earliest among equals; None if none passed."""
        passed = [node for node in self if node.speedup is not None]
        return max(passed, key=lambda node: (node.speedup or 0.0, -node.index), default=None)
