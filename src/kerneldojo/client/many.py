"""Judging many: which tasks to submit next, and which to be told of. Shared by both clients.

A window of tasks is out at any time. Their results come on one stream; when half of them are back, the next half is
submitted and the stream opened anew for what is out then. A stream that breaks is opened again for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from kerneldojo.client.attempts import answer
from kerneldojo.client.steps import new_id, submission_of, verdict
from kerneldojo.schema import Evaluation, Job
from kerneldojo.service.records import MAX_IDS, Collection, Priority, Submission, TaskRecord

PREFIX = re.compile("[A-Za-z0-9][A-Za-z0-9_.:@+=-]{0,179}")
"""A task's id without its last 20 characters, which are left for a dash and the number of the job."""

ENDED_AT_ONCE = "the stream of results ended at once, though not all have ended"


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
        if prefix and not PREFIX.fullmatch(prefix):
            # Now, not at the first job whose number is too long, when others have been submitted.
            told = repr(prefix[:40]) + ("..." if len(prefix) > 40 else "")
            raise ValueError(f"a prefix has letters, digits and _.:@+=-, at most 180, the first no mark: not {told}")
        self._jobs = enumerate(jobs)
        self._size = size
        self._priority: Priority = priority
        self._deadline_seconds = deadline_seconds
        self._prefix = prefix or new_id()
        self._out: dict[str, int] = {}
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

    def collection(self) -> str:
        """Body of the request for what is out."""
        return Collection(ids=tuple(self._out)).model_dump_json()

    def take(self, line: bytes) -> tuple[int, Evaluation] | None:
        """One line of the stream: the index of the job and its verdict; None for a result that came before.

        Raises:
            TaskCancelled: the task was cancelled.
            ServerFault: it is no line of this service.
        """
        record = answer(TaskRecord, line)
        index = self._out.pop(record.id, None)
        return None if index is None else (index, verdict(record))
