"""A vLLM server that samples for a trainer: it is given the trainer's weights, and asked with token ids.

Weights travel through a folder that trainer and server both see: the trainer writes a checkpoint, the server loads it
in place (`reload_weights`) and forgets what it had cached of prompts. That works for any number of its GPUs, on other
machines, and beside the trainer on one GPU (a server that was started with a share of its memory). The two are
different programs, and round differently: `mismatch` in `metrics.jsonl` says how much, and MRS is made for it.

A server that is started anew in the middle of a run has the weights that it was started with, until the next update.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openai

from kerneldojo.policies.rows import Give, Row, Sampled, SamplerConfig, Samples, ServedConfig, Take
from kerneldojo.policies.vllm import VllmConfig, VllmPolicy

LOOK_SECONDS = 0.5
"""How often whoever wants to stop is asked, while nothing ends."""
RETRY_SECONDS = 5.0
"""Between two tries to hand weights over."""
LOAD_SECONDS = 1800.0
"""Longest time that loading weights may take."""


class ServedSampler(Samples):
    """Samples by a vLLM server. See `rows.Samples`."""

    def __init__(self, config: ServedConfig, weights: Path, end_ids: Sequence[int], positions: int | None) -> None:
        """Prepare to ask; nothing is sent yet.

        Args:
            config: where the server is.
            weights: folder through which weights travel; made where it is missing.
            end_ids: tokens that end an answer.
            positions: of the model; None for no bound.

        Raises:
            ValueError: the address is malformed.
        """
        self.config = SamplerConfig(max_rows=config.concurrency, refill=0.0)
        self.served, self._weights, self._positions = config, weights.absolute(), positions
        self._settings = VllmConfig(
            concurrency=config.concurrency,
            logprobs_mode=config.logprobs_mode,
            api_key_env=config.api_key_env,
            stop_token_ids=tuple(end_ids),
        )
        self._policy()  # refuses an address that is none
        self._num_published = 0
        self.was_lost = False
        """Whether it has failed to answer since it was last given weights."""

    def _policy(self) -> VllmPolicy:
        """Connections belong to one event loop, and so to one call of `serve`."""
        return VllmPolicy(self.served.url, config=self._settings)

    @property
    def positions(self) -> int | None:
        """See `rows.Samples`."""
        return self._positions

    def check(self) -> None:
        """See that the server gives ids and log-probabilities.

        Raises:
            ValueError: it does not, or does not answer, in one line.
        """
        try:
            if self._policy().gives_ids:
                return
        except ConnectionError as error:
            raise ValueError(str(error)) from error
        raise ValueError(f"the server at {self.served.url} gives no token ids with log-probabilities")

    def serve(self, take: Take, give: Give, expected: Sequence[Row] = ()) -> None:
        """See `rows.Samples`. What the server could not sample has an `error`."""
        asyncio.run(self._serve(take, give))

    async def _serve(self, take: Take, give: Give) -> None:
        policy, closed = self._policy(), False
        running: dict[asyncio.Task[Sampled], Row] = {}
        try:
            while not closed or running:
                free = self.config.max_rows - len(running)
                if not closed and free > 0:
                    rows = take(free, not running)
                    closed = rows is None
                    running |= {asyncio.create_task(policy.sample(row)): row for row in rows or ()}
                if running:
                    ended, _ = await asyncio.wait(running, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        sampled = task.result()
                        self.was_lost |= bool(sampled.error)
                        give(running.pop(task), sampled)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await policy.close()

    def publish(self, save: Callable[[Path], object]) -> None:
        """Have the server sample with the weights that `save` writes into a folder.

        Raises:
            ConnectionError: it does not take them, for longer than one has patience; one line says why.
        """
        folder = self._weights / f"{self._num_published:06d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        save(folder)
        until = time.monotonic() + self.served.patience_s
        while (wrong := self._hand_over(folder)) is not None:
            if isinstance(wrong, openai.NotFoundError):
                raise ConnectionError(f"{self.served.url} takes no weights: start vLLM with VLLM_SERVER_DEV_MODE=1")
            if time.monotonic() > until:
                reason = " ".join(str(wrong).split())[:200]
                raise ConnectionError(f"{self.served.url} does not take the weights: {reason}")
            time.sleep(RETRY_SECONDS)
        self._num_published += 1
        self.was_lost = False
        for other in self._weights.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def _hand_over(self, folder: Path) -> openai.OpenAIError | None:
        """Have the weights in `folder` loaded, and forget what was computed with others; what went wrong."""
        key = os.environ.get(self.served.api_key_env) or "none"
        base = self.served.url.rstrip("/").removesuffix("/v1")
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}, "timeout": LOAD_SECONDS}
        try:
            with openai.OpenAI(api_key=key, base_url=base, max_retries=0, timeout=LOAD_SECONDS) as client:
                client.post("/collective_rpc", body=body, cast_to=object)
                told: Any = client.post("/reset_prefix_cache", cast_to=object)
        except openai.OpenAIError as error:
            return error
        if isinstance(told, dict) and told.get("success") is False:
            return openai.OpenAIError("it still holds what it cached of prompts")
        return None
