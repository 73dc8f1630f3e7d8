"""An executor: what turns jobs into evaluations. The service, rollouts and `dojo evaluate` know nothing else of it.

Two things implement it here, `LocalPool` (every device of this machine) and `RayPool` (any number of machines), and
`kerneldojo.Client` does for a service elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal, Protocol, runtime_checkable

from kerneldojo.schema import Evaluation, Frozen, Job


class DeviceState(Frozen):
    """One device of an executor as it is now."""

    name: str
    """For example `cuda:0`, `model:h100`, or `node-3/cuda:1` on another machine."""
    kind: Literal["cuda", "cpu", "model"]
    description: str = ""
    """For people, for example `NVIDIA H200`."""
    is_healthy: bool = True
    """Whether it takes jobs; one that fails its health check leaves the pool until it is well."""
    reason: str = ""
    """Why it is not healthy, in one line."""
    running: tuple[str, ...] = ()
    """What it does now: problem names with the stage they are in."""
    num_done: int = 0
    """Jobs finished since it joined."""
    num_slots: int | None = None
    """Its share of the executor's slots; None if it is not told. Who keeps a queue holds back what is beyond it."""


class Executor(Protocol):
    """Turns jobs into evaluations, many at once."""

    @property
    def num_slots(self) -> int:
        """Jobs that it can usefully hold at once, running or being built; more may be submitted, and wait."""
        ...

    def submit(self, job: Job) -> Future[Evaluation]:
        """Accept a job without waiting; thread-safe.

        The future's result is the verdict. It never raises for a candidate's sake, and for ours only by the status
        `infrastructure_error`, after the retries that such a fault is allowed. Cancelling works until it is running.

        Raises:
            ValueError: no device of this executor can ever serve the job (in one line).
            RuntimeError: the executor is closed.
        """
        ...

    def devices(self) -> Sequence[DeviceState]:
        """What each device does now."""
        ...

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """Stop taking jobs; finish those accepted if `drain`, else cancel what is not running; leave nothing behind.

        What still has no verdict after `patience` seconds, where that is given, is ended without one: its future is
        cancelled, or an `infrastructure_error`.
        """
        ...


@runtime_checkable
class Lasting(Protocol):
    """An executor elsewhere, whose tasks outlive whoever submits them, and are found again by their ids."""

    @property
    def keeps_tasks(self) -> bool:
        """Whether it does: true, for `submit` alone does not tell these executors from others."""
        ...

    def submit(self, job: Job, *, id: str | None = None) -> Future[Evaluation]:
        """See `Executor.submit`. The same job under the same id is the same task, also after a crash of who submits.

        Where that was cancelled, the job is submitted under the id with a number behind it, the first that was not.
        An id that belongs to another job is an `infrastructure_error`. Without an id the task has a new one.
        """
        ...


@runtime_checkable
class Withdrawable(Protocol):
    """A future whose `cancel` would throw the verdict of what runs already away: its job runs elsewhere."""

    def withdraw(self) -> None:
        """Have the job given up if it has not begun; thread-safe, does not wait, and is done once however often asked.

        Then the future is cancelled, a little later. If the job runs, the future stays until there is a verdict.
        """
        ...


@runtime_checkable
class Choosy(Protocol):
    """An executor that would rather be given some jobs next than others; who keeps a queue of its own may ask it."""

    def rank(self, problem_hash: str) -> int:
        """How gladly a job on this problem would be taken now: the lower, the more so. Thread-safe.

        0 if a free slot has at hand what it takes, 1 if nobody has met the problem, and the more, the more there is in
        use or elsewhere of what it takes, which would have to be made again.
        """
        ...
