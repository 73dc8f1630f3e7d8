"""Clients take turns, priorities order a client's own work, and the queue keeps nothing of what has left it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_app import drive, order, running, until
from service_executors import ChoosyExecutor, TextExecutor

from kerneldojo.pool.config import MOST_OVERTAKEN
from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Job
from kerneldojo.service.places import Places
from kerneldojo.service.queue import MAX_LINES, Entry, FairQueue

CLIENTS = st.sampled_from("abc")


def entry(sequence: int, client: str, priority: int = 1, problem: str = "") -> Entry:
    return Entry(f"t{sequence}", sequence, client, priority, 10, problem)


@given(st.lists(st.tuples(CLIENTS, st.integers(0, 2)), max_size=40), st.data())
def test_everything_leaves_once_and_in_a_clients_order(tasks: list[tuple[str, int]], data: st.DataObject) -> None:
    queue = FairQueue()
    entries = [entry(i, client, priority) for i, (client, priority) in enumerate(tasks)]
    for item in entries:
        queue.push(item)
    removed = {item.id for item in entries if data.draw(st.booleans())}
    assert all(queue.remove(name) for name in removed) and not any(queue.remove(name) for name in removed)
    assert queue.num_bytes == 10 * len(queue) == 10 * (len(entries) - len(removed))
    left: list[Entry] = []
    while (item := queue.pop(Counter())) is not None:
        left.append(item)
    assert {item.id for item in left} == {item.id for item in entries} - removed
    for client in "abc":
        own = [(-item.priority, item.sequence) for item in left if item.client == client]
        assert own == sorted(own)
    assert not queue._lines and not queue._served and not queue.clients() and queue.num_bytes == 0
    assert not queue._standing._numbers and not queue._overtaken and not queue._wanted


@given(st.lists(CLIENTS, min_size=1, max_size=60))
def test_slots_are_shared_evenly_while_everyone_has_work(clients: list[str]) -> None:
    queue = FairQueue()
    for i, client in enumerate(clients):
        queue.push(entry(i, client))
    running: Counter[str] = Counter()
    while (item := queue.pop(running)) is not None:
        running[item.client] += 1
        busy = [client for client in queue.clients()]
        # Nobody who still waits has fewer slots than anybody else, but for one.
        assert all(running[client] >= running[item.client] - 1 for client in busy)


@given(st.lists(st.tuples(CLIENTS, st.integers(0, 1), st.sampled_from("pqrs")), max_size=60), st.randoms())
def test_an_executor_may_choose_among_a_clients_tasks_of_one_priority(
    tasks: list[tuple[str, int, str]], chance: random.Random
) -> None:
    queue = FairQueue()
    for i, (client, priority, problem) in enumerate(tasks):
        queue.push(entry(i, client, priority, problem))
    left: list[Entry] = []
    while queue:
        ranks = {problem: chance.randint(0, 2) for problem in "pqrs"}
        waiting = list(queue._entries.values())
        item = queue.pop(Counter(), ranks.__getitem__)
        assert item is not None
        left.append(item)
        equal = [one for one in waiting if (one.client, one.priority) == (item.client, item.priority)]
        assert all(one.priority <= item.priority for one in waiting if one.client == item.client)
        first = min(equal, key=lambda one: (ranks[one.problem], one.sequence))
        assert item is first or item is min(equal, key=lambda one: one.sequence)
    assert sorted(one.sequence for one in left) == list(range(len(tasks)))
    assert not queue._overtaken and not queue._lines


def test_a_clients_first_task_is_overtaken_so_often_and_no_more() -> None:
    queue = FairQueue()
    for i in range(100):
        queue.push(entry(i, "a", problem="liked" if i else "disliked"))
    popped = [queue.pop(Counter(), lambda problem: 2 * (problem == "disliked")) for _ in range(100)]
    assert [one.sequence for one in popped if one is not None].index(0) == MOST_OVERTAKEN


def test_samples_of_one_problem_do_not_crowd_the_slots(tmp_path: Path) -> None:
    """Six candidates of each of ten problems, group by group: hardly more than a runner for each, where two slots made
    two for each."""

    async def test() -> None:
        executor = ChoosyExecutor(num_slots=2)
        async with running(tmp_path, executor) as r:
            groups = [order(f"sleep 0.01 {i}", problem={"name": str(i // 6), "source": str(i // 6)}) for i in range(60)]
            await r.http.post("/v1/tasks/batch", json={"tasks": groups})
            await until(lambda: r.service.states["done"] == 60)
            assert len(executor.seen) == 60
            assert executor.num_made <= 14

    drive(test)


def test_one_task_is_not_delayed_by_anothers_thousand(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            await until(lambda: r.service.states["running"] == 1)
            flood = [order(f"flood {i}", priority="high") for i in range(1000)]
            await r.http.post("/v1/tasks/batch", json={"tasks": flood}, headers={"X-Dojo-Client": "flood"})
            quiet = [order("quiet low", priority="low"), order("quiet high", priority="high")]
            await r.http.post("/v1/tasks/batch", json={"tasks": quiet}, headers={"X-Dojo-Client": "quiet"})
            overview = (await r.http.get("/v1/overview")).json()
            assert overview["queue"]["clients"] == {"flood": 1000, "quiet": 2}
            executor.release.set()
            await until(lambda: r.service.states["done"] > 10)
            order_of_judging = [job.candidate.source for job in executor.seen]
            assert order_of_judging.index("quiet high") <= 3 and order_of_judging.index("quiet low") <= 5
            assert order_of_judging.index("quiet high") < order_of_judging.index("quiet low")

    drive(test)


class TwoDevices(TextExecutor):
    """One slot on each of two devices, for the jobs that ask for it: another one waits until that is free."""

    def __init__(self) -> None:
        super().__init__(["model:h100", "cpu"], num_slots=2)
        self._each = {name: ThreadPoolExecutor(1) for name in self._names}

    def submit(self, job: Job) -> Future[Evaluation]:
        return self._each[job.device].submit(self._judge, job)

    def devices(self) -> list[DeviceState]:
        return [one.model_copy(update={"num_slots": 1}) for one in super().devices()]


def test_tasks_for_one_device_leave_the_others_their_slots(tmp_path: Path) -> None:
    """Also when they are a client's own, come first, and were left by an earlier service."""

    async def test() -> None:
        executor = TwoDevices()
        async with running(tmp_path, executor) as r:
            busy = [order(f"wait {i}", id=f"busy{i}", device="model:h100", priority="high") for i in range(3)]
            await r.http.post("/v1/tasks/batch", json={"tasks": busy})
            await r.http.post("/v1/tasks", json=order("passed", id="other", device="cpu"))
            record = (await r.http.get("/v1/tasks/other", params={"wait": 10})).json()
            assert record["state"] == "done"
            assert (r.service.states["running"], r.service.states["queued"]) == (1, 2)
            executor.release.set()
            await until(lambda: r.service.states["done"] == 4)

    drive(test)


def test_what_is_left_by_an_earlier_service_waits_for_its_own_device_too(tmp_path: Path) -> None:
    async def leave() -> None:
        executor = TextExecutor(["cpu"], num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first", device="cpu"))
            left = [order(f"wait {i}", id=f"busy{i}", device="model:h100") for i in range(3)]
            await r.http.post("/v1/tasks/batch", json={"tasks": left})
            await r.http.post("/v1/tasks", json=order("passed", id="other", device="cpu"))
            await until(lambda: r.service.states["running"] == 1)
            await r.http.delete("/v1/tasks/first")  # It keeps its slot, and is not left to the next service.

    async def test() -> None:
        async with running(tmp_path, TwoDevices()) as r:
            assert (await r.http.get("/v1/tasks/other", params={"wait": 10})).json()["state"] == "done"
            assert r.executor.seen[-1].device == "cpu"
            r.executor.release.set()

    drive(leave)
    drive(test)


SLOTS = (("cuda:0", "cuda", 2), ("cuda:1", "cuda", 2), ("cpu", "cpu", 1))


@pytest.mark.parametrize(
    ("wanted", "with_it", "is_full"),
    [
        ("cuda:0", {}, False),
        ("cuda:0", {"cuda:0": 2}, True),
        ("cuda:1", {"cuda:0": 2}, False),
        ("cuda", {"cuda:0": 2}, False),
        ("auto", {"cuda:0": 2, "cuda": 2}, True),
        ("cuda:1", {"cuda": 3}, False),  # They leave it a slot.
        ("cuda:1", {"cuda": 4}, True),
        ("cpu", {"cuda:0": 2, "auto": 2}, False),
        ("tpu", {"cpu": 1}, False),  # The executor will say that it has none.
    ],
)
def test_a_device_is_full_when_what_only_it_may_serve_fills_it(
    wanted: str, with_it: dict[str, int], is_full: bool
) -> None:
    places = Places()
    places.see([DeviceState.model_validate({"name": n, "kind": k, "num_slots": s}) for n, k, s in SLOTS])
    assert places.is_full(wanted, Counter(with_it)) is is_full


def test_a_client_that_asks_for_very_many_devices_gets_all_its_tasks() -> None:
    queue = FairQueue()
    for i in range(200):
        queue.push(Entry(f"t{i}", i, "a", 1, 10, device=f"cuda:{i}"))
    popped = [queue.pop(Counter(), is_full=lambda device: device == "cuda:0") for _ in range(199)]
    assert {one.id for one in popped if one is not None} == {f"t{i}" for i in range(1, 200)}
    assert queue.pop(Counter(), is_full=lambda device: device == "cuda:0") is None and "t0" in queue
    assert queue.remove("t0") and not queue.clients()


@pytest.mark.parametrize("num_devices", [40, MAX_LINES + 40])
def test_a_slow_one_of_very_many_devices_takes_up_no_others_slots(num_devices: int) -> None:
    """However many devices a client asks for: it was handed over task after task that waited for the last of them."""
    names = [f"cuda:{i}" for i in range(num_devices)]
    queue = FairQueue()
    for i, name in enumerate([*names, *names[-1:] * 100]):
        queue.push(Entry(f"t{i}", i, "a", 1, 10, device=name))
    running = Counter[str]()
    while (one := queue.pop(Counter(), is_full=lambda device: running[device] > 0)) is not None:
        running[one.device] += 1
    assert running == Counter(names)
    queue.push(Entry("other", 10**6, "b", 1, 10, device="cpu"))
    one = queue.pop(Counter(), is_full=lambda device: running[device] > 0)
    assert one is not None and one.id == "other"


def test_a_queue_of_which_nothing_can_be_served_is_not_searched() -> None:
    """It is asked with each task that comes while a device that nobody waits for is free."""
    queue = FairQueue()
    for i in range(20_000):
        queue.push(Entry(f"t{i}", i, f"client {i % 1000}", 1, 10, device=f"cuda:{i // 1000 % 7}"))
    calls = 0

    def see(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(see)
    try:
        found = queue.pop(Counter(), is_full=lambda device: device != "cuda:7")
    finally:
        sys.setprofile(None)
    assert found is None
    assert 0 < calls < 100, "a look at each of a thousand clients"
    assert queue.pop(Counter(), is_full=lambda device: device != "cuda:3") is not None


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans(), st.sampled_from([0, 0, 2, 3, 5])),
        max_size=40,
    ),
    st.integers(0, 5),
)
def test_a_tasks_position_is_the_number_of_its_clients_that_go_before_it(
    tasks: list[tuple[str, int, bool, int]], num_taken: int
) -> None:
    queue = FairQueue()
    for number, (client, priority, _, num_deaths) in enumerate(tasks):
        queue.push(Entry(str(number), number, client, priority, 1, num_deaths=num_deaths))
    for number, (_, _, is_cancelled, _) in enumerate(tasks):
        if is_cancelled:
            queue.remove(str(number))
    taken = [entry for _ in range(num_taken) if (entry := queue.pop(Counter())) is not None]
    for entry in taken[::2]:
        queue.push(entry)  # Given back by an executor.
    left = {number: task for number, task in enumerate(tasks) if str(number) in queue}
    goes = {n: (-priority, max(2, num_deaths), n) for n, (_, priority, _, num_deaths) in left.items()}
    for number, (client, _, _, _) in left.items():
        before = sum(one == client and goes[n] < goes[number] for n, (one, _, _, _) in left.items())
        assert queue.position(str(number)) == before
    assert queue.position("nobody") is None
