"""A policy served by vLLM: token ids in, token ids and log-probabilities out, over `/v1/completions`.

The prompt is sent as ids and the answer's ids are asked for (`return_token_ids`, vLLM 0.10.2 and newer; before that as
`token_id:N` strings in place of tokens), so that nothing is ever tokenized twice. Every sampling setting is sent, for
vLLM takes what is missing from the model's own generation settings, top-k and repetition penalty included.

vLLM reports log-probabilities of the model's raw output unless it was started with `--logprobs-mode
processed_logprobs`. At temperature 1 without top-p the two agree. Otherwise raw ones do not belong to the distribution
that was sampled from, and the answer comes without any, rather than with wrong ones.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal
from urllib.parse import urlsplit

import openai
from pydantic import Field

from kerneldojo.policies.connections import Clients
from kerneldojo.policies.hub import located
from kerneldojo.policies.policy import Request
from kerneldojo.policies.retrying import CallFailed, MalformedReply, RetryConfig, Trouble, require_whole, retrying
from kerneldojo.policies.rows import Row, Sampled
from kerneldojo.schema import Answer, Frozen, Usage


class VllmConfig(Frozen):
    """How a vLLM server is asked."""

    concurrency: int = Field(default=256, ge=1)
    """Requests under way at once; vLLM batches them itself."""
    retry: RetryConfig = RetryConfig()
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """`processed` where the server was started with `--logprobs-mode processed_logprobs`."""
    api_key_env: str = "VLLM_API_KEY"
    """Name of the environment variable that holds the server's key, where it wants one."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer, beside those that the served model's own settings name."""
    tokenizer: str | None = None
    """Folder or hub name of the model's tokenizer: prompts are then rendered as ids here, as in training, and answers
    are carried on as they were sampled. Without it the server makes each prompt's ids from the chat's text."""


class VllmPolicy:
    """Asks a vLLM server."""

    def __init__(self, url: str, model: str | None = None, config: VllmConfig | None = None) -> None:
        """Prepare to ask the server at `url` (with or without `/v1`) for `model`; None for the one that it serves.

        Raises:
            ValueError: The address is malformed.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"a vLLM server's address begins with http:// or https://, not {url!r}")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.config = config or VllmConfig()
        self.version: int | None = None
        """Number of updates of the served weights; a trainer sets it."""
        self._model = model
        self._gives_ids: bool | None = None
        self._key = os.environ.get(self.config.api_key_env, "")
        self._clients = Clients(
            api_key=self._key or "none",
            base_url=f"{self.url}/v1",
            max_retries=0,
            timeout=self.config.retry.timeout,
        )
        self._slots = asyncio.Semaphore(self.config.concurrency)
        self._jitter = random.Random(0)
        self._trouble = Trouble(self.name, self._key)

    @property
    def name(self) -> str:
        """`vllm:HOST` or `vllm:HOST#MODEL`."""
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        return f"vllm:{host}" + (f"#{self._model}" if self._model else "")

    @property
    def gives_ids(self) -> bool:
        """Whether this server really returns ids and log-probabilities: it is asked for one token the first time.

        Raises:
            ConnectionError: The server could not be asked; one line says why.
        """
        if self._gives_ids is None:
            with openai.OpenAI(
                api_key=self._key or "none", base_url=f"{self.url}/v1", max_retries=2, timeout=60
            ) as client:
                try:
                    self._model = self._model or _first_model(client.models.list())
                    reply = client.completions.create(**self._fields(self._model, (0,), 1, 1.0, 1.0, 0))
                    ids, log_probs = _sampled(_choice(reply))
                except (openai.OpenAIError, MalformedReply, ValueError) as error:
                    raise ConnectionError(f"{self.name} cannot be asked: {self._trouble.described(error)}") from error
            self._gives_ids = bool(ids) and log_probs is not None
        return self._gives_ids

    def has_true_log_probs(self, temperature: float, top_p: float) -> bool:
        """Whether log-probabilities are those of the distribution that is sampled from at these settings."""
        return self.config.logprobs_mode == "processed" or (temperature == 1 and top_p == 1)

    async def answer(self, request: Request) -> Answer:
        """Ask, retrying what may pass; a failed answer says why."""
        started = time.monotonic()
        async with self._slots:
            try:
                reply = await retrying(lambda: self._ask(request), self.config.retry, self._jitter, self._trouble)
            except CallFailed as failure:
                usage = Usage(seconds=time.monotonic() - started)
                return Answer(text="", finish="failed", error=str(failure), usage=usage)
        usage = reply.usage.model_copy(update={"seconds": time.monotonic() - started})
        return reply.model_copy(update={"usage": usage})

    async def close(self) -> None:
        """Close the connections."""
        await self._clients.close()

    async def sample(self, row: Row) -> Sampled:
        """What the server samples for a trainer's row, retrying what may pass; `error` says why it sampled nothing."""
        async with self._slots:
            try:
                return await retrying(lambda: self._sample(row), self.config.retry, self._jitter, self._trouble)
            except CallFailed as failure:
                return Sampled((), (), "length", error=str(failure))

    async def _sample(self, row: Row) -> Sampled:
        """One try."""
        choice = await self._complete(row.prompt, row.max_tokens, row.temperature, row.top_p, row.seed)
        ids, log_probs = _sampled(choice)
        if row.temperature == 0 and ids is not None:  # nothing is drawn
            log_probs = (0.0,) * len(ids)
        elif not self.has_true_log_probs(row.temperature, row.top_p):
            raise MalformedReply("log-probabilities are not those of what was sampled from: see logprobs_mode")
        if not ids or log_probs is None:
            raise MalformedReply("the reply has no token ids, or no log-probabilities")
        return Sampled(ids, log_probs, "length" if choice.finish_reason == "length" else "stop")

    async def _complete(
        self, prompt: Sequence[int], max_tokens: int, temperature: float, top_p: float, seed: int
    ) -> Any:
        """The one choice of a whole reply to a prompt of ids."""
        async with asyncio.timeout(self.config.retry.timeout):
            with self._clients.one() as client:
                if self._model is None:
                    self._model = _first_model(await client.models.list())
                fields = self._fields(self._model, prompt, max_tokens, temperature, top_p, seed)
                reply = await client.completions.create(**fields)
        choice = _choice(reply)
        require_whole(choice.finish_reason)
        return choice

    def _fields(
        self, model: str, prompt: Sequence[int], max_tokens: int, temperature: float, top_p: float, seed: int
    ) -> dict[str, Any]:
        """The request's body."""
        neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        ids = {"return_token_ids": True, "return_tokens_as_token_ids": True, "skip_special_tokens": False}
        stops = {"stop_token_ids": list(self.config.stop_token_ids)} if self.config.stop_token_ids else {}
        return {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed % (1 << 31),
            "logprobs": 1,
            "extra_body": {**neutral, **ids, **stops},
        }

    async def _ask(self, request: Request) -> Answer:
        """One try."""
        version = self.version
        prompt = request.prompt_ids or await self._rendered(request)
        choice = await self._complete(prompt, request.max_tokens, request.temperature, request.top_p, request.seed)
        ids, log_probs = _sampled(choice)
        if not self.has_true_log_probs(request.temperature, request.top_p):
            log_probs = None
        return Answer(
            text=choice.text,
            finish="length" if choice.finish_reason == "length" else "stop",
            prompt_ids=tuple(prompt),
            answer_ids=ids,
            log_probs=log_probs if ids is not None else None,
            version=version,
            usage=Usage(prompt_tokens=len(prompt), answer_tokens=len(ids or ())),
        )

    @cached_property
    def tokenizer(self) -> Any:
        """See `policies.policy.tokenizer_of`; None unless the settings name one."""
        if self.config.tokenizer is None:
            return None
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(located(self.config.tokenizer))
        except (OSError, ValueError) as error:
            raise ValueError(f"tokenizer {self.config.tokenizer}: {str(error).splitlines()[0]}") from error

    async def _rendered(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids by the server's own chat template, for a run without a tokenizer."""
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        async with asyncio.timeout(self.config.retry.timeout):
            with self._clients.one() as client:
                if self._model is None:
                    self._model = _first_model(await client.models.list())
                body = {"model": self._model, "messages": messages, "add_generation_prompt": True}
                reply: Any = await client.post(f"{self.url}/tokenize", body=body, cast_to=object)
        ids = reply.get("tokens") if isinstance(reply, dict) else None
        return _ids(ids, "tokens")


def _first_model(page: Any) -> str:
    """Name of the model that the server serves."""
    models = getattr(page, "data", None)
    if not models or not isinstance(getattr(models[0], "id", None), str):
        raise MalformedReply("the server names no model")
    return models[0].id


def _choice(reply: Any) -> Any:
    """The one choice of a reply."""
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list) or not choices or not isinstance(getattr(choices[0], "text", None), str):
        raise MalformedReply("the reply has no text")
    return choices[0]


def _ids(values: Any, field: str) -> tuple[int, ...]:
    """Token ids, checked."""
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise MalformedReply(f"{field} is no list of token ids")
    return tuple(values)


def _sampled(choice: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """Ids of the answer (the end token included) and their log-probabilities; None for what the server does not give.

    Raises:
        MalformedReply: The two do not fit together.
    """
    logprobs = choice.logprobs
    values = getattr(choice, "token_ids", None)
    if values is None:
        tokens = getattr(logprobs, "tokens", None) or []
        names = [token for token in tokens if isinstance(token, str) and token.startswith("token_id:")]
        if not names or len(names) != len(tokens):
            return None, None
        values = [int(name.removeprefix("token_id:")) for name in names]
    ids = _ids(values, "token_ids")
    log_probs = getattr(logprobs, "token_logprobs", None)
    if log_probs is None:
        return ids, None
    if len(log_probs) != len(ids) or not all(map(_is_finite, log_probs)):
        raise MalformedReply(f"{len(ids)} token ids, but log-probabilities that do not fit them")
    return ids, tuple(float(value) for value in log_probs)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
