"""The search itself: ask the strategy where to go on, ask the policy, ask the judge, until the budget is spent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kerneldojo.episodes import PlayConfig, Tokenizer, first_episode, job_for, prompt, seed_of, with_turn
from kerneldojo.policies import Policy, Request
from kerneldojo.policies.policy import tokenizer_of
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.schema import Answer, Episode, Problem, Status
from kerneldojo.search.budget import Budget, Spent
from kerneldojo.search.strategies import Strategy
from kerneldojo.search.tree import Node, Tree

MAX_FAULTS = 8
"""Faults of ours in a row after which a search gives up: the policy or the judge is down."""
MAX_REFUSED = 4
"""Verdicts after which a search is over if this device could judge none of the answers: it may lack their language."""
MAX_UNCOUNTED = 8
"""Answers without a single token counted after which a search that is bounded by tokens gives up."""
MAX_WITHOUT_CODE = 64
"""Answers in a row without code after which a search that is bounded by verdicts alone is over."""


@dataclass
class Found:
    """What a search has found, and what it has spent."""

    tree: Tree
    strategy: str
    budget: Budget
    spent: Spent = field(default_factory=Spent)
    num_faults: int = 0
    """Answers lost by faults of ours; they cost nothing."""
    fault: str = ""
    """Why the search gave up before its budget was spent; empty if it did not."""
    refused: str = ""
    """Why nothing can be judged here (`Status.is_refusal`): it would come out the same again. Empty if it can."""


async def search(
    problem: Problem,
    policy: Policy,
    judge: AsyncJudge,
    strategy: Strategy,
    budget: Budget,
    config: PlayConfig,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    num_at_once: int = 8,
    tokenizer: Tokenizer | None = None,
    on_answer: Callable[[Found, Node], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Found:
    """Spend `budget` on `problem`.

    Args:
        problem: what is to be made faster.
        policy: writes the answers.
        judge: gives the verdicts.
        strategy: says where to go on.
        budget: what may be spent.
        config: how prompts are made and answers judged; the number of turns is the strategy's business.
        seed: of everything that is drawn; equal searches ask for equal samples, however their answers interleave.
        temperature: of the policy's sampling.
        top_p: of the policy's sampling.
        num_at_once: answers under way at most.
        tokenizer: renders prompts as ids, for policies that take them; None for the policy's own, if it has one.
        on_answer: called after each verdict, for a display.
        stop: asked before each further answer; once it says yes, what is under way is finished and nothing is begun.

    Returns:
        The tree and what it cost. Cancelling the task stops at once.
    """
    depth = budget.calls or 1 << 16
    changes: dict[str, object] = {"num_turns": depth}
    if strategy.context is not None:
        changes["context"] = strategy.context
    rules = config.model_copy(update=changes)
    tokenizer = tokenizer if tokenizer is not None else tokenizer_of(policy)
    root = first_episode(problem, rules, seed=seed, policy=policy.name, tokenizer=tokenizer)
    one = _Search(
        policy, judge, Found(Tree(root), strategy.name, budget), (temperature, top_p), tokenizer, on_answer, stop
    )
    await one.run(strategy, num_at_once)
    return one.found


class _Search:
    """One search under way."""

    def __init__(
        self,
        policy: Policy,
        judge: AsyncJudge,
        found: Found,
        sampling: tuple[float, float],
        tokenizer: Tokenizer | None,
        on_answer: Callable[[Found, Node], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.found = found
        self._policy, self._judge = policy, judge
        self._temperature, self._top_p = sampling
        self._tokenizer, self._on_answer, self._stop = tokenizer, on_answer, stop
        self._began = time.monotonic()
        self._faults_in_a_row = 0

    async def run(self, strategy: Strategy, num_at_once: int) -> None:
        under_way: set[asyncio.Task[None]] = set()
        if not self.found.tree.root.is_open:  # Its prompt does not fit.
            return
        try:
            while not self.found.fault and not self.found.refused and not self._is_barren():
                for node in self._picked(strategy, num_at_once - len(under_way), len(under_way)):
                    under_way.add(asyncio.create_task(self._extend(node, node.start())))
                if not under_way:
                    break
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                faults = [task.exception() for task in done]  # Asked of all: what nobody asks for is logged as lost.
                for fault in filter(None, faults):
                    raise fault
            self.found.refused = self.found.refused or self._refusal()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _refusal(self) -> str:
        """Why not a single answer could be judged; empty where one could.

        One that cannot speaks for itself alone: it may use what this device lacks (a CUDA graph, say).
        """
        verdicts = [node.evaluation for node in self.found.tree if node.evaluation is not None]
        return verdicts[-1].message if verdicts and all(one.status.is_refusal for one in verdicts) else ""

    def _picked(self, strategy: Strategy, num_free: int, num_under_way: int) -> list[Node]:
        if self._stop is not None and self._stop():
            return []
        left = self.found.spent.calls_left(
            self.found.budget,
            under_way=num_under_way,
            seconds=self._seconds(),
            answer_tokens=self._answer_tokens(),
        )
        num = min(num_free, left)
        return strategy.pick(self.found.tree, num) if num > 0 else []

    def _is_barren(self) -> bool:
        """Whether nothing but verdicts bounds the search, and no answer has asked for one for long."""
        budget, last = self.found.budget, self.found.tree.nodes[-MAX_WITHOUT_CODE:]
        if budget.calls is not None or budget.tokens is not None or budget.seconds is not None:
            return False
        return len(last) == MAX_WITHOUT_CODE and all(node.evaluation is None for node in last)

    def _answer_tokens(self) -> int:
        """What an answer under way may cost: as much as the longest so far, or the limit before there is one."""
        if len(self.found.tree):
            return max(node.turn.answer.usage.answer_tokens for node in self.found.tree if node.turn)
        return PlayConfig.model_validate(self.found.tree.root.episode.settings).max_answer_tokens

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    async def _extend(self, node: Node, path: str) -> None:
        messages, ids = prompt(node.episode, self._tokenizer)
        rules = PlayConfig.model_validate(node.episode.settings)
        answer = await self._policy.answer(
            Request(
                episode=node.episode,
                messages=messages,
                prompt_ids=ids,
                max_tokens=rules.max_answer_tokens,
                temperature=self._temperature,
                top_p=self._top_p,
                seed=seed_of("search", self.found.tree.root.episode.seed, path),
            )
        )
        if answer.finish == "failed":
            self._lose(node, path, answer.error or "the policy failed")
            return
        job = job_for(node.episode, answer)
        evaluation = None if job is None else await self._judge(job)
        if evaluation is not None and evaluation.status is Status.INFRASTRUCTURE_ERROR:
            self._lose(node, path, evaluation.message)
            return
        self._keep(node, path, answer, with_turn(_named(node.episode, path), answer, evaluation, self._tokenizer))

    def _keep(self, node: Node, path: str, answer: Answer, episode: Episode) -> None:
        found = self.found
        judged = episode.turns[-1].evaluation is not None
        found.spent = found.spent.after(answer, judged=judged, seconds=self._seconds())
        self._faults_in_a_row = 0
        if found.budget.tokens is not None and not found.spent.tokens and found.spent.calls >= MAX_UNCOUNTED:
            found.fault = "the policy counts no tokens, so that they are no bound: give it calls or verdicts"
        child = found.tree.add(node, episode, found.spent, path)
        if child.evaluation is not None and child.evaluation.status is Status.INVALID_PROBLEM:
            found.refused = child.evaluation.message
        elif found.spent.verdicts >= MAX_REFUSED:
            found.refused = self._refusal()
        if self._on_answer is not None:
            self._on_answer(found, child)

    def _lose(self, node: Node, path: str, reason: str) -> None:
        """An answer that came to nothing by a fault of ours: as if it had not been asked for."""
        node.lose(path)
        self.found.num_faults += 1
        self._faults_in_a_row += 1
        if self._faults_in_a_row >= MAX_FAULTS:
            self.found.fault = f"{MAX_FAULTS} faults in a row, the last: {reason}"


def _named(episode: Episode, path: str) -> Episode:
    """The episode under the id of the path that it is about to have: branches of a tree have ids of their own."""
    stem = episode.id.partition("#")[0]
    return episode.model_copy(update={"id": f"{stem}#{path}"})
