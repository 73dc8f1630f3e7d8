"""One step of decoding: a token into every running row, the next one out, all of it on the device.

The state of all rows lives in tensors of fixed address, and a step reads and writes nothing else: no number travels to
the host, so a step can be recorded as a CUDA graph and replayed, and the host looks only now and then who has ended.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kerneldojo.policies.sampling import sample, uniforms
from kerneldojo.policies.slots import SlotCache, cache_name


@dataclass(frozen=True)
class Shape:
    """What must be known beforehand to run a step: its sizes and which kinds of sampling are among its rows."""

    num_rows: int
    length: int
    draws: bool
    """Whether any row has a temperature above 0."""
    chooses: bool
    """Whether any has temperature 0."""
    truncates: bool
    """Whether any row has `top_p` below 1."""
    top_k: int


@dataclass(frozen=True)
class Start:
    """A row that begins: its slot, its last prompt token and how to sample it."""

    slot: int
    token: int
    position: int
    """Index of that token in the prompt."""
    max_tokens: int
    temperature: float
    top_p: float
    seed: int


class DecodingState:
    """Tensors of every slot: the cache, the token to feed next, and what was sampled so far."""

    def __init__(
        self, model: Any, end_ids: Sequence[int], num_layers: int, num_slots: int, length: int, num_tokens: int
    ):
        """Allocate for `num_slots` rows of `length` tokens in all, of which up to `num_tokens` are sampled."""
        self.model = model
        self.sample: Any = sample
        """Or the same, compiled."""
        self.device = next(model.parameters()).device
        self.is_eager = model.config._attn_implementation == "eager"
        self.end_ids = torch.tensor(list(end_ids), dtype=torch.int64, device=self.device)
        self.cache = SlotCache(num_layers, num_slots, length)
        self.cached: dict[str, Any] = {cache_name(model): self.cache, "use_cache": True}
        """What each call of the model is given."""
        self.num_slots, self.num_tokens = num_slots, num_tokens
        self.allocate()

    def allocate(self) -> None:
        """Fresh tensors of the present sizes. One column more than needed takes what rows write after their end."""

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        slots, columns = self.num_slots, self.num_tokens + 1
        self.tokens, self.positions, self.counts = (zeros(slots, dtype=torch.int64) for _ in range(3))
        self.ended = zeros(slots, dtype=torch.bool)
        self.temperature, self.top_p = (zeros(slots, dtype=torch.float32) for _ in range(2))
        self.draws = zeros(slots, columns, dtype=torch.float64)
        self.ids = zeros(slots, columns, dtype=torch.int64)
        self.log_probs = zeros(slots, columns, dtype=torch.float32)

    def grow(self, num_slots: int, length: int, num_tokens: int) -> None:
        """Make room for more; rows that run go on. Every address changes."""
        names = ("tokens", "positions", "counts", "ended", "temperature", "top_p", "draws", "ids", "log_probs")
        old = {name: getattr(self, name) for name in names}
        self.num_slots, self.num_tokens = max(self.num_slots, num_slots), max(self.num_tokens, num_tokens)
        self.allocate()
        for name, tensor in old.items():
            getattr(self, name)[tuple(slice(size) for size in tensor.shape)] = tensor
        self.cache.grow(self.num_slots, length)

    def begin(self, starts: Sequence[Start]) -> None:
        """Set up the slots of rows whose prompts, but for the last token, are in the cache."""
        slots = self._tensor([start.slot for start in starts])
        self.tokens[slots] = self._tensor([start.token for start in starts])
        self.positions[slots] = self._tensor([start.position for start in starts])
        self.counts[slots] = 0
        self.ended[slots] = False
        self.temperature[slots] = self._tensor([start.temperature for start in starts], torch.float32)
        self.top_p[slots] = self._tensor([start.top_p for start in starts], torch.float32)
        width = max(start.max_tokens for start in starts)
        draws = np.stack([uniforms(start.seed, width) for start in starts])
        self.draws[slots, :width] = torch.from_numpy(draws).to(self.device)

    def _tensor(self, values: Sequence[float], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(self.device, non_blocking=True)

    def step(self, shape: Shape) -> None:
        """Feed each of the first `num_rows` slots its token, sample the next; the whole of the decoding loop's body."""
        n = shape.num_rows
        rows = torch.arange(n, device=self.device)
        columns = self.counts[:n].clamp(max=self.num_tokens)
        logits = self.logits(n, shape.length)
        tokens, log_probs = self._choose(logits, shape, self.draws[rows, columns])
        self.ids[rows, columns] = tokens
        self.log_probs[rows, columns] = log_probs
        self.ended[:n] |= (tokens[:, None] == self.end_ids).any(-1)
        self.tokens[:n] = tokens
        self.positions[:n] += 1
        self.counts[:n] += 1

    def logits(self, num_rows: int, length: int) -> torch.Tensor:
        """(num_rows, vocabulary): of the token that follows the one that each of the first slots is fed."""
        # Rows that have ended run on until the host looks: they stay within their own slot.
        positions = self.positions[:num_rows].clamp(max=self.cache.length - 1)
        # As what is added to scores: SDPA would make this of a mask of bools in every layer.
        dtype = self._mask_dtype()
        hidden = torch.finfo(dtype).min if self.is_eager else -torch.inf
        seen = torch.arange(length, device=self.device) <= positions[:, None]
        mask = torch.where(seen, 0.0, hidden).to(dtype)
        self.cache.decode(num_rows, length, positions)
        output = self.model(
            input_ids=self.tokens[:num_rows, None],
            position_ids=positions[:, None],
            attention_mask=mask[:, None, None, :],
            logits_to_keep=1,
            **self.cached,
        )
        return output.logits[:, -1]

    def _mask_dtype(self) -> torch.dtype:
        """That of keys and queries; `eager` adds the mask to scores of the weights' dtype."""
        kind = self.device.type
        if torch.is_autocast_enabled(kind) and not self.is_eager:
            return torch.get_autocast_dtype(kind)
        return next(self.model.parameters()).dtype

    def _choose(self, logits: torch.Tensor, shape: Shape, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Next token of each row and its log-probability; the greedy choice is certain, so its log-probability is 0."""
        if not shape.draws:
            greedy = logits.argmax(-1)
            return greedy, torch.zeros_like(greedy, dtype=torch.float32)
        temperature = self.temperature[: shape.num_rows]
        top_p = self.top_p[: shape.num_rows] if shape.truncates else None
        sampled, log_probs = self.sample(logits, temperature, top_p, shape.top_k, draws)
        if not shape.chooses:
            return sampled, log_probs
        is_random = temperature > 0
        return torch.where(is_random, sampled, logits.argmax(-1)), torch.where(is_random, log_probs, 0.0)

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Move rows to other slots."""
        source, target = self._tensor(sources), self._tensor(targets)
        self.cache.move(source, target, length)
        for tensor in (self.tokens, self.positions, self.counts, self.ended, self.temperature, self.top_p):
            tensor[target] = tensor[source]
        for tensor in (self.draws, self.ids, self.log_probs):
            tensor[target] = tensor[source]

    def read(self, slots: Sequence[int], count: int) -> tuple[list[list[int]], list[list[float]]]:
        """The first `count` sampled ids and log-probabilities of each slot, on the host."""
        index = self._tensor(slots)
        return self.ids[index, :count].tolist(), self.log_probs[index, :count].tolist()


class Graphs:
    """Steps recorded as CUDA graphs, by shape: replaying one costs a single launch instead of thousands."""

    def __init__(self, state: DecodingState) -> None:
        self.state = state
        self.graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self.stream: Any = torch.cuda.Stream(state.device)
        self.addresses: tuple[int, ...] = ()

    def check(self) -> None:
        """Forget all graphs if a weight has moved: they read it at its old address."""
        addresses = tuple(parameter.data_ptr() for parameter in self.state.model.parameters())
        if addresses != self.addresses:
            self.clear()
            self.addresses = addresses

    def clear(self) -> None:
        """Forget all graphs."""
        self.graphs.clear()
        gc.collect()

    def step(self, shape: Shape) -> None:
        """One step: replayed if such a step was recorded, else run, and recorded for the next time."""
        graph = self.graphs.get(shape)
        if graph is not None:
            graph.replay()
            return
        # The step itself serves as the warm-up that a capture needs, on the stream that captures.
        self.stream.wait_stream(torch.cuda.current_stream(self.state.device))
        with torch.cuda.stream(self.stream):
            self.state.step(shape)
        torch.cuda.current_stream(self.state.device).wait_stream(self.stream)
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
            self.state.step(shape)
        self.graphs[shape] = graph
