"""What can go wrong between a client and a service. A candidate's failure is not among it: that is a verdict.

ClientError
├── Unreachable        no connection, after all retries
├── Overloaded         429 or 503, after all retries
├── ServerFault        another 5xx, after all retries; `request_id` names the line in its log
├── Refused            4xx: asking again would not help
│   ├── Unauthorized   no valid token
│   ├── NotFound       no such task
│   └── Conflict       the id belongs to a task with another job
├── TaskCancelled      someone cancelled the task: it has no verdict; `ids` names all of a call's
└── WaitTimeout        the task has not ended in the time given; it goes on
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of a client."""

    waited_s = 0.0
    """Seconds of patience (`Retries.give_up_seconds`) that were used up before it was raised."""


class Unreachable(ClientError):
    """The service cannot be reached."""


class Overloaded(ClientError):
    """The service takes no more work now."""


class ServerFault(ClientError):
    """The service failed."""

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(f"{message} (request {request_id})" if request_id else message)
        self.request_id = request_id


class Refused(ClientError):
    """The request is wrong."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


class Unauthorized(Refused):
    """A valid token is needed."""


class NotFound(Refused):
    """There is no such task."""


class Conflict(Refused):
    """The id belongs to a task with another job."""


class TaskCancelled(ClientError):
    """Tasks were cancelled and have no verdict."""

    def __init__(self, *ids: str) -> None:
        named = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        super().__init__(f"{len(ids)} tasks were cancelled: {named}" if len(ids) > 1 else f"task {named} was cancelled")
        self.ids = ids
        """Of all of them."""


class WaitTimeout(ClientError):
    """The task has not ended yet."""


def refusal(status: int, detail: str) -> Refused:
    """The error for a 4xx status."""
    kinds: dict[int, type[Refused]] = {401: Unauthorized, 404: NotFound, 409: Conflict}
    return kinds.get(status, Refused)(status, detail)
