"""Four frozen sets: a graph belongs to one of them by its signature alone.

*Extrapolation* holds what training never shows: longer spines, and pairs of neighbouring operations that a hash holds
back. Everything else falls by the hash of its signature: a tenth to validation, two tenths to test, the rest to
training. Since membership is a function of the signature, no graph can be in two sets, whatever is drawn, and however
often.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

from kerneldojo.problems.graphs.graph import Graph
from kerneldojo.schema import content_hash

Split = Literal["train", "validation", "test", "extrapolation"]
SPLITS: tuple[Split, ...] = get_args(Split)
LONGEST = 4
"""Most operations of a graph outside the extrapolation set."""
HELD_BACK = 0.08
"""Share of ordered pairs of operations that only the extrapolation set has."""
VALIDATION, TEST = 0.1, 0.2


def split_of(graph: Graph) -> Split:
    """The set to which a graph belongs."""
    if len(graph.nodes) > LONGEST or has_unseen_pair(graph):
        return "extrapolation"
    share = _share(graph.hash)
    if share < VALIDATION:
        return "validation"
    return "test" if share < VALIDATION + TEST else "train"


def has_unseen_pair(graph: Graph) -> bool:
    """Whether two neighbouring operations are a pair that is held back from training."""
    names = graph.operations
    return any(is_held_back(first, second) for first, second in pairwise(names))


def is_held_back(first: str, second: str) -> bool:
    """Whether `second` right after `first` is a pair that only the extrapolation set has."""
    return _share(content_hash("pair of operations", first, second)) < HELD_BACK


def _share(digest: str) -> float:
    return int(digest[:13], 16) / 16**13
