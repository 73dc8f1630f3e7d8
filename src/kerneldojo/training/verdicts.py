"""Verdicts for training: equal answers are judged once, and a judge that fails is waited for.

A service that goes away and comes back costs time, not data: orders are placed again, at growing intervals, until
`patience` is used up. Only then is the fault handed on as `infrastructure_error`, which masks the trajectory; it is
never scored and never remembered. Verdicts without a clock (interpreted or modelled) are remembered over the whole run,
measured ones within a step only, since a new measurement is new information.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass

from kerneldojo.pool import Executor
from kerneldojo.schema import Evaluation, Job, Status

MAX_REMEMBERED = 50_000
FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0
"""Seconds before a failed order is placed again: the first time, and at most."""


@dataclass
class Order:
    """A job on its way."""

    job: Job
    future: Future[Evaluation] | None = None
    retry_at: float = 0.0
    failing_since: float | None = None
    delay: float = FIRST_DELAY
    reason: str = ""


class Verdicts:
    """Orders placed at an executor, by the hash of what decides the verdict."""

    def __init__(self, executor: Executor, patience: float, check: Callable[[], None] = lambda: None) -> None:
        """`patience`: seconds that faults are waited out. `check`: called while waiting; may raise to end it."""
        self.executor, self.patience, self.check = executor, patience, check
        self._pending: dict[str, Order] = {}
        self._known: OrderedDict[str, Evaluation] = OrderedDict()
        self._timed: set[str] = set()
        self.num_asked = 0
        """Verdicts asked for."""
        self.num_judged = 0
        """Orders placed, the others having been equal to one of these."""
        self.num_faults = 0
        """Orders that failed for our sake and were placed again or given up."""

    def order(self, job: Job) -> str:
        """Have `job` judged if no equal one is known; returns at once with the hash to wait for."""
        self.num_asked += 1
        if job.hash not in self._known and job.hash not in self._pending:
            self.num_judged += 1
            order = self._pending[job.hash] = Order(job)
            self._place(order)
        return job.hash

    def wait(self, hashes: Iterable[str]) -> dict[str, Evaluation]:
        """The verdicts on these orders, when all are there."""
        wanted = list(dict.fromkeys(hashes))
        results: dict[str, Evaluation] = {}
        while len(results) < len(wanted):
            self.check()
            for one in wanted:
                if one not in results:
                    found = self._known.get(one) or self._look(one)
                    if found is not None:
                        results[one] = found
            running = [order.future for order in self._pending.values() if order.future is not None]
            if len(results) < len(wanted):
                if any(future.done() for future in running):
                    continue
                wait(running, timeout=0.2, return_when="FIRST_COMPLETED") if running else time.sleep(0.1)
        return results

    def forget_measured(self) -> None:
        """Let measured verdicts go: the next step measures again."""
        for one in self._timed:
            self._known.pop(one, None)
        self._timed.clear()

    def _look(self, one: str) -> Evaluation | None:
        """The verdict on a pending order, if it has one by now; places it again where that is due."""
        order = self._pending[one]
        if order.future is None:
            if time.monotonic() >= order.retry_at:
                self._place(order)
            return None if order.future is not None else self._given_up(one, order)
        if not order.future.done():
            return None
        try:
            evaluation = order.future.result()
        except (Exception, CancelledError) as error:
            self._failed(order, f"{type(error).__name__}: {error}")
            return self._given_up(one, order)
        if evaluation.status is Status.INFRASTRUCTURE_ERROR:
            self._failed(order, evaluation.message)
            return self._given_up(one, order)
        del self._pending[one]
        self._known[one] = evaluation
        if evaluation.timing.source == "measured" or evaluation.device.startswith("cuda"):
            self._timed.add(one)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return evaluation

    def _place(self, order: Order) -> None:
        try:
            # A verdict that is our own fault must not be found again among those already known.
            job = order.job if order.failing_since is None else order.job.model_copy(update={"fresh": True})
            order.future = self.executor.submit(job)
        except ValueError:  # no device can ever serve it: the configuration is wrong
            raise
        except Exception as error:
            self._failed(order, f"{type(error).__name__}: {error}")

    def _failed(self, order: Order, reason: str) -> None:
        self.num_faults += 1
        now = time.monotonic()
        order.future, order.reason = None, " ".join(reason.split())[:300]
        order.failing_since = now if order.failing_since is None else order.failing_since
        order.retry_at = now + order.delay
        order.delay = min(2 * order.delay, LONGEST_DELAY)

    def _given_up(self, one: str, order: Order) -> Evaluation | None:
        if order.failing_since is None or time.monotonic() - order.failing_since < self.patience:
            return None
        del self._pending[one]
        job = order.job
        return Evaluation(
            status=Status.INFRASTRUCTURE_ERROR,
            message=f"not judged for {self.patience:.0f} s: {order.reason}",
            device=job.device,
            problem_hash=job.problem.hash,
            candidate_hash=job.candidate.hash,
        )
