"""The folder that verdicts go to.

    results.jsonl     one `Record` a line, on disk (`fsync`) before it is counted
    faults.jsonl      verdicts that are faults of ours: tried again by the next run
    results.parquet   the same as a table, written at the end of a run where pyarrow is installed
    run_id            names this folder's tasks where a service judges (`Names`)
    lock              held by the process that writes

Lines are only ever appended, so a run may be killed at any moment; the next one judges what has no line yet. An id
stands for one job: the same id with another problem, candidate or setting is refused, since the folder would hold an
answer to a question that nobody asks any more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from kerneldojo.evaluate.items import Item
from kerneldojo.files import Journal, read_lines
from kerneldojo.rollout.lock import Lock, RunError
from kerneldojo.schema import Candidate, Evaluation, Frozen, Job, Status

RESULTS, FAULTS, TABLE, LOCK = "results.jsonl", "faults.jsonl", "results.parquet", "lock"


class Settings(Frozen):
    """How everything of a run is judged; see `schema.Job` for each."""

    device: str = "auto"
    protocol: Literal["quick", "standard", "strict"] = "standard"
    baseline: Literal["eager", "compile"] = "eager"
    precision: Literal["ieee", "tf32"] = "tf32"
    timeout: float | None = Field(default=None, gt=0)
    allow_degenerate: bool = False

    def job(self, item: Item, *, fresh: bool = False) -> Job:
        """The order to judge `item`."""
        return Job(problem=item.problem, candidate=item.candidate, fresh=fresh, **self.model_dump())


class Record(Frozen):
    """One verdict, with what it was a verdict on."""

    id: str
    job: str
    """`Job.hash` of what was judged."""
    problem: str
    """Name of the problem."""
    suite: str
    level: int | None = None
    problem_hash: str
    irreducible: bool = False
    settings: Settings
    candidate: Candidate
    evaluation: Evaluation

    @classmethod
    def of(cls, id: str, job: Job, evaluation: Evaluation) -> Record:
        """The record of what was judged by `job`."""
        problem = job.problem
        return cls(
            id=id,
            job=job.hash,
            problem=problem.name,
            suite=problem.suite,
            level=problem.level,
            problem_hash=problem.hash,
            irreducible=problem.irreducible,
            settings=Settings.model_validate({name: getattr(job, name) for name in Settings.model_fields}),
            candidate=job.candidate,
            evaluation=evaluation,
        )


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file in the order in which they were reached; none if there is no such file.

    Raises:
        RunError: a line is no record, or an id is there twice.
    """
    seen: set[str] = set()
    for number, line in read_lines(path):
        try:
            record = Record.model_validate_json(line)
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise RunError(f"{path}, line {number}: no result of ours ({field or 'not JSON'})") from None
        if record.id in seen and path.name == RESULTS:
            raise RunError(f"{path}, line {number}: {record.id!r} is there twice")
        seen.add(record.id)
        yield record


class Results:
    """A results folder, open for writing; a context manager.

    Args:
        folder: made if it is not there.

    Raises:
        RunError: another process writes to it, or it is not what it should be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(folder / LOCK)
        except OSError as error:
            raise RunError(f"{folder}: {error.strerror}") from None
        try:
            self._known = {
                record.id: (record.job, record.problem_hash, record.candidate.hash, record.settings)
                for record in read_records(folder / RESULTS)
            }
            self._num_faults = Counter(record.id for record in read_records(folder / FAULTS))
            self._journal = Journal([folder / RESULTS, folder / FAULTS])
        except OSError as error:
            self._lock.release()
            raise RunError(f"{folder}: {error.strerror}") from None
        except BaseException:
            self._lock.release()
            raise
        self._unwritten: deque[Future[None]] = deque()

    def __len__(self) -> int:
        """Finished ids in the folder."""
        return len(self._known)

    def remaining(self, items: Sequence[Item], settings: Settings) -> list[Item]:
        """Those of `items` that have no verdict yet.

        Raises:
            RunError: one of them was judged as something else.
        """
        return [item for item in items if not self._is_done(item, settings)]

    def _is_done(self, item: Item, settings: Settings) -> bool:
        if item.id not in self._known:
            return False
        job, problem_hash, candidate_hash, then = self._known[item.id]
        if settings.job(item).hash == job:
            return True
        if problem_hash != item.problem.hash:
            what = "another problem"
        elif candidate_hash != item.candidate.hash:
            what = "another candidate"
        else:
            pairs = zip(then.model_dump().items(), settings.model_dump().values(), strict=True)
            what = ", ".join(f"{name} {old} (now {new})" for (name, old), new in pairs if old != new)
            what = f"other settings: {what}" if what else "a problem marked otherwise"
        raise RunError(f"{item.place}: {item.id[:80]!r} was judged in {self.folder} with {what}; choose another --out")

    def add(self, item: Item, settings: Settings, evaluation: Evaluation) -> None:
        """Record a verdict, without waiting for the disk.

        Raises:
            RunError: an earlier one could not be written.
        """
        self.check()
        record = Record.of(item.id, settings.job(item), evaluation)
        is_fault = evaluation.status is Status.INFRASTRUCTURE_ERROR
        if is_fault:
            self._num_faults[item.id] += 1
        else:
            self._known[item.id] = (record.job, record.problem_hash, record.candidate.hash, settings)
        line = record.model_dump_json(round_trip=True).encode()
        self._unwritten.append(self._journal.append(int(is_fault), line))

    def num_faults(self, item: Item) -> int:
        """How often a fault of ours left `item` without a verdict."""
        return self._num_faults[item.id]

    def check(self) -> None:
        """See whether what was added could be written, as far as is known by now.

        Raises:
            RunError: it could not, for example because the disk is full.
        """
        while self._unwritten and self._unwritten[0].done():
            failure = self._unwritten.popleft().exception()
            if isinstance(failure, OSError):
                raise RunError(f"{self.folder}: {failure.strerror}")

    def close(self) -> None:
        """Write what was added and let others write.

        Raises:
            RunError: it could not be written.
        """
        try:
            self._journal.close()
        except OSError as error:
            raise RunError(f"{self.folder}: {error.strerror}") from None
        finally:
            self._lock.release()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
