"""How much of what was asked for had to be judged: equal answers to equal problems are judged once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from kerneldojo.pool import DeviceState, Executor
from kerneldojo.schema import Evaluation, Job


class Counting:
    """An executor that counts the different jobs that it hands on."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self._seen: set[str] = set()

    @property
    def num_slots(self) -> int:
        """As the executor inside has."""
        return self.inner.num_slots

    @property
    def num_judged(self) -> int:
        """Different jobs so far."""
        return len(self._seen)

    def submit(self, job: Job) -> Future[Evaluation]:
        """Hand on; see `Executor`."""
        self._seen.add(job.hash)
        return self.inner.submit(job)

    def devices(self) -> Sequence[DeviceState]:
        """Of the executor inside."""
        return self.inner.devices()

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """Close the executor inside."""
        self.inner.close(drain=drain, patience=patience)
