"""A verdict that a service owes, as a future."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from kerneldojo.schema import Evaluation


class Awaited(Future[Evaluation]):
    """A verdict that is on its way.

    Cancelled, its task is too, and if it runs already, the service judges on for nobody: see `withdraw`.
    """

    waited_s = 0.0
    """Seconds that the service was waited for in vain, where the result is an `infrastructure_error` for this reason:
    whoever has a patience of their own need not begin it anew."""

    is_withdrawn = False
    """Whether it was asked for once that its task be given up."""

    is_settled = False
    """Whether the service has said that the task is cancelled."""

    def __init__(self, task_id: str, ask: Callable[[Awaited], None]) -> None:
        super().__init__()
        self.task_id = task_id
        self._ask = ask

    def withdraw(self) -> None:
        """See `Withdrawable.withdraw`. Where the service does not say in time whether it has begun: `cancel`."""
        self._ask(self)
