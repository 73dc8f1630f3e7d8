"""The proof that goes with a kernel: what was judged, twice, and what was spent to find it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from kerneldojo.files import write_whole
from kerneldojo.rollout.versions import versions
from kerneldojo.schema import Candidate, Evaluation, Frozen, Problem
from kerneldojo.search.budget import Budget, Spent
from kerneldojo.search.selection import Winner
from kerneldojo.search.spending import Found

DECIDING = ("kerneldojo", "torch", "triton", "numpy")
"""Packages that a figure depends on."""


class Proof(Frozen):
    """Everything needed to doubt a figure, or to reach it again."""

    problem: Problem
    candidate: Candidate
    candidate_hash: str
    """Of the source as written beside this file: judge it again and compare."""
    speedup: float
    """The figure: from `second`, which had no part in choosing the kernel."""
    first: Evaluation
    """The verdict that chose it."""
    second: Evaluation
    """A verdict with fresh seeds, after the choice."""
    num_finalists: int
    """Answers that could have won and were judged again."""
    strategy: str
    policy: str
    seed: int
    budget: Budget
    spent: Spent
    found_after_calls: int
    """Calls that had been made when the winner was written."""
    versions: dict[str, str] = Field(default_factory=dict)
    made_at: str = ""
    """UTC, ISO 8601."""


class Nothing(Frozen):
    """What a search that wrote no kernel has to say for itself."""

    problem: Problem
    speedup: float | None
    """The best figure that was reached twice, which is no gain; None if nothing passed twice."""
    message: str
    num_finalists: int
    strategy: str
    policy: str
    seed: int
    budget: Budget
    spent: Spent


def proof_of(found: Found, winner: Winner) -> Proof:
    """The proof of a search's winner.

    Raises:
        ValueError: nothing passed twice.
    """
    node, speedup = winner.node, winner.speedup
    if node is None or node.candidate is None or speedup is None or winner.first is None or winner.second is None:
        raise ValueError("no answer passed twice: there is nothing to prove")
    root = found.tree.root.episode
    return Proof(
        problem=root.problem,
        candidate=node.candidate,
        candidate_hash=node.candidate.hash,
        speedup=speedup,
        first=winner.first,
        second=winner.second,
        num_finalists=len(winner.finalists),
        strategy=found.strategy,
        policy=root.policy,
        seed=root.seed,
        budget=found.budget,
        spent=found.spent,
        found_after_calls=node.spent.calls,
        versions=versions(*DECIDING),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def write(proof: Proof, path: Path) -> Path:
    """Write the kernel to `path` and the proof beside it, each whole or not at all.

    The kernel's file holds exactly what was judged, so that its hash can be checked.

    Returns:
        The path of the proof: `path` with the suffix `.proof.json`.

    Raises:
        OSError: one of them cannot be written.
    """
    beside = path.with_suffix(".proof.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(beside, proof.model_dump_json(indent=1).encode() + b"\n")
    write_whole(path, proof.candidate.source.encode())
    return beside
