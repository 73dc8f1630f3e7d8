"""Who looks: a task belongs to the client that submitted it, and for any other it does not exist."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from starlette.exceptions import HTTPException


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whoever sent a request, as far as it matters for what they may see."""

    client: str
    """Name under which their work is queued."""
    sees_all: bool
    """Whether every client's tasks are theirs to see and to cancel (`tokens.sees_all`)."""

    def sees(self, client: str) -> bool:
        """Whether a task of `client` exists for them."""
        return self.sees_all or client == self.client

    @property
    def only(self) -> str | None:
        """The one client whose tasks they see; None for all."""
        return None if self.sees_all else self.client


def viewer_of(request: Request) -> Viewer:
    """Who sent a request that the gate let in."""
    viewer: Viewer = request.scope["dojo.viewer"]
    return viewer


def no_such_task() -> HTTPException:
    """The one answer for a task that is not there and for one that is somebody else's."""
    return HTTPException(404, "there is no such task")
