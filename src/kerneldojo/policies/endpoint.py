"""A policy behind any OpenAI-compatible chat endpoint: a provider's, or a server of one's own.

It gives no token ids: it can play, collect and be benchmarked, but RL cannot learn from it.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from kerneldojo.policies.connections import Clients
from kerneldojo.policies.policy import Request
from kerneldojo.policies.rates import Allowance
from kerneldojo.policies.retrying import CallFailed, MalformedReply, RetryConfig, Trouble, require_whole, retrying
from kerneldojo.schema import Answer, Frozen, Usage

MOST_TOKENS = 1 << 31
"""No prompt and no answer has so many tokens: a count beyond it is none."""


class EndpointConfig(Frozen):
    """How an endpoint is asked, and what it costs."""

    concurrency: int = Field(default=64, ge=1)
    """Requests under way at once."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """Limit of the provider; None for none."""
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """Limit of the provider, prompt and answer together; None for none."""
    retry: RetryConfig = RetryConfig()
    streaming: bool = False
    """Receive answers piece by piece: for servers and proxies that cut long silent requests."""
    input_price: float = Field(default=0.0, ge=0)
    """Dollars for a million tokens of prompt."""
    output_price: float = Field(default=0.0, ge=0)
    """Dollars for a million tokens of answer, reasoning included."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key. The key itself stands in no configuration and no log."""
    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    """What the endpoint calls the longest answer; `auto`: the second for the provider's own host, else the first."""
    send_seed: bool = True
    """Whether to send the seed; some endpoints refuse it."""
    send_temperature: bool = True
    """Whether to send temperature and top-p; some reasoning models refuse any but their own."""
    keep_reasoning: bool = True
    """Put reasoning that comes in a field of its own before the answer, as `<think>...</think>`."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, for example `{"reasoning_effort": "low"}`."""


class Tally(Frozen):
    """What a policy has used so far."""

    requests: int = 0
    """Answers asked for."""
    retries: int = 0
    failures: int = 0
    """Answers that did not come, for all retries."""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    dollars: float = 0.0


class EndpointPolicy:
    """Asks an OpenAI-compatible chat endpoint."""

    gives_ids = False

    def __init__(self, model: str, url: str | None = None, config: EndpointConfig | None = None) -> None:
        """Prepare to ask `model` at `url`, the address that ends before `/chat/completions`; None for OpenAI's own.

        Raises:
            ValueError: A malformed address, or no key for a provider that needs one.
        """
        self.model = model
        self.config = config or EndpointConfig()
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"an endpoint's address begins with http:// or https://, not {url!r}")
        self._key = os.environ.get(self.config.api_key_env, "")
        if not self._key and url is None:
            raise ValueError(f"set {self.config.api_key_env} to the endpoint's key")
        self.url = url
        self.tally = Tally()
        # Retries are ours: the package's own would neither be counted nor see garbled replies.
        self._clients = Clients(
            api_key=self._key or "none", base_url=url, max_retries=0, timeout=self.config.retry.timeout
        )
        self._slots = asyncio.Semaphore(self.config.concurrency)
        self._requests = Allowance(self.config.requests_per_minute)
        self._tokens = Allowance(self.config.tokens_per_minute)
        self._jitter = random.Random(0)
        self._mean_answer: float | None = None
        self._trouble = Trouble(self.name, self._key)

    @property
    def name(self) -> str:
        """`openai:MODEL`, with the host where it is not the provider's own."""
        return f"openai:{self.model}" + (f"@{urlsplit(self.url).netloc.rpartition('@')[2]}" if self.url else "")

    async def answer(self, request: Request) -> Answer:
        """Ask, retrying what may pass; a failed answer says why."""
        started = time.monotonic()
        self._count(requests=1)
        async with self._slots:
            try:
                reply = await retrying(
                    lambda: self._ask(request),
                    self.config.retry,
                    self._jitter,
                    self._trouble,
                    lambda: self._count(retries=1),
                )
            except CallFailed as failure:
                self._count(failures=1)
                usage = Usage(seconds=time.monotonic() - started)
                return Answer(text="", finish="failed", error=str(failure), usage=usage)
        usage = reply.usage.model_copy(update={"seconds": time.monotonic() - started})
        return reply.model_copy(update={"usage": usage})

    async def close(self) -> None:
        """Close the connections."""
        await self._clients.close()

    def _count(self, **amounts: float) -> None:
        now = self.tally.model_dump()
        self.tally = Tally(**{**now, **{name: now[name] + amount for name, amount in amounts.items()}})

    def _fields(self, request: Request) -> dict[str, Any]:
        """The request's body."""
        config = self.config
        field = config.max_tokens_field
        if field == "auto":
            field = "max_completion_tokens" if self.url is None else "max_tokens"
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            field: request.max_tokens,
        }
        if config.send_temperature:
            fields["temperature"] = request.temperature
            fields["top_p"] = request.top_p
        if config.send_seed:
            fields["seed"] = request.seed % (1 << 31)
        if config.streaming:
            fields["stream"] = True
            fields["stream_options"] = {"include_usage": True}
        if config.extra_body:
            fields["extra_body"] = config.extra_body
        return fields

    async def _ask(self, request: Request) -> Answer:
        """One try."""
        estimate = sum(len(message.content) for message in request.messages) / 3.5
        estimate += request.max_tokens if self._mean_answer is None else self._mean_answer
        await self._requests.take(1)
        await self._tokens.take(estimate)
        prompt_tokens = answer_tokens = 0
        try:
            async with asyncio.timeout(self.config.retry.timeout):
                with self._clients.one() as client:
                    response = await client.chat.completions.create(**self._fields(request))
                    parts = await self._streamed(response) if self.config.streaming else self._whole(response)
            text, reasoning, finish, (prompt_tokens, answer_tokens) = parts
            require_whole(finish)
        finally:
            self._tokens.settle(prompt_tokens + answer_tokens - estimate)
        if answer_tokens:
            previous = answer_tokens if self._mean_answer is None else self._mean_answer
            self._mean_answer = 0.9 * previous + 0.1 * answer_tokens
        price = self.config
        dollars = (prompt_tokens * price.input_price + answer_tokens * price.output_price) / 1e6
        self._count(prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, dollars=dollars)
        if reasoning and price.keep_reasoning:
            text = f"<think>\n{reasoning.strip()}\n</think>\n\n{text}"
        usage = Usage(prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, dollars=dollars)
        return Answer(text=text, finish="length" if finish == "length" else "stop", usage=usage)

    def _whole(self, response: Any) -> tuple[str, str, str, tuple[int, int]]:
        """Text, reasoning, reason of the end and tokens of a reply that came at once."""
        choices = getattr(response, "choices", None)
        first = choices[0] if isinstance(choices, list) and choices else None
        message = getattr(first, "message", None)
        if message is None:
            raise MalformedReply("the reply has no message")
        finish = str(getattr(first, "finish_reason", ""))
        return _said(message), _reasoning(message), finish, _counts(response)

    async def _streamed(self, stream: Any) -> tuple[str, str, str, tuple[int, int]]:
        """The same, gathered from a stream."""
        texts: list[str] = []
        reasonings: list[str] = []
        finish, counts = "", (0, 0)
        if not hasattr(stream, "__aiter__"):
            raise MalformedReply("the reply is no stream")
        async for chunk in stream:
            if getattr(chunk, "usage", None) is not None:
                counts = _counts(chunk)
            for choice in getattr(chunk, "choices", None) or []:
                if choice.index:  # A further choice, which `extra_body` asked for: it comes in pieces of its own.
                    continue
                delta = choice.delta
                if delta is not None:
                    texts.append(_said(delta))
                    reasonings.append(_reasoning(delta))
                finish = choice.finish_reason or finish
        if not finish:
            raise MalformedReply("the stream broke off")
        return "".join(texts), "".join(reasonings), finish, counts


def _said(message: Any) -> str:
    """What the model says; a refusal, which has a field of its own, is an answer too."""
    return _text(message, "content") or _text(message, "refusal")


def _text(holder: Any, field: str) -> str:
    """A field of text; empty where it is absent."""
    value = getattr(holder, field, None)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedReply(f"{field} is no text")
    return value


def _reasoning(holder: Any) -> str:
    """Reasoning, which servers send as `reasoning_content` or `reasoning`, outside the protocol."""
    for field in ("reasoning_content", "reasoning"):
        if isinstance(value := getattr(holder, field, None), str) and value:
            return value
    return ""


def _counts(reply: Any) -> tuple[int, int]:
    """Tokens of prompt and answer as the endpoint counts them; 0 where it does not, or what it says is no count."""
    usage = getattr(reply, "usage", None)
    counts = [getattr(usage, field, None) for field in ("prompt_tokens", "completion_tokens")]
    prompt, answer = (count if type(count) is int and 0 <= count < MOST_TOKENS else 0 for count in counts)
    return prompt, answer
