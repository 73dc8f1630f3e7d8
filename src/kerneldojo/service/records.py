"""The nouns of the service, as they travel: what is submitted, what is acknowledged, what a task became.

A task is a job with an id. The id makes everything idempotent: the same id with the same job is the same task however
often it is sent; the same id with another job is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Frozen, Job, Status

TaskId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@+=-]{0,199}$", max_length=200)]
"""Names a task for ever; chosen by who submits, so that a lost acknowledgement can be asked for again."""

Priority = Literal["low", "normal", "high"]
"""Orders the work of one client; clients among themselves are served in turn."""

PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")

MAX_BATCH = 1000
"""Most tasks of one batch."""

MAX_IDS = 10_000
"""Most ids that one request may ask for."""


class TaskState(StrEnum):
    """Where a task is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will change any more."""
        return self in (TaskState.DONE, TaskState.CANCELLED)


class Submission(Frozen):
    """One order to judge."""

    job: Job
    id: TaskId | None = None
    """Chosen by the client (recommended: it makes retries safe), else by the service."""
    priority: Priority = "normal"
    deadline_seconds: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False)
    """A task that has not started this many seconds after it was accepted ends unscored (`expired`)."""


class Batch(Frozen):
    """Many orders at once: one write, one acknowledgement."""

    tasks: Annotated[tuple[Submission, ...], Field(min_length=1, max_length=MAX_BATCH)]


class Acknowledgement(Frozen):
    """The task is on disk (or was already): it will be judged even if the service dies now."""

    id: TaskId
    state: TaskState | None = None
    """Where it is; None where it was refused."""
    is_new: bool = False
    """Whether this submission made it."""
    error: Literal["", "conflict"] = ""
    """`conflict`: the id belongs to a task with another job, or to somebody else's."""


class Acknowledgements(Frozen):
    """One for each submission of a batch, in its order."""

    tasks: tuple[Acknowledgement, ...]


class TaskSummary(Frozen):
    """A task in a list."""

    id: str
    sequence: int
    """Counted up in the order of acceptance; pages are cut by it."""
    state: TaskState
    client: str
    """Whose queue it is in."""
    priority: Priority
    problem: str
    """Name of the problem."""
    device: str
    """The device asked for."""
    submitted_at: float
    """Seconds since 1970, as all times here."""
    started_at: float | None = None
    finished_at: float | None = None
    deadline_at: float | None = None
    attempts: int = 0
    """How often it was started; more than once only if the service died meanwhile."""
    expired: bool = False
    """Whether it ended because its deadline passed while it was queued."""
    status: Status | None = None
    """The verdict; None before there is one."""
    speedup: float | None = None
    coverage: float | None = None
    kernel_ms: float | None = None
    reference_ms: float | None = None
    roofline_fraction: float | None = None
    timing_source: Literal["measured", "modeled"] | None = None
    baseline: Literal["eager", "compile"] | None = None
    """What the speedup is against; None where there is none."""
    judged_on: str = ""
    """The device that judged."""


class TaskRecord(TaskSummary):
    """A task with all there is to know of it."""

    queue_position: int | None = None
    """While it waits: how many tasks of its client go before it (how soon others do, nobody knows)."""
    evaluation: Evaluation | None = None
    """The verdict; None before there is one, and for a cancelled task."""
    job: Job | None = None
    """What was submitted, where it was asked for."""


class TaskPage(Frozen):
    """Tasks, newest first."""

    tasks: tuple[TaskSummary, ...]
    next: int | None = None
    """Give it as `before` for the page after this one; None on the last."""


class Collection(Frozen):
    """Ids of tasks to be told of as they end."""

    ids: Annotated[tuple[TaskId, ...], Field(min_length=1, max_length=MAX_IDS)]


class QueueState(Frozen):
    """How much waits and runs."""

    queued: int
    queued_bytes: int
    running: int
    slots: int
    """Jobs that the executor holds at once."""
    clients: dict[str, int] = Field(default_factory=dict)
    """Waiting tasks of each client that has any."""


class Overview(Frozen):
    """Everything that a dashboard shows first."""

    version: str
    now: float
    uptime_seconds: float
    draining: bool
    devices: tuple[DeviceState, ...]
    queue: QueueState
    per_minute: float
    """Tasks ended in the last 60 seconds."""
    per_minute_history: tuple[int, ...]
    """Tasks ended in each of the last 60 minutes, the oldest first; the last one is still running."""
    states: dict[str, int]
    """Tasks in the store by state."""
    statuses: dict[str, int]
    """Ended tasks in the store by verdict."""
    running: tuple[TaskSummary, ...]
    """At most 64, the longest running first."""
    latest: tuple[TaskSummary, ...]
    """At most 32 that ended last, newest first."""


class Missed(Frozen):
    """Events of `/v1/events` that their reader was not told of: ask for what matters."""

    events: int | None
    """How many, because it read too slowly; None where a client does not know: its connection was lost meanwhile."""


class Health(Frozen):
    """Whether the service can do its work."""

    status: Literal["healthy", "unhealthy"]
    """Unhealthy answers come with HTTP status 503."""
    reasons: tuple[str, ...] = ()
    """Why it is unhealthy, or what does not work although it is healthy."""
    draining: bool = False
    store_writable: bool = True
    queue_moving: bool = True
    num_devices: int = 0
    num_healthy_devices: int = 0
    queued: int = 0
    running: int = 0


class Problematic(Frozen):
    """Why a request was not served."""

    detail: str
    """One line."""
    request_id: str = ""
    """Names the line in the service's log that knows more; set where the fault is ours."""
