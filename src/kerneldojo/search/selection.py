"""Choosing a winner honestly: ranked by the first measurement, reported by the second.

The best of many noisy measurements is optimistic: among thirty kernels of equal speed, the fastest reading is luck.
So every answer that could win is judged again with fresh seeds and a stricter protocol. The first verdicts say which
one wins, the second say how good it is; an answer that does not pass twice does not win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kerneldojo.episodes import job_for
from kerneldojo.rewards import credited_speedup, speedup_interval
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.schema import Evaluation, Status
from kerneldojo.search.spending import Found
from kerneldojo.search.tree import Node

NUM_RETRIES = 2
"""Further tries of a second verdict that was lost to a fault of ours."""


@dataclass(frozen=True)
class Finalist:
    """An answer that could win, with both verdicts."""

    node: Node
    first: Evaluation
    second: Evaluation

    @property
    def confirmed(self) -> float | None:
        """The second verdict's speedup; None unless it passed again. An untimed pass counts as 1."""
        if not self.second.correct:
            return None
        credited = credited_speedup(self.second)
        return 1.0 if credited is None else credited


@dataclass(frozen=True)
class Winner:
    """The answer that is announced: `second` is its figure, `first` only chose it."""

    node: Node | None
    """None if no answer passed twice."""
    first: Evaluation | None
    second: Evaluation | None
    finalists: tuple[Finalist, ...]
    """All that were judged again, best first verdict first."""
    fault: str = ""
    """Why one of them could not be judged again, by a fault of ours: it may be the winner."""

    @property
    def speedup(self) -> float | None:
        """The figure to announce."""
        return next((one.confirmed for one in self.finalists if one.node is self.node), None)


def running_winners(found: Found) -> list[Node]:
    """Each answer that was the best so far when its verdict came, in that order."""
    winners: list[Node] = []
    best = 0.0
    for node in found.tree:
        if node.speedup is not None and node.speedup > best:
            best = node.speedup
            winners.append(node)
    return winners


def could_win(found: Found) -> list[Node]:
    """Answers whose first interval reaches that of the best: noise alone may have put them behind it.

    Modelled times have no noise; there it is the best and its equals, of equal code the first alone.
    """
    best = found.tree.best()
    if best is None or best.speedup is None or best.evaluation is None:
        return []
    interval = speedup_interval(best.evaluation)
    floor = best.speedup if interval is None or best.evaluation.timing.source != "measured" else interval[0]
    chosen: dict[str, Node] = {}
    for node in found.tree:
        if node.speedup is not None and node.candidate is not None and _reach(node) >= floor:
            chosen.setdefault(node.candidate.hash, node)
    return sorted(chosen.values(), key=lambda node: (-(node.speedup or 0.0), node.index))


async def choose(
    found: Found,
    judge: AsyncJudge,
    *,
    protocol: Literal["quick", "standard", "strict"] = "strict",
    max_finalists: int = 8,
    whole_curve: bool = False,
) -> Winner:
    """Judge again every answer that could win, and take the best by its first verdict among those that pass twice.

    If none of them passes twice, the next best by the first verdict are tried until one does.

    Args:
        found: a search that has ended.
        judge: asked for fresh verdicts.
        protocol: of the second verdict.
        max_finalists: judged again at first, at most.
        whole_curve: also judge again every answer that was the best for a while, for `curve`.
    """
    passed = [node for node in found.tree if node.speedup is not None]
    ranked = sorted(passed, key=lambda node: (-(node.speedup or 0.0), node.index))
    wanted = could_win(found)[:max_finalists]
    if whole_curve:
        wanted += [node for node in running_winners(found) if node not in wanted]
    finalists = list(await asyncio.gather(*(_again(node, judge, protocol) for node in wanted)))
    for node in ranked:
        if any(one.confirmed is not None for one in finalists):
            break
        if all(one.node is not node for one in finalists):
            finalists.append(await _again(node, judge, protocol))
    finalists.sort(key=lambda one: ranked.index(one.node))
    winner = next((one for one in finalists if one.confirmed is not None), None)
    faults = [one.second.message for one in finalists if one.second.status is Status.INFRASTRUCTURE_ERROR]
    fault = f"an answer could not be judged again: {faults[0]}" if faults else ""
    if winner is None:
        return Winner(None, None, None, tuple(finalists), fault)
    return Winner(winner.node, winner.first, winner.second, tuple(finalists), fault)


def curve(found: Found, finalists: Sequence[Finalist], points: Sequence[int]) -> list[float]:
    """Speedup to announce had the budget been so many calls; 0 where nothing had passed twice.

    The same rule at every point: of the answers among the first `k`, the best by its first verdict that passes again,
    at its second verdict's figure. `choose` must have been asked for the whole curve.
    """
    by_rank = sorted(finalists, key=lambda one: (-(one.node.speedup or 0.0), one.node.index))
    values: list[float] = []
    for calls in points:
        value = (one.confirmed for one in by_rank if one.node.spent.calls <= calls and one.confirmed is not None)
        values.append(next(value, 0.0))
    return values


async def _again(node: Node, judge: AsyncJudge, protocol: Literal["quick", "standard", "strict"]) -> Finalist:
    turn = node.turn
    assert turn is not None and turn.evaluation is not None
    job = job_for(node.episode, turn.answer)
    assert job is not None, "an answer with a verdict has code"
    again = job.model_copy(update={"protocol": protocol, "fresh": True})
    second = await judge(again)
    for _ in range(NUM_RETRIES):
        if second.status is not Status.INFRASTRUCTURE_ERROR:
            break
        second = await judge(again)
    return Finalist(node, turn.evaluation, second)


def _reach(node: Node) -> float:
    evaluation = node.evaluation
    assert evaluation is not None
    interval = speedup_interval(evaluation)
    if interval is None or evaluation.timing.source != "measured":
        return node.speedup or 0.0
    return interval[1]
