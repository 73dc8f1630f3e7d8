"""How a job can fail to get a verdict: never the candidate's doing as far as is known, so nothing here is a verdict."""

from __future__ import annotations

from typing import Literal

Cause = Literal["died", "hung", "node", "elsewhere", "fault"]
"""Why a worker was lost while it held a job.

- `died`: its process ended by itself or was killed by somebody;
- `hung`: this very job had passed its deadline, so we killed the worker;
- `node`: the whole machine was lost;
- `elsewhere`: for a reason that has nothing to do with this job: another one hung, or the worker was gone before this
  one reached it;
- `fault`: the device or the pool failed beside it; such a fault is tried again a bounded number of times.
"""


class WorkerLost(Exception):
    """The worker that held a job is gone."""

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause: Cause = cause


class Sick(Exception):
    """A device cannot serve now; the message says why in one line."""
