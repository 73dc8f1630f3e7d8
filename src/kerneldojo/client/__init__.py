"""A service elsewhere, as Python objects. Needs httpx, and neither torch nor FastAPI.

    from kerneldojo import Client

    with Client("http://127.0.0.1:8000") as client:
        evaluation = client.judge(problem, candidate, device="cuda")

Every request may be repeated (tasks have ids that the client chooses), so a lost connection, a full queue or a service
that is being restarted cost time and nothing else.
"""

from kerneldojo.client.asynchronous import AsyncClient
from kerneldojo.client.attempts import Retries
from kerneldojo.client.errors import (
    ClientError,
    Conflict,
    NotFound,
    Overloaded,
    Refused,
    ServerFault,
    TaskCancelled,
    Unauthorized,
    Unreachable,
    WaitTimeout,
)
from kerneldojo.client.events import Event
from kerneldojo.client.executor import ClientExecutor
from kerneldojo.client.synchronous import Client
from kerneldojo.service.records import Missed, Overview, TaskRecord, TaskSummary

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ClientExecutor",
    "Conflict",
    "Event",
    "Missed",
    "NotFound",
    "Overloaded",
    "Overview",
    "Refused",
    "Retries",
    "ServerFault",
    "TaskCancelled",
    "TaskRecord",
    "TaskSummary",
    "Unauthorized",
    "Unreachable",
    "WaitTimeout",
]
