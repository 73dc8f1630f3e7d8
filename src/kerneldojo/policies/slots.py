"""The key-value cache of the sampler: one static block of memory, cut into slots, one slot for each running row.

The caches that come with transformers hold one batch whose rows all have the same number of tokens; rows of different
length are padded on the left, and a row that has ended stays. Here every row has its own length and its own slot, so a
row can leave, another can take its place, and no token is ever padding that attention has to look at. Memory is
allocated once and written in place, which is what CUDA graphs need.

A call of the model is announced first, `prefill` or `decode`; the layers then know where to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


def cache_name(model: Any) -> str:
    """What `model` calls the cache that it is given: `cache`, or `past_key_values` before transformers 5.24."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # with adapters it takes anything
    return "cache" if "cache" in signature(inner.forward).parameters else "past_key_values"


@dataclass
class Call:
    """What the next call of the model is; shared by all layers."""

    targets: torch.Tensor | None = None
    """Prefill: slots to write, one for each row that will run; shape (R,)."""
    sources: torch.Tensor | None = None
    """Prefill: for each target the row of the batch that it is a copy of; shape (R,). None for one to one."""
    num_rows: int = 0
    """Decode: the rows are slots 0 to `num_rows` - 1."""
    length: int = 0
    """Decode: how far attention looks."""
    positions: torch.Tensor | None = None
    """Decode: where each row's new token goes; shape (num_rows,)."""
    rows: torch.Tensor | None = None
    """Decode: 0 to `num_rows` - 1 as a tensor."""


def _write_tokens(
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
) -> None:
    """Write one token's keys and values, (rows, heads, head size) each, at each row's position."""
    keys[rows, :, positions] = new_keys
    values[rows, :, positions] = new_values


# As an operator of its own a compiled layer writes in place: its compiler does not look inside, and copies nothing.
write_tokens: Any = torch.library.custom_op(
    "kerneldojo::write_tokens",
    _write_tokens,
    mutates_args=("keys", "values"),
    schema="(Tensor(a!) keys, Tensor(b!) values, Tensor rows, Tensor positions, Tensor new_keys, Tensor new_values)"
    " -> ()",
)


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, each of shape (slots, heads, length, head size)."""

    is_compileable = True
    is_sliding = False

    def __init__(self, call: Call, num_slots: int, length: int) -> None:
        super().__init__()
        self.call = call
        self.num_slots = num_slots
        self.length = length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate. Zeros, not rubbish: attention multiplies what it masks by 0, and 0 times NaN is NaN."""
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        shape = (self.num_slots, states.shape[1], self.length, states.shape[3])
        kind = states.device.type
        # Attention would cast under autocast: cast once, when a token comes, rather than all of them at every step.
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
        return torch.zeros(shape, dtype=dtype, device=states.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states, of shape (batch, heads, tokens, head size); return what attention shall look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        call = self.call
        key_states, value_states = key_states.to(self.keys.dtype), value_states.to(self.values.dtype)
        if call.targets is not None:
            length = key_states.shape[2]
            self.keys[call.targets, :, :length] = key_states if call.sources is None else key_states[call.sources]
            self.values[call.targets, :, :length] = value_states if call.sources is None else value_states[call.sources]
            return key_states, value_states
        assert call.rows is not None and call.positions is not None
        write = write_tokens if torch.compiler.is_compiling() else _write_tokens
        write(self.keys, self.values, call.rows, call.positions, key_states[:, :, 0], value_states[:, :, 0])
        return self.keys[: call.num_rows, :, : call.length], self.values[: call.num_rows, :, : call.length]

    def get_mask_sizes(self, query_length: int | torch.Tensor) -> tuple[int, int]:
        """A prefill sees itself alone, from 0; in decode the sampler gives the mask. (Version 4 gives positions.)"""
        return (query_length if isinstance(query_length, int) else len(query_length)), 0

    def get_seq_length(self) -> int:
        """Always 0: positions are given by the sampler, row by row."""
        return 0

    def get_max_length(self) -> int:
        """Longest row."""
        return self.length

    def get_max_cache_shape(self) -> int:
        """The same, as earlier versions of transformers call it."""
        return self.length

    def move(self, sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        """Copy the first `length` tokens of slots `sources` to slots `targets`; the two do not overlap."""
        if self.keys is not None and self.values is not None:
            self.keys[targets, :, :length] = self.keys[sources, :, :length]
            self.values[targets, :, :length] = self.values[sources, :, :length]

    def grow(self, num_slots: int, length: int) -> None:
        """Make room for more slots or longer rows; what is stored stays."""
        keys, values = self.keys, self.values
        old_slots, old_length = self.num_slots, self.length
        self.num_slots, self.length = num_slots, length
        if keys is not None and values is not None:
            self.keys, self.values = self._allocate(keys), self._allocate(values)
            self.keys[:old_slots, :, :old_length] = keys
            self.values[:old_slots, :, :old_length] = values


class LayerSlots:
    """The slots of one layer as that layer sees them in a decoding step: a cache that needs no number of a layer.

    A compiled layer that is given this is the same program as all others; the number would be a constant of it.
    """

    def __init__(self, layer: SlotLayer) -> None:
        self.layer = layer

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SlotLayer.update`."""
        return self.layer.update(key_states, value_states)


class SlotCache(Cache):
    """One `SlotLayer` for each layer of the model."""

    def __init__(self, num_layers: int, num_slots: int, length: int) -> None:
        self.call = Call()
        self.slot_layers = [SlotLayer(self.call, num_slots, length) for _ in range(num_layers)]
        self.views = [LayerSlots(layer) for layer in self.slot_layers]
        self.num_slots = num_slots
        self.length = length
        super().__init__(layers=list(self.slot_layers))

    def prefill(self, targets: torch.Tensor, sources: torch.Tensor | None) -> None:
        """The next call of the model writes whole prompts, from position 0, into the slots `targets`."""
        self.call.targets, self.call.sources = targets, sources

    def decode(self, num_rows: int, length: int, positions: torch.Tensor) -> None:
        """The next call of the model writes one token into each of the first `num_rows` slots, at `positions`."""
        self.call.targets = self.call.sources = None
        self.call.num_rows, self.call.length, self.call.positions = num_rows, length, positions
        self.call.rows = torch.arange(num_rows, device=positions.device)

    @property
    def is_decoding(self) -> bool:
        """Whether the next call of the model is a decoding step, and memory is there for it."""
        return self.call.targets is None and all(layer.is_initialized for layer in self.slot_layers)

    def move(self, sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        """Copy the first `length` tokens of slots `sources` to slots `targets`, in every layer."""
        for layer in self.slot_layers:
            layer.move(sources, targets, length)

    def grow(self, num_slots: int, length: int) -> None:
        """Make room for at least `num_slots` slots of at least `length` tokens; what is stored stays."""
        self.num_slots, self.length = max(self.num_slots, num_slots), max(self.length, length)
        for layer in self.slot_layers:
            layer.grow(self.num_slots, self.length)
