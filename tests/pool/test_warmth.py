"""What a worker has at hand for a problem, and that jobs go where something is at hand that nobody uses."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pool.test_queue import task

from kerneldojo.pool import PoolConfig
from kerneldojo.pool.placement import PooledDevice
from kerneldojo.pool.schedule import Schedule
from kerneldojo.pool.slot import Slot
from kerneldojo.pool.warmth import Warmth

GPU = PooledDevice(name="cuda:0", local_name="cuda:0", kind="cuda")


def test_what_an_audit_found_out_serves_any_number_of_verdicts() -> None:
    warmth = Warmth(2, is_shared=True)
    for _ in range(2):
        warmth.begin("a")
    assert not warmth.is_free("a")
    assert warmth.is_met("a"), "somebody is at it"
    warmth.end("a")
    warmth.begin("a")
    assert warmth.is_free("a")


def test_a_runner_serves_one_verdict_at_a_time() -> None:
    warmth = Warmth(2, is_shared=False)
    warmth.begin("a")
    warmth.end("a")
    assert warmth.is_free("a")
    warmth.begin("a")
    assert not warmth.is_free("a")
    assert warmth.is_met("a")


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_was_used_last_stays_longest(is_shared: bool) -> None:
    warmth = Warmth(2, is_shared=is_shared)
    for name in "abac":
        warmth.begin(name)
        warmth.end(name)
    assert [warmth.is_free(name) for name in "abc"] == [True, False, True]


def test_a_worker_that_is_lost_has_nothing_at_hand() -> None:
    warmth = Warmth(2, is_shared=False)
    warmth.begin("a")
    warmth.begin("b")
    warmth.end("a")
    warmth.lose()
    assert not warmth.is_free("a")
    assert not warmth.is_met("a")
    warmth.end("b")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans())), st.integers(1, 5), st.booleans())
def test_there_is_never_more_at_hand_than_is_kept(events: list[tuple[str, bool]], most: int, is_shared: bool) -> None:
    warmth = Warmth(most, is_shared=is_shared)
    under_way = deque[str]()
    for name, begins in events:
        if begins:
            warmth.begin(name)
            under_way.append(name)
        elif under_way:
            warmth.end(under_way.popleft())
        assert sum(warmth.is_free(each) for each in "abcd") <= most
        assert all(warmth.is_met(each) for each in under_way)


def runners_made(problems: str, num_lanes: int) -> int:
    """How many reference runners a GPU's worker makes for candidates of these problems, handed out by the schedule.

    Verdicts take equally long; a runner serves one at a time, and as many wait as the slot believes.
    """
    schedule = Schedule(PoolConfig())
    slot = Slot(None, GPU, num_lanes, None, None, PoolConfig())  # type: ignore[arg-type]
    for number, name in enumerate(problems):
        schedule.add(task(number, name, "cuda:0"))
    idle, under_way, made = list[str](), deque[str](), 0
    while True:
        while len(under_way) < num_lanes and (taken := schedule.take(slot, [slot])) is not None:
            problem = taken.job.problem.hash
            slot.warmth.begin(problem)
            if problem in idle:
                idle.remove(problem)
            else:
                made += 1
            under_way.append(problem)
        if not under_way:
            return made
        slot.warmth.end(under_way[0])
        idle.append(under_way.popleft())
        del idle[: -min(2 * num_lanes - 1, 12)]


def test_problems_in_turn_need_a_runner_each() -> None:
    assert runners_made("abcdefghij" * 20, num_lanes=6) == 10


def test_groups_of_samples_need_few_runners_for_each_problem() -> None:
    """As reinforcement learning asks for them: sixteen candidates of each of sixteen problems, group by group."""
    made = runners_made("".join(letter * 16 for letter in "abcdefghijklmnop"), num_lanes=6)
    assert made <= 2 * 16, "six of each would be 96"


def test_one_problem_has_a_runner_for_each_lane() -> None:
    assert runners_made("a" * 60, num_lanes=6) == 6
