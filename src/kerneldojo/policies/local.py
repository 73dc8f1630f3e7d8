"""A policy in this process: a Hugging Face model, sampled in batches by a thread of its own.

Episodes ask one answer at a time and know nothing of each other. The thread gathers what comes within a few
milliseconds, and whoever asks while it is sampling joins the running batch as soon as a row is free.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kerneldojo.policies.answers import answer_of
from kerneldojo.policies.hub import located
from kerneldojo.policies.policy import Request
from kerneldojo.policies.sampler import Row, Sampled, Sampler, SamplerConfig, end_ids_of
from kerneldojo.schema import Answer, Frozen


class LocalConfig(Frozen):
    """How a local model is loaded and asked."""

    device: str = "auto"
    """`auto`: the first GPU where there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto`: bfloat16 on a GPU, float32 on a CPU."""
    adapter: str | None = None
    """Folder of a LoRA adapter in peft's format, merged into the weights."""
    window: float = Field(default=0.005, ge=0)
    """Seconds to wait for more requests when the first one comes to an idle model."""
    sampler: SamplerConfig = SamplerConfig()


@dataclass(eq=False)
class _Asked:
    """A request on its way through the thread."""

    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer]
    started: float
    version: int | None = None


class LocalPolicy:
    """Samples from a model in this process, and gives token ids."""

    gives_ids = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "hf",
        config: LocalConfig | None = None,
        end_ids: tuple[int, ...] | None = None,
    ) -> None:
        """Ask `model` (of transformers), which a trainer may update whenever no request is under way.

        Args:
            model: A causal model on its device.
            tokenizer: Of transformers; writes the answer's text, and the prompt's ids where a request has none.
            name: For reports.
            config: Its loading settings have no effect here.
            end_ids: Tokens that end an answer; None for those of the tokenizer and the model's settings.
        """
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.config = config or LocalConfig()
        self.end_ids = end_ids_of(model, tokenizer) if end_ids is None else end_ids
        self.sampler = Sampler(model, self.end_ids, self.config.sampler)
        self.version: int | None = None
        """Number of updates that the model has seen; a trainer sets it, answers carry it."""
        self._waiting: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._round: int | None = None
        self._held: list[_Asked] = []
        self._running: set[_Asked] = set()
        self._closed = False
        self._thread: threading.Thread | None = None

    @classmethod
    def open(cls, path: str, config: LocalConfig | None = None) -> LocalPolicy:
        """Load a checkpoint folder, or a model of the hub by its name; weights from safetensors only, no remote code.

        Raises:
            ValueError: There is no such model, or it cannot be loaded or sampled; one line says why.
        """
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        config = config or LocalConfig()
        device = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
        on_gpu = torch.device(device).type == "cuda"
        dtype = ("bfloat16" if on_gpu else "float32") if config.dtype == "auto" else config.dtype
        try:
            place = located(path)
            tokenizer = AutoTokenizer.from_pretrained(place)
            model: Any = AutoModelForCausalLM.from_pretrained(
                place, dtype=getattr(torch, dtype), attn_implementation="sdpa", use_safetensors=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"cannot load hf:{path}: {' '.join(str(error).split())[:300]}") from error
        if config.adapter is not None:
            model = _merged(model, config.adapter)
        policy = cls(model.to(device), tokenizer, name=f"hf:{Path(path).name}", config=config)
        policy.sampler.check()
        return policy

    async def answer(self, request: Request) -> Answer:
        """Sample one answer, in a batch with whatever else is asked for. A prompt that cannot be fails in one line."""
        try:
            row = self.sampler.row(
                request.prompt_ids or self._rendered(request),
                request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                top_p=request.top_p,
            )
        except ValueError as error:
            return Answer(text="", finish="failed", error=str(error))
        if self._closed:
            return Answer(text="", finish="failed", error="the policy is closed")
        loop = asyncio.get_running_loop()
        asked = _Asked(row, loop, loop.create_future(), time.monotonic())
        row.tag = asked
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        self._waiting.put(asked)
        return await asked.future

    async def close(self) -> None:
        """End the thread, after what is under way, and give the cache's memory back."""
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        self.sampler.release()

    def _rendered(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids by the tokenizer's chat template. Raises ValueError where it has none."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise ValueError(f"{self.name} has no chat template: the run must render its prompts to ids")
        chat = [{"role": message.role, "content": message.content} for message in request.messages]
        text: str = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    # The thread

    def _work(self) -> None:
        """Wait for a request, then sample until nobody asks any more; and again, until closed.

        Between two such rounds the model is at rest: not in the sampler's hands, free to be trained. A new version
        ends a round too: what is under way ends, then new weights are taken over.
        """
        while (first := self._held.pop() if self._held else self._waiting.get()) is not None:
            time.sleep(self.config.window)
            self._held, self._running, self._round = [first], set(), self.version
            try:
                self.sampler.serve(self._take, self._give, expected=[first.row])
            except Exception as error:  # Whatever broke (no memory, a driver) concerns every request under way.
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                self.sampler.release()
                for asked in [*self._running, *self._held]:
                    self._deliver(asked, Answer(text="", finish="failed", error=reason))
                self._held = []

    def _take(self, free: int, idle: bool) -> list[Row] | None:
        """Rows for the sampler: what has been asked for meanwhile. None ends a round in which nothing runs."""
        if self.version != self._round:
            return None if idle else []
        taken: list[_Asked] = []
        while len(taken) < free and (asked := self._next()) is not None:
            if not asked.future.cancelled():
                asked.version = self.version
                taken.append(asked)
        self._running.update(taken)
        if idle and not taken:
            return None
        return [asked.row for asked in taken]

    def _give(self, row: Row, sampled: Sampled) -> None:
        """A finished row from the sampler."""
        self._running.discard(row.tag)
        asked: _Asked = row.tag
        seconds = time.monotonic() - asked.started
        self._deliver(asked, answer_of(row, sampled, self.tokenizer, version=asked.version, seconds=seconds))

    def _next(self) -> _Asked | None:
        """The next request without waiting; the mark that closes is put back for `_work`."""
        if self._held:
            return self._held.pop()
        try:
            asked = self._waiting.get_nowait()
        except queue.Empty:
            return None
        if asked is None:
            self._waiting.put(None)
        return asked

    @staticmethod
    def _deliver(asked: _Asked, answer: Answer) -> None:
        """Hand an answer over to the event loop that waits for it, if it still does."""

        def set_result() -> None:
            if not asked.future.done():
                asked.future.set_result(answer)

        if not asked.loop.is_closed():
            asked.loop.call_soon_threadsafe(set_result)


def _merged(model: Any, adapter: str) -> Any:
    """`model` with a LoRA adapter merged into its weights. Raises ValueError if the folder holds none that fits."""
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"cannot load the adapter {adapter}: {' '.join(str(error).split())[:300]}") from error
