"""Verdicts for training: equal answers are judged once, and a judge that fails is waited for.

A service that goes away and comes back costs time, not data: orders are placed again, at growing intervals, until
`patience` is used up, and what a client of the service has waited counts. Only then is the fault handed on as
`infrastructure_error`, which masks the trajectory; it is never scored and never remembered. Verdicts without a clock
(interpreted or modelled) are remembered over the whole run, measured ones within a step only, since a new measurement
is new information.
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


@dataclass(eq=False)
class Order:
    """A job on its way, or judged. Orders of equal jobs are equal."""

    job: Job
    verdict: Evaluation | None = None
    """None as long as it is not there."""
    future: Future[Evaluation] | None = None
    retry_at: float = 0.0
    failing_since: float | None = None
    delay: float = FIRST_DELAY
    reason: str = ""
    is_shared: bool = True
    """Whether equal jobs join it, and its verdict is remembered for later ones."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self.job.hash == other.job.hash

    def __hash__(self) -> int:
        return hash(self.job.hash)


class Verdicts:
    """Orders placed at an executor, by the hash of what decides the verdict."""

    def __init__(self, executor: Executor, patience: float, check: Callable[[], None] = lambda: None) -> None:
        """`patience`: seconds that faults are waited out. `check`: called while waiting; may raise to end it."""
        self.executor, self.patience, self.check = executor, patience, check
        self._pending: dict[int, Order] = {}
        """By identity: two equal ones may be under way, where measurements are not shared."""
        self._joined: dict[str, Order] = {}
        """By hash: those under way that equal jobs join."""
        self._known: OrderedDict[str, Evaluation] = OrderedDict()
        self._timed: set[str] = set()
        self.num_asked = 0
        """Verdicts asked for."""
        self.num_judged = 0
        """Orders placed, the others having been equal to one of these."""
        self.num_faults = 0
        """Orders that failed for our sake and were placed again or given up."""

    def order(self, job: Job) -> Order:
        """Have `job` judged if no equal one is known; returns at once with the order to wait for."""
        self.num_asked += 1
        known = self._known.get(job.hash)
        if known is not None:
            return Order(job, verdict=known)
        joined = self._joined.get(job.hash)
        if joined is not None:
            return joined
        self.num_judged += 1
        order = self._joined[job.hash] = Order(job)
        self._pending[id(order)] = order
        self._place(order)
        return order

    def wait(self, orders: Iterable[Order]) -> dict[Order, Evaluation]:
        """The verdicts on these orders, when all are there. Others that failed are placed again meanwhile."""
        wanted = list(orders)
        while True:
            self.check()
            for order in list(self._pending.values()):
                self._look(order)
            missing = [order for order in wanted if order.verdict is None]
            if not missing:
                return {order: order.verdict for order in wanted if order.verdict is not None}
            running = [order.future for order in missing if order.future is not None]
            if not any(future.done() for future in running):
                wait(running, timeout=0.2, return_when="FIRST_COMPLETED") if running else time.sleep(0.1)

    def forget_measured(self) -> None:
        """Let measured verdicts go: the next step measures again, also what is just being measured for another."""
        for one in self._timed:
            self._known.pop(one, None)
        self._timed.clear()
        for order in list(self._joined.values()):
            if not order.job.device.startswith(("cpu", "model:")):
                order.is_shared = False
                del self._joined[order.job.hash]

    def _look(self, order: Order) -> None:
        """Take the verdict on a pending order, if it has one by now; place it again where that is due."""
        if order.future is None:
            if time.monotonic() >= order.retry_at:
                self._place(order)
            if order.future is None:
                self._give_up(order)
            return
        if not order.future.done():
            return
        try:
            evaluation = order.future.result()
        except (Exception, CancelledError) as error:
            self._failed(order, f"{type(error).__name__}: {error}")
            self._give_up(order)
            return
        if evaluation.status is Status.INFRASTRUCTURE_ERROR:
            self._failed(order, evaluation.message, waited=getattr(order.future, "waited_s", 0.0))
            self._give_up(order)
            return
        self._settle(order, evaluation)
        if order.is_shared:
            self._remember(order.job.hash, evaluation)

    def _settle(self, order: Order, evaluation: Evaluation) -> None:
        order.verdict = evaluation
        del self._pending[id(order)]
        if self._joined.get(order.job.hash) is order:
            del self._joined[order.job.hash]

    def _remember(self, one: str, evaluation: Evaluation) -> None:
        self._known[one] = evaluation
        if evaluation.timing.source == "measured" or evaluation.device.startswith("cuda"):
            self._timed.add(one)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def _place(self, order: Order) -> None:
        try:
            # A verdict that is our own fault must not be found again among those already known.
            job = order.job if order.failing_since is None else order.job.model_copy(update={"fresh": True})
            order.future = self.executor.submit(job)
        except ValueError:  # no device can ever serve it: the configuration is wrong
            raise
        except Exception as error:
            self._failed(order, f"{type(error).__name__}: {error}")

    def _failed(self, order: Order, reason: str, waited: float = 0.0) -> None:
        """`waited`: seconds for which it has been failing already (`client.executor.Awaited`)."""
        self.num_faults += 1
        now = time.monotonic()
        order.future, order.reason = None, " ".join(reason.split())[:300]
        since = now - waited
        order.failing_since = since if order.failing_since is None else min(since, order.failing_since)
        order.retry_at = now + order.delay
        order.delay = min(2 * order.delay, LONGEST_DELAY)

    def _give_up(self, order: Order) -> None:
        """Hand the fault on, if patience has ended."""
        if order.failing_since is None or time.monotonic() - order.failing_since < self.patience:
            return
        job = order.job
        fault = Evaluation(
            status=Status.INFRASTRUCTURE_ERROR,
            message=f"not judged for {self.patience:.0f} s: {order.reason}",
            device=job.device,
            problem_hash=job.problem.hash,
            candidate_hash=job.candidate.hash,
        )
        self._settle(order, fault)
