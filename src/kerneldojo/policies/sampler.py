"""Batched sampling from a local model: token ids in; token ids and their log-probabilities out.

Three things make it fast without leaving plain transformers models. Rows have slots of a static cache, each with its
own length (`slots.py`), so that no attention is spent on padding and a row that ends makes room for the next at once.
A prompt is read once, however many samples are asked of it, and never all of its logits are computed: prefill stops
before the last token, which then is the first one that decoding feeds. And decoding stays on the device, as a CUDA
graph where there is one (`decoding.py`).

    sampler = Sampler(model, end_ids=[tokenizer.eos_token_id])
    samples = sampler.generate(prompts, max_tokens=512, temperature=1.0, seeds=range(len(prompts)))
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch

from kerneldojo.policies import agreement
from kerneldojo.policies.attention import grouped
from kerneldojo.policies.decoding import DecodingState, Graphs, Shape, Start
from kerneldojo.policies.layers import compile_decoding
from kerneldojo.policies.rows import Give, Row, Sampled, SamplerConfig, Samples, Take, end_ids_of
from kerneldojo.policies.weights import SamplingCopy

__all__ = ["Give", "Row", "Sampled", "Sampler", "SamplerConfig", "Take", "end_ids_of"]


class Sampler(Samples):
    """Samples from a causal language model of transformers. Not safe for use by several threads at once."""

    def __init__(
        self,
        model: Any,
        end_ids: Sequence[int],
        config: SamplerConfig | None = None,
        top_k: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """Prepare to sample.

        Args:
            model: A causal model of transformers (peft's wrappers included) with full attention in every layer. Its
                weights may change between calls.
            end_ids: Tokens that end an answer; see `end_ids_of`. Empty: every answer has full length.
            config: Sizes.
            top_k: Sample among the likeliest `top_k` tokens only; 0 for all.
            device: Where the copy (`config.dtype`) is, of a model on `meta` that will be sharded; see `SamplingCopy`.

        Raises:
            ValueError: The model cannot be sampled from here; one line says why.
        """
        self.config = config or SamplerConfig()
        low = None if self.config.dtype == "model" else getattr(torch, self.config.dtype)
        self._copy = None if low is None else SamplingCopy(model, low, device)
        self.model = model if self._copy is None else self._copy.model
        self.end_ids = tuple(sorted(set(end_ids)))
        self.top_k = top_k
        self._check_model()
        self._on_gpu = self._device.type == "cuda"
        self._is_compiled = self.config.compile and self._on_gpu and self._copy is not None
        if self._is_compiled:
            compile_decoding(self.model)
        self._look_every = self.config.look_every or (8 if self._on_gpu else 1)
        self._prefill_tokens = self.config.prefill_tokens or (16384 if self._on_gpu else 4096)
        self._state: DecodingState | None = None
        self._graphs: Graphs | None = None
        self._rows: list[Row | None] = []

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _check_model(self) -> None:
        config = self.model.config
        if config._attn_implementation not in ("sdpa", "eager"):
            raise ValueError(f"the sampler needs sdpa or eager attention, not {config._attn_implementation}")
        others = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        if others:
            raise ValueError(f"the sampler needs full attention in every layer; this model has {', '.join(others)}")

    def check(self) -> None:
        """Try the model out. Where its copy has weights of many ranks, every rank must call this.

        Raises:
            ValueError: what would be sampled is not what the model says, in one line.
        """
        stance = torch.compiler.set_stance("force_eager") if self._is_compiled else nullcontext()
        name = self.model.config.model_type
        with self._evaluating(), stance:
            try:
                off = agreement.disagreement(self.model)
            except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
                raise ValueError(f"the sampler cannot decode {name}: {' '.join(str(error).split())[:200]}") from error
        if off > agreement.MOST:  # Not if there are no numbers: that is told of answers, and can come at any time.
            raise ValueError(f"the sampler's logits are not the model's own for {name}: they are off by {off:.0%}")

    @property
    def positions(self) -> int | None:
        """See `rows.Samples`."""
        return getattr(self.model.config, "max_position_embeddings", None)

    @torch.inference_mode()
    def serve(self, take: Take, give: Give, expected: Sequence[Row] = ()) -> None:
        """Sample rows as they come, until `take` returns None and all have ended. `expected` sizes the memory."""
        with self._evaluating():
            self._open(expected)
            state, closed = self._state, False
            assert state is not None
            while True:
                free = self._capacity() - self._num_running()
                if not closed and free > 0:
                    rows = take(free, free == self._capacity())
                    closed = rows is None
                    if rows:
                        self._admit(state, rows)
                if not self._num_running():
                    if closed:
                        return
                    continue
                self._advance(state)
                for row, sampled in self._harvest(state):
                    give(row, sampled)

    @contextmanager
    def _evaluating(self) -> Generator[None]:
        was_training = self.model.training
        self.model.eval()
        low = None if self._copy is None else self._copy.dtype
        try:
            if self._copy is not None:
                self._copy.refresh()
            # Without autocast's cache: it would outlive a step, and a recorded step cannot refer to it.
            on_device = torch.cuda.device(self._device) if self._on_gpu else nullcontext()
            autocast = torch.autocast(self._device.type, low, enabled=low is not None, cache_enabled=False)
            with on_device, autocast, grouped(self.model.config):
                yield
        finally:
            self.model.train(was_training)

    # Memory

    def _open(self, expected: Sequence[Row]) -> None:
        """Start with no row running and memory for those expected."""
        self._rows = []
        if self._state is not None and self._state.device != self._device:
            self._state = self._graphs = None
        length = max((len(row.prompt) + row.max_tokens - 1 for row in expected), default=1)
        num_tokens = max((row.max_tokens for row in expected), default=1)
        bound, state = self.config.max_cache_tokens, self._state
        if bound is not None and state is not None and state.num_slots * max(length, state.cache.length) > bound:
            self.release()  # Nothing runs: fewer and longer slots may be made, which growing never does.
        self._length_bound = max(length, 0 if self._state is None else self._state.cache.length)
        self._ensure(min(len(expected), self._capacity()) or 1, length, num_tokens)
        if self._graphs is not None:
            self._graphs.check()

    def _capacity(self) -> int:
        """Rows that may run at once."""
        rows = self.config.max_rows
        if self.config.max_cache_tokens is not None:
            rows = min(rows, max(1, self.config.max_cache_tokens // max(1, self._length_bound)))
        return rows

    def _ensure(self, num_slots: int, length: int, num_tokens: int) -> None:
        """Have memory for so many slots, tokens in all and sampled tokens, rounded up so that it seldom grows."""
        num_slots = _rounded(num_slots) if self._on_gpu else num_slots
        length, num_tokens = -(-length // 64) * 64, -(-num_tokens // 64) * 64
        state = self._state
        if state is None:
            layers = self.model.config.num_hidden_layers
            self._state = DecodingState(self.model, self.end_ids, layers, num_slots, length, num_tokens)
            if self._is_compiled:
                self._state.sample = torch.compile(self._state.sample)
            if self._on_gpu and self.config.cuda_graphs:
                self._graphs = Graphs(self._state)
        elif num_slots > state.num_slots or length > state.cache.length or num_tokens > state.num_tokens:
            if self._graphs is not None:
                self._graphs.clear()
            self._length_bound = max(self._length_bound, length)
            if num_slots > state.num_slots:  # By doubling: everything is copied each time.
                num_slots = max(num_slots, min(2 * state.num_slots, self._capacity()))
            state.grow(num_slots, length, num_tokens)
        assert self._state is not None
        self._length_bound = max(self._length_bound, self._state.cache.length)
        self._rows.extend([None] * (self._state.num_slots - len(self._rows)))

    def release(self) -> None:
        """Give the cache's memory back; the next call allocates it again."""
        self._state = self._graphs = None
        self._rows = []

    # Prompts

    def _admit(self, state: DecodingState, rows: Sequence[Row]) -> None:
        """Read the prompts of `rows` into free slots, equal ones once, in batches of similar length."""
        length = max(len(row.prompt) + row.max_tokens - 1 for row in rows)
        self._ensure(self._num_running() + len(rows), length, max(row.max_tokens for row in rows))
        free = (slot for slot, row in enumerate(self._rows) if row is None)
        by_prompt: dict[tuple[int, ...], list[Start]] = {}
        for slot, row in zip(list(free), rows, strict=False):
            self._rows[slot] = row
            last = len(row.prompt) - 1
            start = Start(slot, row.prompt[last], last, row.max_tokens, row.temperature, row.top_p, row.seed)
            by_prompt.setdefault(row.prompt, []).append(start)
        batch: list[tuple[int, ...]] = []
        for prompt in sorted(by_prompt, key=len, reverse=True):
            if batch and len(batch[0]) * (len(batch) + 1) > self._prefill_tokens:
                self._prefill(state, batch, by_prompt)
                batch = []
            batch.append(prompt)
        self._prefill(state, batch, by_prompt)
        state.begin([start for starts in by_prompt.values() for start in starts])

    def _prefill(
        self, state: DecodingState, prompts: Sequence[tuple[int, ...]], starts: dict[tuple[int, ...], list[Start]]
    ) -> None:
        """Write keys and values of all but the last token of each prompt; padded at the end, where none looks."""
        width = max(len(prompt) for prompt in prompts) - 1
        if width == 0:
            return
        padded = [list(prompt[:-1]) + [0] * (width - len(prompt) + 1) for prompt in prompts]
        pairs = [(source, start.slot) for source, prompt in enumerate(prompts) for start in starts[prompt]]
        sources = torch.tensor([source for source, _ in pairs], device=state.device)
        targets = torch.tensor([slot for _, slot in pairs], device=state.device)
        state.cache.prefill(targets, None if len(pairs) == len(prompts) else sources)
        ids = torch.tensor(padded, device=state.device)
        self.model(input_ids=ids, logits_to_keep=1, **state.cached)

    # Answers

    def _num_running(self) -> int:
        return sum(row is not None for row in self._rows)

    def _advance(self, state: DecodingState) -> None:
        """Some steps, as many as may pass before the host looks again."""
        self._compact(state)
        running = [row for row in self._rows if row is not None]
        used = max(slot for slot, row in enumerate(self._rows) if row is not None) + 1
        num_steps = min(self._look_every, min(row.max_tokens - row.count for row in running))
        for _ in range(num_steps):
            length = max(len(row.prompt) + row.count for row in running)
            shape = Shape(
                num_rows=min(_rounded(used), state.num_slots) if self._graphs else used,
                length=min(_rounded(length, 128), state.cache.length) if self._graphs else length,
                draws=any(row.temperature > 0 for row in running),
                chooses=any(row.temperature == 0 for row in running),
                truncates=any(row.top_p < 1 for row in running),
                top_k=self.top_k,
            )
            (self._graphs or state).step(shape)
            for row in running:
                row.count += 1

    def _compact(self, state: DecodingState) -> None:
        """Move the last rows into holes, where that makes the next step smaller."""
        used = [slot for slot, row in enumerate(self._rows) if row is not None]
        size = len(used)
        if self._graphs and _rounded(size) == _rounded(used[-1] + 1):
            return
        sources = [slot for slot in used if slot >= size]
        targets = [slot for slot in range(size) if self._rows[slot] is None]
        if not sources:
            return
        rows = [row for row in self._rows if row is not None]
        state.move(sources, targets, max(len(row.prompt) + row.count for row in rows))
        for source, target in zip(sources, targets, strict=True):
            self._rows[target], self._rows[source] = self._rows[source], None

    def _harvest(self, state: DecodingState) -> list[tuple[Row, Sampled]]:
        """Rows that have ended leave."""
        ended = state.ended.tolist()
        done = [
            (slot, row)
            for slot, row in enumerate(self._rows)
            if row is not None and (ended[slot] or row.count >= row.max_tokens)
        ]
        if not done:
            return []
        all_ids, all_log_probs = state.read([slot for slot, _ in done], max(row.count for _, row in done))
        finished: list[tuple[Row, Sampled]] = []
        for (slot, row), ids, log_probs in zip(done, all_ids, all_log_probs, strict=True):
            self._rows[slot] = None
            end = next((i for i, token in enumerate(ids[: row.count]) if token in self.end_ids), None)
            size = row.count if end is None else end + 1
            finish: Literal["stop", "length"] = "length" if end is None else "stop"
            finished.append((row, Sampled(tuple(ids[:size]), tuple(log_probs[:size]), finish)))
        return finished


def _rounded(size: int, smallest: int = 1) -> int:
    """`size` rounded up to one of few sizes (steps of an eighth, at least `smallest`), so that graphs are reused."""
    step = max(smallest, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step
