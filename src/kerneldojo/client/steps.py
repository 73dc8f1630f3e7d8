"""What a client does, without doing it: generators that ask for requests and pauses.

Both clients run the same generators, one by blocking and one by awaiting, so that retries and the order of calls are
written once. A generator yields `Send` or `Pause` and is sent the response, or the transport's error.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field, ValidationError

from kerneldojo.client.errors import (
    ClientError,
    Conflict,
    Overloaded,
    Refused,
    ServerFault,
    TaskCancelled,
    Unreachable,
    WaitTimeout,
    refusal,
)
from kerneldojo.schema import Candidate, Evaluation, Frozen, Job, Problem
from kerneldojo.schema.base import writable
from kerneldojo.service.records import (
    Acknowledgement,
    Acknowledgements,
    Batch,
    Health,
    Overview,
    Priority,
    Problematic,
    Submission,
    TaskPage,
    TaskRecord,
    TaskState,
)

POLL_SECONDS = 30.0
"""Length of one long poll."""

BATCH_TASKS = 200
BATCH_BYTES = 8 << 20
"""Size of one batch, at most."""


class Retries(Frozen):
    """How stubborn a client is."""

    give_up_seconds: float = Field(default=600.0, ge=0)
    """How long one call may fail for reasons that may pass, before it raises; 0 tries once."""
    first_pause: float = Field(default=0.2, gt=0)
    """Seconds before the second attempt; doubled each time, with jitter. A Retry-After of the service counts more."""
    longest_pause: float = Field(default=10.0, gt=0)
    """Longest pause that the client chooses itself."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request."""

    method: str
    path: str
    params: dict[str, str] | None = None
    body: str | None = None
    timeout: float = 60.0
    """Seconds to wait for the answer."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while."""

    seconds: float


Reply = httpx.Response | httpx.TransportError | None
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Steps = Generator[Send | Pause, Reply, T]


class Setback:
    """The pauses of one call that keeps failing."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._pause = retries.first_pause
        self._since: float | None = None

    def forget(self) -> None:
        """It works again."""
        self._pause, self._since = self._retries.first_pause, None

    def pause(self, error: ClientError, retry_after: float = 0.0) -> Pause:
        """How long to wait before the next attempt.

        Raises:
            ClientError: `error`, if it has been failing for too long.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        seconds = max(retry_after, self._pause * random.uniform(0.5, 1.0))
        if now + seconds - self._since > self._retries.give_up_seconds:
            error.waited_s = self._retries.give_up_seconds
            raise error
        self._pause = min(2 * self._pause, self._retries.longest_pause)
        return Pause(seconds)


def passing_trouble(reply: Reply) -> tuple[ClientError, float] | None:
    """Whether a reply is a failure that may pass: the error to raise in the end, and the least time to wait.

    Raises:
        Refused: the request is wrong, and would be wrong again.
    """
    if reply is None or isinstance(reply, httpx.TransportError):
        words = f"{type(reply).__name__}: {reply}".rstrip(": ")
        return Unreachable(f"the service cannot be reached: {words}"), 0.0
    if reply.status_code < 300:
        return None
    if reply.status_code < 400:
        # Most likely a proxy. A token is not carried to wherever it says.
        raise refusal(reply.status_code, f"redirected to {reply.headers.get('location', 'nowhere')}: ask there")
    told = problem_of(reply)
    if reply.status_code in (429, 503):
        return Overloaded(told.detail), retry_after(reply)
    if reply.status_code >= 500:
        request_id = told.request_id or reply.headers.get("x-request-id", "")
        return ServerFault(f"{reply.status_code}: {told.detail}", request_id), 0.0
    if reply.status_code == 408:
        return Overloaded(told.detail), 0.0
    raise refusal(reply.status_code, told.detail)


def problem_of(reply: httpx.Response) -> Problematic:
    """What the service said of a failure; a proxy between may say anything."""
    try:
        return Problematic.model_validate_json(reply.content)
    except ValidationError:
        return Problematic(detail=reply.reason_phrase or "no reason given")


def retry_after(reply: httpx.Response) -> float:
    """Seconds that the service asks to wait, at most a minute."""
    try:
        return min(60.0, max(0.0, float(reply.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0


def call(request: Send, model: type[M], retries: Retries) -> Steps[M]:
    """One request, repeated while it fails for reasons that may pass.

    Raises:
        ClientError: it failed for good.
    """
    setback = Setback(retries)
    while True:
        reply = yield request
        trouble = passing_trouble(reply)
        if trouble is None:
            assert isinstance(reply, httpx.Response)
            try:
                return model.model_validate_json(reply.content)
            except ValidationError as error:
                raise ServerFault(f"not an answer of this service: {error.errors()[0]['msg']}") from None
        yield setback.pause(*trouble)


def new_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex


def submit(submission: Submission, retries: Retries) -> Steps[Acknowledgement]:
    """Have one task accepted."""
    return call(Send("POST", "/v1/tasks", body=submission.model_dump_json()), Acknowledgement, retries)


def submit_many(submissions: Sequence[Submission], retries: Retries) -> Steps[list[Acknowledgement]]:
    """Have many accepted, in as few requests as their size allows.

    Raises:
        Conflict: an id belongs to a task with another job; all others are accepted.
    """
    accepted: list[Acknowledgement] = []
    for batch in batches(submissions):
        accepted += yield from _submit_batch(batch, retries)
    conflicts = [task.id for task in accepted if task.error]
    if conflicts:
        raise Conflict(409, f"{len(conflicts)} ids belong to tasks with other jobs, the first is {conflicts[0]}")
    return accepted


def _submit_batch(batch: Sequence[Submission], retries: Retries) -> Steps[tuple[Acknowledgement, ...]]:
    """Have one batch accepted: in halves, where it is more than this service takes at once."""
    body = Batch(tasks=tuple(batch)).model_dump_json()
    try:
        found = yield from call(Send("POST", "/v1/tasks/batch", body=body), Acknowledgements, retries)
    except Refused as error:
        if error.status != 413 or len(batch) == 1:
            raise
        half = len(batch) // 2
        first = yield from _submit_batch(batch[:half], retries)
        return first + (yield from _submit_batch(batch[half:], retries))
    return found.tasks


def batches(submissions: Iterable[Submission]) -> Iterator[list[Submission]]:
    """Cut submissions into batches that a service takes."""
    batch: list[Submission] = []
    size = 0
    for submission in submissions:
        num_bytes = len(submission.job.problem.source) + len(submission.job.candidate.source)
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
    return call(Send("GET", _path(task_id), params, timeout=60.0 + wait), TaskRecord, retries)


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
        left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
        asked = time.monotonic()
        record = yield from get(task_id, retries, wait=max(0.0, left))
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
        raise TaskCancelled(f"task {record.id} was cancelled")
    return record.evaluation


def cancel(task_id: str, retries: Retries) -> Steps[TaskRecord]:
    """End a task without a verdict; the answer is the task as it is then."""
    return call(Send("DELETE", _path(task_id)), TaskRecord, retries)


def page(retries: Retries, limit: int, before: int | None, state: TaskState | None) -> Steps[TaskPage]:
    """Tasks, newest first."""
    params = {"limit": str(limit)}
    params |= {} if before is None else {"before": str(before)}
    params |= {} if state is None else {"state": str(state)}
    return call(Send("GET", "/v1/tasks", params), TaskPage, retries)


def overview(retries: Retries) -> Steps[Overview]:
    """Devices, queue, rate."""
    return call(Send("GET", "/v1/overview"), Overview, retries)


def health() -> Steps[Health]:
    """How the service is; an unhealthy one is an answer, not an error, and nothing is retried."""
    reply = yield Send("GET", "/health", timeout=10.0)
    if isinstance(reply, httpx.Response) and reply.status_code == 503:
        try:
            return Health.model_validate_json(reply.content)
        except ValidationError:
            raise Overloaded(problem_of(reply).detail) from None
    trouble = passing_trouble(reply)
    if trouble is not None:
        raise trouble[0]
    assert isinstance(reply, httpx.Response)
    return Health.model_validate_json(reply.content)


def job_of(problem: Problem, candidate: Candidate, settings: dict[str, Any]) -> Job:
    """A job with the settings that `kerneldojo.judge` takes."""
    return Job(problem=problem, candidate=candidate, **settings)


def submission_of(job: Job, id: str | None, priority: Priority, deadline_seconds: float | None) -> Submission:
    """An order with an id, so that it can be repeated."""
    return Submission(job=_as_sent(job), id=id or new_id(), priority=priority, deadline_seconds=deadline_seconds)


def _as_sent(job: Job) -> Job:
    """The same job as JSON can hold it: a model may well write half a character, and is owed a verdict all the same."""
    changed = {
        name: part.model_copy(update={"source": source})
        for name, part in (("problem", job.problem), ("candidate", job.candidate))
        if (source := writable(part.source)) is not part.source
    }
    return job.model_copy(update=changed) if changed else job


class Lines:
    """Cuts a stream of bytes into lines at newlines only (text may hold other characters that end lines)."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, empty ones left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]
