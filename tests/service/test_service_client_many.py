"""Both clients with many tasks, with those that are known already, and with what happens meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_process import ServiceProcess

from kerneldojo import AsyncClient, Candidate, Client, Problem, Status
from kerneldojo.client import Conflict, NotFound, Retries, TaskCancelled, Unreachable
from kerneldojo.client.events import Events
from kerneldojo.schema import Job
from kerneldojo.service.records import Missed, Overview, TaskState, TaskSummary

PROBLEM = Problem(name="p", source="x")
KINDS = ["Client", "AsyncClient"]


def job(source: str) -> Job:
    return Job(problem=PROBLEM, candidate=Candidate(source=source))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as process:
        yield process
        assert process.stop() == 0


def called(kind: str, url: str, call: Callable[[Any], Any], retries: Retries | None = None) -> Any:
    """What a call of either client returns, or all that it yields."""

    async def main() -> Any:
        async with AsyncClient(url, retries=retries) as client:
            found = call(client)
            return [one async for one in found] if isinstance(found, AsyncIterator) else await found

    if kind == "AsyncClient":
        return asyncio.run(main())
    with Client(url, retries=retries) as client:
        found = call(client)
        return list(found) if isinstance(found, Iterator) else found


@pytest.mark.parametrize("kind", KINDS)
def test_many_are_submitted_under_ids_a_prefix_a_deadline_and_a_priority(kind: str, service: ServiceProcess) -> None:
    jobs = [job(f"passed {kind} {number}") for number in range(3)]
    ids = [f"{kind}-x", f"{kind}-y", f"{kind}-z"]
    ask = lambda client: client.submit_many(jobs, ids=ids, priority="high", deadline_seconds=600)  # noqa: E731
    assert [one.id for one in called(kind, service.url, ask)] == ids
    assert not any(one.is_new for one in called(kind, service.url, ask))
    told = called(kind, service.url, lambda client: client.submit_many(jobs, prefix=f"{kind}-step"))
    assert [one.id for one in told] == [f"{kind}-step-{number}" for number in range(3)]
    with Client(service.url) as client:
        record = client.wait(ids[0])
        assert record.priority == "high" and record.deadline_at is not None
        assert 599 < record.deadline_at - record.submitted_at < 601
        found = dict(client.judge_many(jobs, prefix=f"{kind}-step"))
        assert len(found) == 3 and client.get(f"{kind}-step-1").attempts == 1
        with pytest.raises(Conflict):
            called(kind, service.url, lambda client: client.submit_many([job("another")], ids=ids[:1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ids": ["a"]}, "2 jobs need as many ids: not 1"),
        ({"ids": "ab"}, "not a text"),
        ({"ids": ["a", "a"]}, "twice"),
        ({"ids": ["a", "b"], "prefix": "c"}, "not both"),
        ({"prefix": "a b"}, "a prefix has letters"),
        ({"ids": ["a", "b c"]}, "id"),
    ],
)
def test_ids_that_are_none_are_said_before_anything_is_submitted(kind: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        called(kind, "http://127.0.0.1:9", lambda client: client.submit_many([job("a"), job("b")], **given))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_task_costs_nobody_the_verdicts_of_the_others(kind: str, tmp_path: Path) -> None:
    """It is said once, at the end, and names all of them."""
    words = ["passed 0", "sleep 20 1", "incorrect 2", "sleep 20 3", *(f"passed {number}" for number in range(4, 30))]

    def cancel() -> None:
        for number in (1, 3):
            client.cancel(f"step-{number}")

    async def awaited() -> None:
        async with AsyncClient(own.url) as other:
            async for index, verdict in other.judge_many(map(job, words), window=6, prefix="step"):
                found[index] = verdict.status
                if len(found) == 1:
                    cancel()

    def blocking() -> None:
        for index, verdict in client.judge_many(map(job, words), window=6, prefix="step"):
            found[index] = verdict.status
            if len(found) == 1:
                cancel()

    found: dict[int, Status] = {}
    words_of_it = r"2 tasks were cancelled: step-\d, step-\d$"
    with (
        ServiceProcess(tmp_path) as own,
        Client(own.url) as client,
        pytest.raises(TaskCancelled, match=words_of_it) as caught,
    ):
        asyncio.run(awaited()) if kind == "AsyncClient" else blocking()
    assert set(caught.value.ids) == {"step-1", "step-3"}
    assert sorted(found) == [number for number in range(30) if number not in (1, 3)]
    assert found[2] is Status.INCORRECT and found[29] is Status.PASSED


def test_an_error_for_very_many_cancelled_tasks_is_one_line() -> None:
    error = TaskCancelled(*(f"t-{number}" for number in range(1000)))
    assert str(error) == "1000 tasks were cancelled: t-0, t-1, t-2, t-3, t-4 and 995 more" and len(error.ids) == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_known_tasks_are_told_of_as_they_end(kind: str, service: ServiceProcess) -> None:
    with Client(service.url) as client:
        slow = client.submit(job("sleep 20 known"), id=f"{kind}-slow").id
        quick = [one.id for one in client.submit_many([job(f"passed known {number}") for number in range(20)])]
        for one in quick:
            client.wait(one)
        client.cancel(slow)
    records = called(kind, service.url, lambda client: client.results([slow, *quick, quick[0]]))
    assert sorted(one.id for one in records) == sorted([slow, *quick])
    states = {one.id: one for one in records}
    assert states[slow].state is TaskState.CANCELLED and states[slow].evaluation is None
    assert all(states[one].evaluation.correct for one in quick)
    assert called(kind, service.url, lambda client: client.results([])) == []
    with pytest.raises(NotFound):
        called(kind, service.url, lambda client: client.results(["nobody-knows"]))


@pytest.mark.parametrize("kind", KINDS)
def test_results_and_events_go_on_after_the_service_was_killed(kind: str, tmp_path: Path) -> None:
    port = _free_port()
    patience = Retries(give_up_seconds=60, first_pause=0.05, longest_pause=0.5)
    own = ServiceProcess(tmp_path, "--port", port)

    def happens(event: object) -> bool:
        """Kills the service and starts it again at the first event; whether everything was seen."""
        nonlocal own
        seen.append(event)
        if len(seen) == 1:
            own.kill()
            own = ServiceProcess(tmp_path, "--port", port)
        if isinstance(event, Missed):
            is_again.append(event)
        elif is_again and isinstance(event, Overview):
            with Client(own.url) as client:
                client.submit(job("passed afterwards"), id="afterwards")
        return isinstance(event, TaskSummary) and event.id == "afterwards" and event.state is TaskState.DONE

    async def awaited() -> None:
        async with AsyncClient(own.url, retries=patience) as client:
            async for event in client.events():
                if happens(event):
                    return

    seen: list[object] = []
    is_again: list[object] = []
    try:
        with Client(own.url, retries=patience) as client:
            client.submit_many([job(f"sleep 1 {number}") for number in range(3)], prefix="before")
            if kind == "AsyncClient":
                asyncio.run(awaited())
            else:
                next(event for event in client.events() if happens(event))
        assert isinstance(seen[0], Overview)
        missed = next(event for event in seen if isinstance(event, Missed))
        assert missed.events is None and isinstance(seen[seen.index(missed) + 1], Overview)
        ids = [f"before-{number}" for number in range(3)]
        records = called(kind, own.url, lambda client: client.results(ids), patience)
        assert {one.state for one in records} == {TaskState.DONE}
    finally:
        own.kill()
    with pytest.raises(Unreachable):
        called(kind, own.url, lambda client: client.events(), Retries(give_up_seconds=0))


def test_events_come_in_pieces_and_of_kinds_that_a_client_does_not_know() -> None:
    events = Events()
    events.request()
    data = b': alive\n\nevent: news\ndata: {"a": 1}\n\nevent: missed\ndata: {"events": 7, "more": 1}\n\nevent: mis'
    found = [one for at in range(len(data)) for one in events.take(data[at : at + 1])]
    assert found == [Missed(events=7)]
    events.request()
    assert list(events.take(b"\n")) == [Missed(events=None)] and not list(events.take(b'sed\ndata: {"events": 1}\n\n'))


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
