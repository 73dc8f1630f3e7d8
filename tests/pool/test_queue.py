"""Who is judged next, and where: order of arrival, affinity, overtaking, suspects. No process, no clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerneldojo import Candidate, Problem
from kerneldojo.pool import PoolConfig
from kerneldojo.pool.placement import PooledDevice, lanes_of_workers
from kerneldojo.pool.queue import Task, WaitingTasks
from kerneldojo.pool.schedule import Schedule
from kerneldojo.pool.slot import Slot
from kerneldojo.schema import Job

HERE = PooledDevice(name="cpu", local_name="cpu", kind="cpu")
ELSEWHERE = PooledDevice(name="model:h100", local_name="model:h100", kind="model")


def task(number: int, problem: str, device: str = "cpu") -> Task:
    source = Candidate(source=f"class ModelNew: pass  # {number}")
    job = Job(problem=Problem(name=problem, source=f"# {problem}"), candidate=source, device=device)
    return Task(number, job, f"key {number}", frozenset({device}))


def tasks(problems: str) -> list[Task]:
    return [task(number, problem) for number, problem in enumerate(problems)]


def waiting(some: list[Task], window: int = 64, most_overtaken: int = 8) -> WaitingTasks:
    queue = WaitingTasks(window, most_overtaken)
    for one in some:
        queue.add(one)
    return queue


def taken(queue: WaitingTasks, warm_here: str, warm: str = "") -> int:
    """Number of the task that a slot warm for `warm_here` takes, while slots are warm for `warm` in all."""
    hashes_here = {task(0, name).problem for name in warm_here}
    hashes = hashes_here | {task(0, name).problem for name in warm}
    chosen = queue.choose(HERE, hashes_here.__contains__, lambda problem: int(problem in hashes))
    assert chosen is not None
    return chosen.number


def test_without_warmth_it_is_first_come_first_served() -> None:
    queue = waiting(tasks("abcab"))
    assert [taken(queue, "") for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(queue) == 0


def test_a_slot_takes_what_it_is_warm_for_first() -> None:
    queue = waiting(tasks("abcab"))
    assert [taken(queue, "b") for _ in range(2)] == [1, 4]
    assert [one.num_overtaken for one in queue] == [2, 0, 0]


def test_who_finds_nothing_new_goes_where_the_fewest_are() -> None:
    queue = waiting(tasks("aabbcc"))
    at_work = {task(0, name).problem: number for name, number in (("a", 3), ("b", 1), ("c", 2))}
    chosen = [queue.choose(HERE, lambda _: False, at_work.__getitem__) for _ in range(4)]
    assert [one.number for one in chosen if one] == [2, 3, 4, 5]


def test_a_slot_leaves_to_others_what_they_are_warm_for() -> None:
    queue = waiting(tasks("aab"))
    assert taken(queue, "c", warm="a") == 2, "nobody is warm for b"
    assert taken(queue, "c", warm="a") == 0, "then waiting would only cost time"


def test_a_slot_looks_only_a_little_way_ahead() -> None:
    assert taken(waiting(tasks("aaab"), window=3), "b", warm="a") == 0
    assert taken(waiting(tasks("aaab"), window=4), "b", warm="a") == 3


def test_a_head_is_overtaken_so_often_and_no_more() -> None:
    queue = waiting(tasks("abbbb"), most_overtaken=2)
    assert [taken(queue, "b") for _ in range(5)] == [1, 2, 0, 3, 4]


@given(st.text("abcdefgh", max_size=60), st.integers(1, 8), st.integers(0, 4), st.integers(1, 3), st.randoms())
def test_nobody_starves(problems: str, window: int, most_overtaken: int, num_warm: int, random: object) -> None:
    """Whatever the order of problems and whoever asks: all are taken, and no head waits longer than is allowed."""
    queue = waiting(tasks(problems), window, most_overtaken)
    slots: list[list[str]] = [[], []]
    seen: set[int] = set()
    while len(queue):
        mine = slots[random.randrange(2)]  # type: ignore[attr-defined]
        warm = {name for slot in slots for name in slot[-num_warm:]}
        head = next(iter(queue))
        number = taken(queue, "".join(set(mine[-num_warm:])), "".join(warm))
        assert number not in seen
        seen.add(number)
        mine.append(problems[number])
        if number != head.number:
            assert head.num_overtaken <= most_overtaken
    assert seen == set(range(len(problems)))


def test_a_task_that_comes_back_has_kept_its_place() -> None:
    some = tasks("abc")
    queue = waiting(some)
    assert taken(queue, "") == 0
    queue.add(some[0])
    assert [taken(queue, "") for _ in range(3)] == [0, 1, 2]


def test_a_device_takes_only_what_may_run_on_it() -> None:
    queue = waiting([task(0, "a", "model:h100"), task(1, "a")])
    assert taken(queue, "") == 1
    assert queue.choose(HERE, lambda _: True, lambda _: 1) is None
    assert len(queue) == 1


def slot(device: PooledDevice = HERE, num_lanes: int = 2) -> Slot:
    """A slot that was never started: its place in the schedule is all that is asked of it here."""

    def never() -> None:
        raise AssertionError("it was not started")

    one = Slot(never, device, num_lanes, never, never, PoolConfig())  # type: ignore[arg-type]
    one.reason = ""
    return one


def suspect(number: int, device: str = "cpu") -> Task:
    one = task(number, "s", device)
    one.is_suspect = one.is_alone = True
    return one


def test_a_suspect_waits_for_an_empty_slot_which_takes_nothing_new() -> None:
    schedule, busy, other = Schedule(PoolConfig()), slot(), slot()
    running, queued, accused = task(0, "a"), task(1, "b"), suspect(2)
    busy.running[running] = "build"
    schedule.add(accused)
    schedule.add(queued)
    assert schedule.take(busy, [busy, other]) is None, "it is kept free for the suspect"
    assert schedule.take(other, [busy, other]) is queued, "the others go on meanwhile"
    busy.running.clear()
    assert schedule.take(busy, [busy, other]) is accused
    busy.running[accused] = "build"
    schedule.add(task(3, "c"))
    assert schedule.take(busy, [busy, other]) is None, "nobody is let in beside a suspect"


def test_a_suspect_goes_elsewhere_if_its_slot_falls_ill() -> None:
    schedule, first, second = Schedule(PoolConfig()), slot(), slot()
    first.running[task(0, "a")] = "build"
    accused = suspect(1)
    schedule.add(accused)
    assert schedule.take(first, [first, second]) is None
    assert schedule.take(second, [first, second]) is None, "the first keeps itself free for it"
    first.reason = "its worker is being started again"
    assert schedule.take(second, [first, second]) is accused


def test_a_suspect_never_goes_where_its_job_does_not_belong() -> None:
    schedule, here, elsewhere = Schedule(PoolConfig()), slot(), slot(ELSEWHERE)
    schedule.add(suspect(0, "model:h100"))
    assert schedule.take(here, [here, elsewhere]) is None
    assert schedule.take(elsewhere, [here, elsewhere]) is not None


@given(st.integers(1, 300), st.integers(1, 64))
def test_verdicts_are_spread_evenly_over_as_few_workers_as_can_have_them(num_verdicts: int, most: int) -> None:
    lanes = lanes_of_workers(num_verdicts, most)
    assert sum(lanes) == num_verdicts
    assert max(lanes) <= most
    assert max(lanes) - min(lanes) <= 1
    assert (len(lanes) - 1) * most < num_verdicts
