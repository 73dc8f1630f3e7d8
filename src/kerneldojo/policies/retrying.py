"""Calls to an endpoint that sometimes fails: what is worth another try, how long to wait, what to say in the end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import TypeVar

import openai
from pydantic import Field

from kerneldojo.policies.redaction import redacted
from kerneldojo.schema import Frozen

Result = TypeVar("Result")
log = logging.getLogger(__name__)

PERMANENT_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes that come with status 429 and do not pass by waiting."""


BROKEN_OFF = frozenset({"abort", "error", "insufficient_system_resource"})
"""Reasons of an end that speak of the server, not of the model: vLLM's, OpenRouter's and DeepSeek's."""


class RetryConfig(Frozen):
    """Patience."""

    attempts: int = Field(default=6, ge=1)
    """Tries in all."""
    first_delay: float = Field(default=1.0, ge=0)
    """Seconds before the second try; doubled before each further one, less a random part of up to a half."""
    longest_delay: float = Field(default=60.0, ge=0)
    """Longest wait in seconds. A longer one that the server asks for (Retry-After) is kept, up to 10 minutes."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds for one try, from the request to the last byte; `attempt` itself has to keep to it."""


class MalformedReply(Exception):
    """The endpoint answered with success, but not in its protocol."""


class CallFailed(Exception):
    """No try succeeded; the message says in one line why, fit to be shown."""


def require_whole(finish_reason: object) -> None:
    """Raise MalformedReply where a reply says of itself that the server broke it off: it is no answer of the model."""
    if isinstance(finish_reason, str) and finish_reason in BROKEN_OFF:
        raise MalformedReply(f"the server broke the answer off ({finish_reason})")


def is_worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed later: overload, rate limits, a broken connection, a garbled reply."""
    if isinstance(error, openai.APIStatusError):
        if str(error.code or error.type) in PERMANENT_CODES:
            return False
        return error.status_code in (408, 409, 425, 429) or error.status_code >= 500
    # ValueError: what is no JSON; what httpx raises in the middle of a stream derives from none of openai's errors.
    return True


def requested_delay(error: BaseException) -> float | None:
    """Seconds that the server asks to wait, from `retry-after-ms` or `retry-after` (seconds or a date)."""
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - time()
            except ValueError:
                continue
        if seconds == seconds:
            return min(600.0, max(0.0, seconds))
    return None


@dataclass
class Trouble:
    """What goes wrong with one server: said once, and no more until it has answered.

    A server that is not there yet would otherwise be waited for in silence.
    """

    name: str
    secret: str = ""
    """Never to be said."""
    is_known: bool = False

    def note(self, error: BaseException) -> None:
        """A try has failed and will be made again."""
        if not self.is_known:
            self.is_known = True
            log.warning("%s: %s; trying again", self.name, self.described(error))

    def described(self, error: BaseException) -> str:
        """An error in one line of at most 300 characters, without anybody's key."""
        text = str(error) or "no message"
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            text = "timed out"
        elif isinstance(error, openai.APIStatusError):
            text = f"HTTP {error.status_code}: {text}"
        elif isinstance(error, openai.APIConnectionError):
            cause = error.__cause__
            text = f"connection failed: {str(cause or error).strip() or type(cause).__name__}"
        elif not isinstance(error, MalformedReply):
            text = f"{type(error).__name__}: {text}"
        return redacted(text, self.secret)


async def retrying(
    attempt: Callable[[], Awaitable[Result]],
    config: RetryConfig,
    jitter: random.Random,
    trouble: Trouble,
    on_retry: Callable[[], None] = lambda: None,
) -> Result:
    """The result of `attempt`, tried as often as `config` allows. Raises `CallFailed`: the last error in a line."""
    delay = config.first_delay
    for number in range(1, config.attempts + 1):
        try:
            result = await attempt()
            trouble.is_known = False
            return result
        except Exception as error:
            if number == config.attempts or not is_worth_retrying(error):
                raise CallFailed(f"{trouble.described(error)} (try {number} of {config.attempts})") from error
            asked = requested_delay(error)
            trouble.note(error)
        wait = min(delay, config.longest_delay) * (1 - jitter.random() / 2)
        on_retry()
        await asyncio.sleep(wait if asked is None else max(wait, asked))
        delay *= 2
    raise AssertionError("the last try returns or raises")
