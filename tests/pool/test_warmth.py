"""What a worker has at hand for a problem, and that jobs go where something is at hand that nobody uses."""

from __future__ import annotations

import string
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pool.test_queue import task

from kerneldojo.pool import PoolConfig
from kerneldojo.pool.dispatcher import Dispatcher
from kerneldojo.pool.executor import Choosy
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
    assert warmth.num_met("a") == 2, "somebody is at it, and it is at hand"
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
    assert warmth.num_met("a")


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
    assert not warmth.num_met("a")
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
        assert all(warmth.num_met(each) for each in under_way)


def runners_made(problems: str, num_lanes: int, num_gpus: int = 1) -> int:
    """How many reference runners GPUs' workers make for candidates of these problems, handed out by the schedule.

    Verdicts end in the order in which they began; a runner serves one at a time, and as many wait as the slot believes.
    """
    schedule, made = Schedule(PoolConfig()), 0
    slots = [Slot(None, GPU, num_lanes, None, None, PoolConfig()) for _ in range(num_gpus)]  # type: ignore[arg-type]
    idle: list[list[str]] = [[] for _ in slots]
    under_way = deque[tuple[int, str]]()
    for number, name in enumerate(problems):
        schedule.add(task(number, name, "cuda:0"))
    while True:
        for gpu, slot in enumerate(slots):
            while sum(place == gpu for place, _ in under_way) < num_lanes and (taken := schedule.take(slot, slots)):
                problem = taken.problem
                slot.warmth.begin(problem)
                if problem in idle[gpu]:
                    idle[gpu].remove(problem)
                else:
                    made += 1
                under_way.append((gpu, problem))
        if not under_way:
            return made
        gpu, problem = under_way.popleft()
        slots[gpu].warmth.end(problem)
        idle[gpu].append(problem)
        del idle[gpu][: -min(2 * num_lanes - 1, 12)]


def test_problems_in_turn_need_a_runner_each() -> None:
    assert runners_made("abcdefghij" * 20, num_lanes=6) == 10


def test_groups_of_samples_need_few_runners_for_each_problem() -> None:
    """As reinforcement learning asks for them: sixteen candidates of each of sixteen problems, group by group."""
    made = runners_made("".join(letter * 16 for letter in "abcdefghijklmnop"), num_lanes=6)
    assert made <= 2 * 16, "six of each would be 96"


@pytest.mark.parametrize("num_lanes", [6, 8])
def test_groups_of_samples_are_spread_over_gpus_problem_by_problem(num_lanes: int) -> None:
    """768 candidates of 48 problems on four GPUs. One lane after the other made 678 with six verdicts at once on each;
    with eight the last third of the groups is fewer than lanes, and all that found none new made 220 for the first."""
    groups = "".join(letter * 16 for letter in string.ascii_letters[:48])
    assert runners_made(groups, num_lanes, num_gpus=4) <= 2 * 48 + 16


def test_who_asks_is_told_what_a_free_slot_would_rather_have() -> None:
    pool = Dispatcher(PoolConfig())
    slot = Slot(None, GPU, 2, None, None, PoolConfig())  # type: ignore[arg-type]
    host = Slot(None, PooledDevice(name="cpu", local_name="cpu", kind="cpu"), 1, None, None, PoolConfig())  # type: ignore[arg-type]
    slot.reason, host.reason = "", "starting"
    pool._slots = [slot, host]
    try:
        assert isinstance(pool, Choosy)
        slot.warmth.begin("a")
        assert [pool.rank(name) for name in "ab"] == [2, 1]
        slot.warmth.end("a")
        assert [pool.rank(name) for name in "ab"] == [0, 1]
        slot.running = {task(number, "a"): "build" for number in range(2)}
        assert pool.rank("a") == 2, "it has no lane free"
        host.reason = ""
        assert pool.rank("a") == 0
    finally:
        pool._slots = []
        pool.close()


def test_one_problem_has_a_runner_for_each_lane() -> None:
    assert runners_made("a" * 60, num_lanes=6) == 6
