"""Judging many: which tasks to submit next, and which to be told of. Shared by both clients.

A window of tasks is out at any time. Their results come on one stream; when half of them are back, the next half is
submitted and the stream opened anew for what is out then. A stream that breaks is opened again for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice

from kerneldojo.client.attempts import Send, answer
from kerneldojo.client.errors import TaskCancelled
from kerneldojo.client.lines import Lines
from kerneldojo.client.naming import checked, new_id
from kerneldojo.client.steps import submission_of, verdict
from kerneldojo.schema import Evaluation, Job
from kerneldojo.service.records import MAX_IDS, Collection, Priority, Submission, TaskRecord

log = logging.getLogger(__name__)


class Window:
    """What is out of an iterable of jobs."""

    def __init__(
        self, jobs: Iterable[Job], size: int, priority: Priority, deadline_seconds: float | None, prefix: str | None
    ) -> None:
        """With a `prefix` the ids are `PREFIX-0`, `PREFIX-1`, ...: the same call later finds the same tasks again.

        Raises:
            ValueError: the window is too small or too large, or no id begins with the prefix.
        """
        if not 1 <= size <= MAX_IDS:
            raise ValueError(f"a window has 1 to {MAX_IDS} tasks, not {size}")
        self._jobs = enumerate(jobs)
        self._size = size
        self._priority: Priority = priority
        self._deadline_seconds = deadline_seconds
        self._prefix = checked(prefix) or new_id()
        self._out: dict[str, int] = {}
        self._cancelled: list[str] = []
        self._lines = Lines()
        self._is_exhausted = False

    def next_submissions(self) -> list[Submission]:
        """What to submit now; empty if nothing is to be submitted."""
        submissions: list[Submission] = []
        for index, job in islice(self._jobs, self._size - len(self._out)):
            task_id = f"{self._prefix}-{index}"
            self._out[task_id] = index
            submissions.append(submission_of(job, task_id, self._priority, self._deadline_seconds))
        self._is_exhausted = len(self._out) < self._size
        return submissions

    @property
    def is_done(self) -> bool:
        """Whether nothing is out and nothing is left."""
        return not self._out

    @property
    def wants_more(self) -> bool:
        """Whether it is time to submit again."""
        return not self._is_exhausted and len(self._out) <= self._size // 2

    def request(self) -> Send:
        """See `Feed.request`: what is out."""
        self._lines = Lines()
        return Send("POST", "/v1/results", body=Collection(ids=tuple(self._out)).model_dump_json())

    def take(self, data: bytes) -> Iterator[tuple[int, Evaluation]]:
        """The verdicts that are complete now, each with the index of its job; none twice.

        Raises:
            ServerFault: it is no line of this service.
        """
        for line in self._lines.feed(data):
            record = answer(TaskRecord, line)
            index = self._out.pop(record.id, None)
            if index is None:
                continue
            try:
                found = verdict(record)
            except TaskCancelled:
                log.warning("task %s was cancelled: it has no verdict", record.id)
                self._cancelled.append(record.id)
            else:
                yield index, found

    def finish(self) -> None:
        """Say what has no verdict: last, for whoever hears it hears no more of the others.

        Raises:
            TaskCancelled: tasks were cancelled.
        """
        if self._cancelled:
            raise TaskCancelled(*self._cancelled)
