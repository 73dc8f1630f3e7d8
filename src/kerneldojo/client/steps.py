"""What a client does, without doing it: generators that ask for requests and pauses.

Both clients run the same generators, one by blocking and one by awaiting, so that the order of calls is written once.
Each request has its retries (`attempts`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from kerneldojo.client.attempts import (
    Pause,
    Retries,
    Send,
    Steps,
    answer,
    call,
    passing_trouble,
    problem_of,
)
from kerneldojo.client.errors import (
    Conflict,
    Overloaded,
    Refused,
    TaskCancelled,
    Unreachable,
    WaitTimeout,
)
from kerneldojo.client.naming import ids_of, new_id
from kerneldojo.schema import Candidate, Evaluation, Job, Problem
from kerneldojo.schema.base import Frozen, writable
from kerneldojo.service.records import (
    Acknowledgement,
    Acknowledgements,
    Health,
    Overview,
    Priority,
    Submission,
    TaskPage,
    TaskRecord,
    TaskState,
)

Noun = TypeVar("Noun", bound=Frozen)

POLL_SECONDS = 30.0
"""Length of one long poll."""

BATCH_TASKS = 200
BATCH_BYTES = 8 << 20
"""Size of one batch, at most."""


def submit(submission: Submission, retries: Retries) -> Steps[Acknowledgement]:
    """Have one task accepted."""
    return call(Send("POST", "/v1/tasks", body=submission.model_dump_json()), Acknowledgement, retries)


def submit_many(submissions: Sequence[Submission], retries: Retries) -> Steps[list[Acknowledgement]]:
    """Have many accepted, in as few requests as their size allows.

    Raises:
        Conflict: an id belongs to a task with another job; all others are accepted.
    """
    accepted: list[Acknowledgement] = []
    for batch in batches(submission.model_dump_json() for submission in submissions):
        accepted += yield from _submit_batch(batch, retries)
    conflicts = [task.id for task in accepted if task.error]
    if conflicts:
        raise Conflict(409, f"{len(conflicts)} ids belong to tasks with other jobs, the first is {conflicts[0]}")
    return accepted


def _submit_batch(batch: Sequence[str], retries: Retries) -> Steps[tuple[Acknowledgement, ...]]:
    """Have one batch accepted: in halves, where it is more than this service takes at once."""
    body = f'{{"tasks":[{",".join(batch)}]}}'
    try:
        found = yield from call(Send("POST", "/v1/tasks/batch", body=body), Acknowledgements, retries)
    except Refused as error:
        if error.status != 413 or len(batch) == 1:
            raise
        half = len(batch) // 2
        first = yield from _submit_batch(batch[:half], retries)
        return first + (yield from _submit_batch(batch[half:], retries))
    return found.tasks


def batches(submissions: Iterable[str]) -> Iterator[list[str]]:
    """Cut submissions, as JSON, into batches that a service takes.

    By what is sent: a character has up to six bytes there, and of a body that is too long a service may hear no more,
    but close the connection, which looks as though it were gone.
    """
    batch: list[str] = []
    size = 0
    for submission in submissions:
        num_bytes = len(submission.encode())
        if batch and (len(batch) == BATCH_TASKS or size + num_bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(submission)
        size += num_bytes
    if batch:
        yield batch


def get(task_id: str, retries: Retries, *, wait: float = 0.0, with_job: bool = False) -> Steps[TaskRecord]:
    """One task as it is, or as soon as it has ended within `wait` seconds."""
    params = {"include": "job"} if with_job else {}
    if wait > 0:
        params["wait"] = f"{wait:.3f}"
    return call(Send("GET", _path(task_id), params, timeout=60.0 + wait, waits=wait > 0), TaskRecord, retries)


def _path(task_id: str) -> str:
    """Where a task is; an id that is none is nowhere, rather than where another's is."""
    return f"/v1/tasks/{quote(task_id, safe='')}"


def wait(task_id: str, retries: Retries, timeout: float | None = None) -> Steps[TaskRecord]:
    """One task when it has ended.

    Raises:
        WaitTimeout: it has not, after `timeout` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        rest = float("inf") if deadline is None else max(0.0, deadline - asked)
        left = min(POLL_SECONDS, rest)
        patience = retries.model_copy(update={"give_up_seconds": min(retries.give_up_seconds, rest)})
        try:
            record = yield from get(task_id, patience, wait=left)
        except (Unreachable, Overloaded) as error:
            if patience.give_up_seconds == retries.give_up_seconds:
                raise
            raise WaitTimeout(f"task {task_id} has no verdict yet: {error}") from error
        if record.state.is_terminal:
            return record
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeout(f"task {task_id} is {record.state}")
        if time.monotonic() - asked < 1.0 and left >= 1.0:
            # A service that drains answers at once.
            yield Pause(1.0)


def judge(submission: Submission, retries: Retries, timeout: float | None = None) -> Steps[Evaluation]:
    """Submit one task, and its verdict when it has one."""
    accepted = yield from submit(submission, retries)
    record = yield from wait(accepted.id, retries, timeout)
    return verdict(record)


def verdict(record: TaskRecord) -> Evaluation:
    """The evaluation of a task that has ended.

    Raises:
        TaskCancelled: it has none.
    """
    if record.state is TaskState.CANCELLED or record.evaluation is None:
        raise TaskCancelled(record.id)
    return record.evaluation


def cancel(task_id: str, retries: Retries, *, if_queued: bool = False) -> Steps[TaskRecord]:
    """End a task without a verdict, or only one that has not begun; the answer is the task as it is then."""
    return call(Send("DELETE", _path(task_id), {"if_queued": "true"} if if_queued else {}), TaskRecord, retries)


def page(retries: Retries, limit: int, **only: int | str | None) -> Steps[TaskPage]:
    """Tasks, newest first; what is None does not choose among them."""
    params = {"limit": str(limit), **{name: str(value) for name, value in only.items() if value is not None}}
    return call(Send("GET", "/v1/tasks", params), TaskPage, retries)


def overview(retries: Retries) -> Steps[Overview]:
    """Devices, queue, rate."""
    return call(Send("GET", "/v1/overview"), Overview, retries)


def health() -> Steps[Health]:
    """How the service is; an unhealthy one is an answer, not an error, and nothing is retried."""
    reply = yield Send("GET", "/health", timeout=10.0)
    if isinstance(reply, httpx.Response) and reply.status_code == 503:
        try:
            return Health.model_validate_json(reply.content, extra="ignore")
        except ValidationError:
            raise Overloaded(problem_of(reply).detail) from None
    trouble = passing_trouble(reply)
    if trouble is not None:
        raise trouble[0]
    assert isinstance(reply, httpx.Response)
    return answer(Health, reply.content)


def job_of(problem: Problem, candidate: Candidate, settings: dict[str, Any]) -> Job:
    """A job with the settings that `kerneldojo.judge` takes."""
    return Job(problem=problem, candidate=candidate, **settings)


def submission_of(job: Job, id: str | None, priority: Priority, deadline_seconds: float | None) -> Submission:
    """An order with an id, so that it can be repeated."""
    return Submission(job=_as_sent(job), id=id or new_id(), priority=priority, deadline_seconds=deadline_seconds)


def submissions_of(
    jobs: Sequence[Job],
    ids: Sequence[str] | None,
    prefix: str | None,
    priority: Priority,
    deadline_seconds: float | None,
) -> list[Submission]:
    """Orders with ids, in the order of the jobs.

    Raises:
        ValueError: the ids or the prefix are none; pydantic's where a single id is.
    """
    named = zip(jobs, ids_of(len(jobs), ids, prefix), strict=True)
    return [submission_of(job, id, priority, deadline_seconds) for job, id in named]


def _as_sent(job: Job) -> Job:
    """The same job as JSON can hold it: a model may well write half a character, and is owed a verdict all the same."""
    parts = {name: _written(part) for name, part in (("problem", job.problem), ("candidate", job.candidate))}
    return _written(job.model_copy(update=parts))


def _written(noun: Noun) -> Noun:
    """The same noun with each text of its own as UTF-8 can hold it."""
    changed = {name: text for name, value in noun if isinstance(value, str) and (text := writable(value)) is not value}
    return noun.model_copy(update=changed) if changed else noun
