"""Searches over a policy whose skill is a known random process, judged by a function that reads its answers."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.episodes import Best, PlayConfig, Summaries
from kerneldojo.policies import Request
from kerneldojo.policies.teacher import Teacher
from kerneldojo.pool import open_pool
from kerneldojo.problems.suite import load_suite
from kerneldojo.report.searches import search_figures
from kerneldojo.rollout import AsyncJudge, RunError, from_executor
from kerneldojo.rollout.lock import Lock
from kerneldojo.schema import Answer, Evaluation, Exploit, Job, Problem, Status, Timing, Usage
from kerneldojo.search import (
    BestFirst,
    Budget,
    Found,
    Parallel,
    ParallelSerial,
    Sequential,
    Serial,
    Strategy,
    choose,
    parse_strategy,
    running_winners,
    search,
)
from kerneldojo.search.many import missing, search_all
from kerneldojo.search.record import SEARCHES, read, record_of
from kerneldojo.search.selection import could_win, curve

PROBLEM = Problem(name="square", source="class Model: ...")
CONFIG = PlayConfig(one_shot=False, context=Summaries())


class Climber:
    """A policy whose answer states its speedup: a first one is drawn, a later one improves on its parent or fails.

    Its randomness comes from the request's seed alone, as a real policy's would.
    """

    name = "climber"
    gives_ids = False

    def __init__(self, gain: float = 0.3, fail: float = 0.5, latency: Callable[[random.Random], float] | None = None):
        self.gain, self.fail, self.latency = gain, fail, latency
        self.seeds: list[int] = []
        self.sampling: set[tuple[float, float]] = set()
        self.under_way = self.most = 0

    async def answer(self, request: Request) -> Answer:
        draw = random.Random(request.seed)
        self.seeds.append(request.seed)
        self.sampling.add((request.temperature, request.top_p))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.latency(random.Random()) if self.latency else 0)
        self.under_way -= 1
        past = [_speedup(turn.candidate.source) for turn in request.episode.turns if turn.candidate]
        if draw.random() < self.fail:
            return _answer("wrong")
        if not past:
            return _answer(f"speedup={draw.uniform(0.3, 1.2):.6f}")
        return _answer(f"speedup={past[-1] * (1 + draw.uniform(-0.2, 1) * self.gain) + 0.05:.6f}")

    async def close(self) -> None:
        pass


def _answer(code: str) -> Answer:
    return Answer(text=f"```python\nclass ModelNew: pass  # {code}\n```", usage=Usage(answer_tokens=10))


def _speedup(source: str) -> float:
    found = re.search(r"speedup=([\d.]+)", source)
    return float(found.group(1)) if found else 0.0


def verdict(speedup: float, *, half_width: float = 0.0, source: str = "modeled") -> Evaluation:
    if speedup <= 0:
        return Evaluation(status=Status.INCORRECT)
    one = Timing(source=source, median_ms=1.0, confidence_interval_ms=(1.0, 1.0))  # type: ignore[arg-type]
    mine = 1 / speedup
    kernel = Timing(
        source=source,  # type: ignore[arg-type]
        median_ms=mine,
        confidence_interval_ms=(mine * (1 - half_width), mine * (1 + half_width)),
    )
    return Evaluation(
        status=Status.PASSED, correct=True, speedup=speedup, coverage=1.0, timing=kernel, reference_timing=one
    )


async def exact(job: Job) -> Evaluation:
    return verdict(_speedup(job.candidate.source))


def run(strategy: Strategy, budget: Budget, seed: int = 0, policy: Climber | None = None, **options: object) -> Found:
    return asyncio.run(search(PROBLEM, policy or Climber(), exact, strategy, budget, CONFIG, seed=seed, **options))  # type: ignore[arg-type]


STRATEGIES = [Parallel(), Serial(), ParallelSerial(num_chains=4, num_turns=5), Sequential(), BestFirst()]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.type)
def test_every_strategy_spends_exactly_its_calls(strategy: Strategy) -> None:
    found = run(strategy, Budget(calls=20))
    assert len(found.tree) == found.spent.calls == 20
    assert found.spent.tokens == 200
    assert [node.spent.calls for node in found.tree] == list(range(1, 21))
    assert not found.fault


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(STRATEGIES), st.integers(1, 30), st.integers(1, 30), st.integers(1, 300), st.integers(1, 9))
def test_no_bound_is_passed(strategy: Strategy, calls: int, verdicts: int, tokens: int, at_once: int) -> None:
    budget = Budget(calls=calls, verdicts=verdicts, tokens=tokens)
    policy = Climber()
    spent = run(strategy, budget, policy=policy, num_at_once=at_once).spent
    assert spent.calls <= calls and spent.verdicts <= verdicts
    assert spent.tokens < tokens + 10  # the answer that crosses the bound is used, and no other was under way
    assert policy.most <= at_once


def test_shapes_of_the_trees() -> None:
    assert {node.depth for node in run(Parallel(), Budget(calls=9)).tree} == {1}
    assert sorted(node.depth for node in run(Serial(), Budget(calls=9)).tree) == list(range(1, 10))
    chains = run(ParallelSerial(num_chains=3, num_turns=4), Budget(calls=100)).tree
    assert sorted(node.depth for node in chains) == sorted([1, 2, 3, 4] * 3)
    assert sorted(node.path for node in chains if node.depth == 4) == ["0.0.0.0", "1.0.0.0", "2.0.0.0"]


def test_an_episode_is_the_path_to_its_node() -> None:
    for node in run(BestFirst(), Budget(calls=25)).tree:
        assert node.parent is not None
        assert node.episode.turns[:-1] == node.parent.episode.turns
        assert node.episode.id.endswith(f"#{node.path}")
        assert node.episode.settings["context"] == CONFIG.context.model_dump()
    memory = run(Sequential(), Budget(calls=2)).tree
    assert memory.root.episode.settings["context"]["type"] == "best"


@pytest.mark.parametrize("strategy", [Parallel(), Serial(), ParallelSerial(num_chains=3)], ids=lambda one: one.type)
def test_answers_do_not_depend_on_who_comes_first(strategy: Strategy) -> None:
    slow = Climber(latency=lambda draw: draw.random() * 0.01)
    one = run(strategy, Budget(calls=12), policy=slow, num_at_once=4)
    other = run(strategy, Budget(calls=12), num_at_once=1)
    if isinstance(strategy, ParallelSerial):  # which chains are longer when the budget ends may differ
        common = {node.path for node in one.tree} & {node.path for node in other.tree}
        assert len(common) >= 9
    else:
        common = {node.path for node in one.tree}
    texts = [{node.path: node.candidate for node in found.tree if node.path in common} for found in (one, other)]
    assert texts[0] == texts[1]
    assert len(set(slow.seeds)) == len(slow.seeds)


def _mean_best(strategy: Strategy, gain: float, fail: float) -> float:
    total = 0.0
    for seed in range(60):
        best = run(strategy, Budget(calls=24), seed=seed, policy=Climber(gain, fail), num_at_once=1).tree.best()
        total += best.speedup if best and best.speedup else 0.0
    return total / 60


@pytest.mark.parametrize(("gain", "fail"), [(0.4, 0.5), (0.4, 0.2), (0.1, 0.3)])
def test_best_first_beats_the_others_where_refinement_pays(gain: float, fail: float) -> None:
    others = (Parallel(), Serial(), ParallelSerial(num_chains=4, num_turns=6))
    assert _mean_best(BestFirst(), gain, fail) > max(_mean_best(one, gain, fail) for one in others)


@pytest.mark.parametrize(("gain", "fail"), [(-0.5, 0.3), (0.4, 0.8)])
def test_best_first_stays_near_parallel_where_refinement_is_useless(gain: float, fail: float) -> None:
    """Refined answers are slower, or mostly broken: then first answers are all that counts."""
    assert _mean_best(BestFirst(), gain, fail) > 0.9 * _mean_best(Parallel(), gain, fail)


class DeadEnds(Climber):
    """Climbs, but half of its first answers, and now and then a later one, begin a chain that never improves."""

    async def answer(self, request: Request) -> Answer:
        draw = random.Random(request.seed)
        past = [_speedup(turn.candidate.source) for turn in request.episode.turns if turn.candidate]
        is_dead = bool(past) and "dead" in request.episode.turns[-1].answer.text
        if is_dead or draw.random() < (0.2 if past else 0.5):
            return _answer(f"speedup={past[-1] if past else 0.5:.6f} dead")
        return _answer(f"speedup={(past[-1] if past else 0.5) + 0.3:.6f}")


def test_best_first_beats_the_others_where_chains_end_in_dead_ends() -> None:
    def mean_best(strategy: Strategy) -> float:
        bests = [run(strategy, Budget(calls=24), seed, DeadEnds(), num_at_once=4).tree.best() for seed in range(30)]
        return sum(best.speedup or 0.0 for best in bests if best) / len(bests)

    others = (Parallel(), Serial(), Sequential(), *(ParallelSerial(num_chains=n, num_turns=24 // n) for n in (2, 4, 8)))
    assert mean_best(BestFirst()) > max(mean_best(one) for one in others)


def test_best_first_ends_no_lower_than_serial_on_the_teacher() -> None:
    """The real policy and the real judge, with modelled times: few calls, so that a wasted one shows."""
    problems = list(load_suite("graphs:validation", "small"))[:5]
    config = PlayConfig(device="model:h100", protocol="quick")
    executor = open_pool("local", ["model:h100"], num_slots=1)

    async def total(strategy: Strategy, seed: int) -> float:
        judge, policy = from_executor(executor), Teacher.of("mixture")
        found = [
            await search(problem, policy, judge, strategy, Budget(calls=6), config, seed=seed, num_at_once=4)
            for problem in problems
        ]
        return sum(best.speedup or 0.0 for best in (one.tree.best() for one in found) if best)

    try:
        for seed in (0, 1, 2):
            assert asyncio.run(total(BestFirst(), seed)) >= asyncio.run(total(Serial(), seed)) - 1e-6
    finally:
        executor.close(drain=False)


@pytest.mark.parametrize(("tokens", "expected"), [(5, 1), (10, 1), (95, 10)])
def test_answers_under_way_count_against_the_tokens(tokens: int, expected: int) -> None:
    """Answers of 10 tokens: the last one may cross the bound, and no other is under way then."""
    slow = Climber(latency=lambda _: 0.001)
    assert run(Parallel(), Budget(calls=20, tokens=tokens), policy=slow, num_at_once=8).spent.calls == expected


class Broken(Climber):
    """Fails `num` times, then works."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.left = num

    async def answer(self, request: Request) -> Answer:
        self.left -= 1
        return Answer(text="", finish="failed", error="no route") if self.left >= 0 else await super().answer(request)


def test_faults_cost_nothing_and_too_many_end_the_search() -> None:
    found = run(Serial(), Budget(calls=5), policy=Broken(3))
    assert (found.spent.calls, found.num_faults, found.fault) == (5, 3, "")
    down = run(Serial(), Budget(calls=5), policy=Broken(1000))
    assert down.spent.calls == 0 and "no route" in down.fault


def test_an_answer_that_was_lost_is_asked_for_again_under_its_own_number() -> None:
    """With two under way and the first of them lost, the next one must not repeat the second's seed."""

    class Losing(Climber):
        async def answer(self, request: Request) -> Answer:
            is_lost = len(self.seeds) in (0, 4)
            found = await super().answer(request)
            return Answer(text="", finish="failed", error="no route") if is_lost else found

    policy, steady = Losing(fail=0.0), Climber(fail=0.0)
    lossy = run(Parallel(), Budget(calls=9), policy=policy, num_at_once=3)
    whole = run(Parallel(), Budget(calls=9), policy=steady, num_at_once=3)
    assert lossy.num_faults == 2
    answers = [{(node.path, node.candidate) for node in found.tree} for found in (lossy, whole)]
    assert answers[0] == answers[1] and len(answers[0]) == 9


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.type)
def test_an_answer_that_this_device_cannot_judge_is_one_lost_answer_and_no_more(strategy: Strategy) -> None:
    asked: list[Job] = []

    async def judge(job: Job) -> Evaluation:
        asked.append(job)
        if len(asked) in (2, 5, 6):
            return Evaluation(status=Status.UNSUPPORTED_ON_DEVICE, message="a CUDA graph")
        return await exact(job)

    found = asyncio.run(search(PROBLEM, Climber(fail=0.0), judge, strategy, Budget(calls=12), CONFIG))
    assert (found.spent.calls, found.spent.verdicts, found.refused, found.fault) == (12, 12, "", "")
    refused = [node for node in found.tree if node.evaluation and node.evaluation.status.is_refusal]
    assert len(refused) == 3 and not any(node.children for node in refused)


@pytest.mark.parametrize(("calls", "spent"), [(20, 4), (2, 2)])
def test_a_device_that_can_judge_no_answer_ends_a_search_soon(calls: int, spent: int) -> None:
    async def judge(_: Job) -> Evaluation:
        return Evaluation(status=Status.UNSUPPORTED_ON_DEVICE, message="needs a CUDA device")

    found = asyncio.run(search(PROBLEM, Climber(fail=0.0), judge, Serial(), Budget(calls=calls), CONFIG, num_at_once=1))
    assert (found.spent.calls, found.refused) == (spent, "needs a CUDA device")


def test_an_exception_of_the_judge_is_raised_and_nothing_is_left_running() -> None:
    policy = Climber(fail=0.0)

    async def raising(_: Job) -> Evaluation:
        raise OSError("the disk is gone")

    async def attempt() -> int:
        with pytest.raises(OSError, match="disk is gone"):
            await search(PROBLEM, policy, raising, Parallel(), Budget(calls=8), CONFIG)
        return len(asyncio.all_tasks())

    assert asyncio.run(attempt()) == 1


def _found(*evaluations: Evaluation) -> Found:
    """A parallel search whose answers get these verdicts, in this order."""
    given = iter(evaluations)

    async def judge(_: Job) -> Evaluation:
        return next(given)

    policy = Climber(fail=0.0)
    return asyncio.run(
        search(PROBLEM, policy, judge, Parallel(), Budget(calls=len(evaluations)), CONFIG, num_at_once=1)
    )


def test_the_best_is_chosen_by_the_first_verdict_and_announced_by_the_second() -> None:
    """Four equal kernels of true speedup 1.5, read with noise: the lucky reading chooses but is not announced."""
    noisy = [verdict(s, half_width=0.2, source="measured") for s in (1.45, 1.8, 1.55, 1.4)]
    found = _found(*noisy, verdict(0.8, half_width=0.01, source="measured"))
    asked: list[Job] = []

    async def again(job: Job) -> Evaluation:
        asked.append(job)
        return verdict(1.5, half_width=0.02, source="measured")

    winner = asyncio.run(choose(found, again))
    assert winner.first is not None and winner.first.speedup == 1.8
    assert winner.speedup == 1.5
    assert all(job.fresh and job.protocol == "strict" for job in asked)
    assert len(asked) == 4, "the slow one, whose interval does not reach the best, is not judged again"


def test_an_answer_that_does_not_pass_twice_does_not_win() -> None:
    found = _found(verdict(3.0), verdict(2.0), verdict(1.5))

    async def again(job: Job) -> Evaluation:
        first = next(node for node in found.tree if node.candidate == job.candidate)
        if first.speedup == 3.0:
            return Evaluation(status=Status.EXPLOIT, exploits=(Exploit(name="wrong_when_timed", evidence="seen"),))
        return verdict(first.speedup or 0)

    winner = asyncio.run(choose(found, again))
    assert winner.speedup == 2.0
    assert [one.confirmed for one in winner.finalists] == [None, 2.0]


def test_a_second_verdict_that_we_lose_is_no_failure_of_the_answer(tmp_path: Path) -> None:
    found, faults = _found(verdict(3.0), verdict(2.0)), [2]

    async def again(job: Job) -> Evaluation:
        first = next(node for node in found.tree if node.candidate == job.candidate)
        if first.speedup == 3.0 and faults[0]:
            faults[0] -= 1
            return Evaluation(status=Status.INFRASTRUCTURE_ERROR, message="the disk is full")
        return verdict(first.speedup or 0)

    winner = asyncio.run(choose(found, again))
    assert (winner.speedup, winner.fault) == (3.0, "")
    faults[0] = 9
    winner = asyncio.run(choose(found, again))
    assert (winner.speedup, winner.fault) == (2.0, "an answer could not be judged again: the disk is full")

    async def judge(job: Job) -> Evaluation:
        if job.fresh:
            return Evaluation(status=Status.INFRASTRUCTURE_ERROR, message="the disk is full")
        return await exact(job)

    path, seen = tmp_path / SEARCHES, list[Found]()
    wanted = missing(path, [Parallel()], [PROBLEM], 0, Budget(calls=2))
    policy = Climber(fail=0.0)
    ended = search_all(wanted, policy, judge, Budget(calls=2), CONFIG, path, on_end=lambda _, one: seen.append(one))
    asyncio.run(ended)
    assert "could not be judged again" in seen[0].fault and not list(read(path))  # to be searched again, not a failure


def test_of_two_processes_one_searches_and_nothing_twice(tmp_path: Path) -> None:
    path, budget, policy = tmp_path / SEARCHES, Budget(calls=2), Climber(fail=0.0)
    wanted = missing(path, [Parallel()], [PROBLEM], 0, budget)  # as both of them see it
    held = Lock(tmp_path / "lock")
    with pytest.raises(RunError, match="is writing to it"):
        asyncio.run(search_all(wanted, policy, exact, budget, CONFIG, path))
    held.release()
    for _ in range(2):
        asyncio.run(search_all(wanted, policy, exact, budget, CONFIG, path, temperature=0.7, top_p=0.9))
    assert len(list(read(path))) == 1 and len(policy.seeds) == 2
    assert policy.sampling == {(0.7, 0.9)}  # as the attempts of the run, beside which the searches stand


def test_nothing_passed_nothing_wins() -> None:
    found = _found(verdict(0), verdict(0))
    assert could_win(found) == []
    winner = asyncio.run(choose(found, exact))
    assert winner.node is None and winner.speedup is None


def test_the_curve_uses_one_rule_at_every_point() -> None:
    found = _found(verdict(1.0), verdict(0), verdict(2.0), verdict(1.5), verdict(4.0))
    assert [node.speedup for node in running_winners(found)] == [1.0, 2.0, 4.0]
    seconds = {1.0: 1.1, 2.0: 1.7, 4.0: 0.0}

    async def again(job: Job) -> Evaluation:
        first = next(node for node in found.tree if node.candidate == job.candidate)
        return verdict(seconds[first.speedup or 0.0])

    winner = asyncio.run(choose(found, again, whole_curve=True))
    assert winner.speedup == 1.7
    assert curve(found, winner.finalists, [1, 2, 3, 4, 5]) == [1.1, 1.1, 1.7, 1.7, 1.7]


def test_names_of_strategies() -> None:
    assert parse_strategy("16x8") == ParallelSerial(num_chains=16, num_turns=8)
    assert parse_strategy({"type": "best-first", "staleness": 0.1}) == BestFirst(staleness=0.1)
    assert parse_strategy("sequential:8") == Sequential(memory=Best(window=8))
    assert (parse_strategy("sequential:8").name, parse_strategy("sequential:4").name) == ("sequential:8", "sequential")
    for wrong in ("mcts", "0x4", "sequential:0", "sequential:x"):
        with pytest.raises(ValueError, match=f"strategy '{wrong}'") as refusal:
            parse_strategy(wrong)
        assert "\n" not in str(refusal.value)
    assert Budget(calls=None, verdicts=1, tokens=20_000).words == "1 verdict, 20,000 tokens"
    with pytest.raises(ValueError, match="at least one bound"):
        Budget(calls=None)


def test_searches_of_a_run_are_done_once_and_those_given_up_again(tmp_path: Path) -> None:
    path, ended = tmp_path / SEARCHES, list[tuple[str, str]]()
    problems = [PROBLEM.model_copy(update={"name": name, "source": f"class Model: ...  # {name}"}) for name in "abc"]
    strategies = [Serial(), Parallel()]

    async def faulty(job: Job) -> Evaluation:
        return Evaluation(status=Status.INFRASTRUCTURE_ERROR) if job.problem.name == "b" else await exact(job)

    def go_on(judge: AsyncJudge) -> int:
        wanted = missing(path, strategies, problems, seed=0, budget=Budget(calls=3))
        asyncio.run(
            search_all(
                wanted,
                Climber(),
                judge,
                Budget(calls=3),
                CONFIG,
                path,
                on_end=lambda problem, found: ended.append((problem.name, found.fault)),
            )
        )
        return len(wanted)

    assert go_on(faulty) == 6
    assert sorted(name for name, fault in ended if fault) == ["b", "b"] and len(ended) == 6
    assert {record.problem[-1] for record in read(path)} == {"a", "c"}
    assert go_on(exact) == 2 and go_on(exact) == 0
    assert len({record.key for record in read(path)}) == len(list(read(path))) == 6
    assert all(len(record.speedups) == 3 for record in read(path))
    assert all(record.verdicts == (1, 2, 3) and record.tokens == (10, 20, 30) for record in read(path))
    with pytest.raises(ValueError, match="searches with 3 calls, not 4 calls"):
        missing(path, strategies, problems, seed=0, budget=Budget(calls=4))


def test_what_cannot_be_judged_ends_a_search_for_good_and_is_no_fault(tmp_path: Path) -> None:
    path, seen = tmp_path / SEARCHES, list[Found]()

    async def refuse(job: Job) -> Evaluation:
        return Evaluation(status=Status.INVALID_PROBLEM, message="the problem is degenerate")

    budget = Budget(calls=9)
    wanted = missing(path, [Serial(), Parallel()], [PROBLEM], 0, budget)
    policy = Climber(fail=0.0)
    ended = search_all(wanted, policy, refuse, budget, CONFIG, path, on_end=lambda _, found: seen.append(found))
    asyncio.run(ended)
    assert [(one.refused, one.fault, one.num_faults) for one in seen] == [("the problem is degenerate", "", 0)] * 2
    assert all(record.refused and record.speedup is None for record in read(path))
    assert missing(path, [Serial(), Parallel()], [PROBLEM], 0, budget) == []
    assert search_figures(list(read(path)), (1.0,)) == []


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.type)
def test_a_problem_that_does_not_fit_is_a_failed_search(strategy: Strategy) -> None:
    tight = CONFIG.model_copy(update={"max_prompt_tokens": 1})
    found = asyncio.run(search(PROBLEM, Climber(), exact, strategy, Budget(calls=4), tight))
    assert (found.spent.calls, found.fault, found.refused) == (0, "", "")
    record = record_of(found, asyncio.run(choose(found, exact)), problem="square", seed=0)
    assert (record.announced(4), record.spent_by(4, "tokens")) == (0.0, 0)


def test_bounds_that_nothing_counts_towards_do_not_make_a_search_endless() -> None:
    class Silent(Climber):
        async def answer(self, request: Request) -> Answer:
            return Answer(text="I cannot do that.")

    found = run(Serial(), Budget(calls=None, tokens=1000), policy=Silent())
    assert "counts no tokens" in found.fault
    found = run(Parallel(), Budget(calls=None, verdicts=3), policy=Silent())
    assert not found.fault and found.spent.verdicts == 0
