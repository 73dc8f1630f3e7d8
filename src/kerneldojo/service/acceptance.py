"""Taking work in: what is stored of a submission, what is answered, and why one may be turned away for now."""

from __future__ import annotations

import uuid

from kerneldojo.service.records import PRIORITIES, Acknowledgement, Submission
from kerneldojo.service.store import Insertion, NewTask
from kerneldojo.service.viewer import Viewer


class Busy(Exception):
    """The queue is full; ask again later."""

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Oversized(Exception):
    """So much at once never fits into the queue, however empty it is."""


class Draining(Exception):
    """The service is about to stop and takes no more work."""


def new_task(submission: Submission, viewer: Viewer, now: float) -> NewTask:
    """The row and the text that keep a submission; `now` in seconds since 1970."""
    job = submission.job
    body = job.model_dump_json()
    return NewTask(
        id=submission.id or uuid.uuid4().hex,
        client=viewer.client,
        priority=PRIORITIES.index(submission.priority),
        content=job.hash,
        body=body,
        num_bytes=len(body.encode()),
        problem=job.problem.name[:200],
        problem_hash=job.problem.hash,
        device=job.device,
        submitted_at=now,
        deadline_at=None if submission.deadline_seconds is None else now + submission.deadline_seconds,
        joins_others=viewer.sees_all,
    )


def acknowledge(task: NewTask, insertion: Insertion) -> Acknowledgement:
    """What the client is told once the task is on disk."""
    if insertion.is_conflict:
        return Acknowledgement(id=task.id, error="conflict")
    return Acknowledgement(id=task.id, state=insertion.state, is_new=insertion.is_new)
