"""One request, repeated while it fails for reasons that may pass.

Nothing is sent here: a generator yields `Send` or `Pause` and is sent the response, or the transport's error. So both
clients have the same patience, one by blocking and one by awaiting.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError

from kerneldojo.client.errors import ClientError, Overloaded, ServerFault, Unreachable, refusal
from kerneldojo.schema import Frozen
from kerneldojo.service.records import Problematic


class Retries(Frozen):
    """How stubborn a client is."""

    give_up_seconds: float = Field(default=600.0, ge=0)
    """How long one call may fail for reasons that may pass, before it raises; 0 tries once."""
    first_pause: float = Field(default=0.2, gt=0)
    """Seconds before the second attempt; doubled each time, with jitter. A Retry-After of the service counts more."""
    longest_pause: float = Field(default=10.0, gt=0)
    """Longest pause that the client chooses itself."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request."""

    method: str
    path: str
    params: dict[str, str] | None = None
    body: str | None = None
    timeout: float = 60.0
    """Seconds to wait for the answer."""
    waits: bool = False
    """Whether the service answers only when there is something to tell."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while."""

    seconds: float


Reply = httpx.Response | httpx.RequestError | None
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Steps = Generator[Send | Pause, Reply, T]


class Setback:
    """The pauses of one call that keeps failing."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._pause = retries.first_pause
        self._since: float | None = None

    def forget(self) -> None:
        """It works again."""
        self._pause, self._since = self._retries.first_pause, None

    def pause(self, error: ClientError, retry_after: float = 0.0) -> Pause:
        """How long to wait before the next attempt.

        Raises:
            ClientError: `error`, if it has been failing for too long.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        seconds = max(retry_after, self._pause * random.uniform(0.5, 1.0))
        if now + seconds - self._since > self._retries.give_up_seconds:
            error.waited_s = self._retries.give_up_seconds
            raise error
        self._pause = min(2 * self._pause, self._retries.longest_pause)
        return Pause(seconds)


def passing_trouble(reply: Reply) -> tuple[ClientError, float] | None:
    """Whether a reply is a failure that may pass: the error to raise in the end, and the least time to wait.

    Raises:
        Refused: the request is wrong, and would be wrong again.
    """
    if reply is None or isinstance(reply, httpx.RequestError):
        words = f"{type(reply).__name__}: {reply}".rstrip(": ")
        return Unreachable(f"the service cannot be reached: {words}"), 0.0
    if reply.status_code < 300:
        return None
    if reply.status_code < 400:
        # Most likely a proxy. A token is not carried to wherever it says.
        raise refusal(reply.status_code, f"redirected to {reply.headers.get('location', 'nowhere')}: ask there")
    told = problem_of(reply)
    if reply.status_code in (429, 503):
        return Overloaded(told.detail), retry_after(reply)
    if reply.status_code >= 500:
        request_id = told.request_id or reply.headers.get("x-request-id", "")
        return ServerFault(f"{reply.status_code}: {told.detail}", request_id), 0.0
    if reply.status_code == 408:
        return Overloaded(told.detail), 0.0
    raise refusal(reply.status_code, told.detail)


def problem_of(reply: httpx.Response) -> Problematic:
    """What the service said of a failure; a proxy between may say anything."""
    try:
        return Problematic.model_validate_json(reply.content, extra="ignore")
    except ValidationError:
        return Problematic(detail=reply.reason_phrase or "no reason given")


def retry_after(reply: httpx.Response) -> float:
    """Seconds that the service asks to wait, at most a minute."""
    try:
        return min(60.0, max(0.0, float(reply.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0


def answer(model: type[M], data: bytes) -> M:
    """What the service said.

    Raises:
        ServerFault: it is no answer of this service; most likely a proxy's.
    """
    try:
        return model.model_validate_json(data, extra="ignore")
    except ValidationError as error:
        raise ServerFault(f"not an answer of this service: {error.errors()[0]['msg']}") from None


def call(request: Send, model: type[M], retries: Retries) -> Steps[M]:
    """One request, repeated while it fails for reasons that may pass.

    Raises:
        ClientError: it failed for good.
    """
    setback = Setback(retries)
    while True:
        reply = yield request
        trouble = passing_trouble(reply)
        if trouble is None:
            assert isinstance(reply, httpx.Response)
            return answer(model, reply.content)
        yield setback.pause(*trouble)
