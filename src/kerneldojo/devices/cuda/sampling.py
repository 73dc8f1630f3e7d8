"""Secret samples of a window's outputs: which bytes are read, drawn before the window, and what was read of them.

Reading costs the same whatever the length of the window and the size of the outputs, and the contestant cannot know
where: each of its calls has to be right everywhere. Places that correspond to where the inputs were changed last are
among them, for there an output that was computed too early is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kerneldojo.devices.cuda import draws
from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.inputs import Layout

BLOCK_BYTES = 256
NUM_BLOCKS = 512
"""Blocks in a sample, whatever the outputs' size. All are compared, window by window: of outputs of which a part is
wrong, one in a hundred, a single window shows it with 99 %."""
NUM_NEAR = 128
"""Of these, blocks at places that correspond to those where the inputs were changed last."""


@dataclass(frozen=True)
class Plan:
    """Which bytes of which outputs are sampled; drawn before the window, known to nobody else."""

    calls: Integers
    tensors: Integers
    starts: Integers
    """Byte within the output's memory at which a block begins."""


@dataclass(frozen=True)
class Sample:
    """What was read of a window's outputs. `blocks` is the judge's own memory."""

    plan: Plan
    blocks: torch.Tensor
    """(NUM_BLOCKS, BLOCK_BYTES) uint8."""
    layouts: tuple[Layout, ...]

    def read(self, tensor: int, call: int | None = None) -> torch.Tensor:
        """What was read of one output, of one call or of all, flat, block by block in the plan's order."""
        layout = self.layouts[tensor]
        item = layout.dtype.itemsize
        rows = self._rows(tensor, call)
        is_all = len(rows) == len(self.blocks)  # Then nothing is sent to a device that others share.
        chosen = self.blocks if is_all else self.blocks[torch.from_numpy(rows).to(self.blocks.device)]
        return chosen[:, : self._per_block(layout) * item].contiguous().view(layout.dtype).reshape(-1)

    def values(self, call: int, tensor: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What was read of one output: logical indices into its flattened form, and values; equal lengths.

        Order of the flattened form is that of `tensor.reshape(-1)`, whatever the strides.
        """
        layout = self.layouts[tensor]
        starts = self.plan.starts[self._rows(tensor, call)]
        positions = starts[:, None] // layout.dtype.itemsize + np.arange(self._per_block(layout))[None]
        values = self.read(tensor, call)
        indices = logical_indices(positions.reshape(-1), layout)
        return torch.from_numpy(indices).to(values.device), values

    def _rows(self, tensor: int, call: int | None) -> Integers:
        is_meant = self.plan.tensors == tensor
        return np.flatnonzero(is_meant if call is None else is_meant & (self.plan.calls == call))

    @staticmethod
    def _per_block(layout: Layout) -> int:
        return min(BLOCK_BYTES, layout.num_bytes) // layout.dtype.itemsize

    def has(self, call: int, tensor: int) -> bool:
        """Whether something was read of one output."""
        return bool(len(self._rows(tensor, call)))


def draw_plan(length: int, layouts: Sequence[Layout], near: Integers | None = None) -> Plan:
    """Choose secretly which blocks of the outputs of `length` calls are sampled: some of each output.

    Args:
        length: calls.
        layouts: of a call's outputs.
        near: where inputs were changed last, as `Stamp.places` has it. Outputs are read at the same part of their
            length: the very elements where they lie as the input does, the same rows where they have as many.
    """
    sizes = np.array([layout.num_bytes for layout in layouts], dtype=np.int64)
    items = np.array([layout.dtype.itemsize for layout in layouts], dtype=np.int64)
    rooms = np.maximum(sizes - BLOCK_BYTES, 0) // items
    pairs = length * len(layouts)
    num_near = NUM_NEAR if near is not None and len(near) else 0
    # Each output once in turn, the rest by size, so that a small second output is not overlooked.
    turns = min(pairs, NUM_BLOCKS // 2)
    rest = NUM_BLOCKS - turns - num_near
    first = draws.order(pairs)[:turns]
    by_size = np.cumsum(sizes + 1)
    calls = np.concatenate([first // len(layouts), draws.below(length, rest)])
    tensors = np.concatenate(
        [first % len(layouts), np.searchsorted(by_size, draws.below(int(by_size[-1]), rest), side="right")]
    )
    room = rooms[tensors]
    starts = draws.below(room + 1, len(room))
    # A tenth at the end of its output: what was left undone is often there.
    starts = np.where(draws.uniforms(len(room)) < 0.1, room, starts)
    if near is not None and num_near:
        chosen = near[np.resize(draws.order(len(near)), num_near)]
        beside = draws.below(len(layouts), num_near)
        there = np.minimum(scaled(chosen[:, 1], (sizes // items)[beside], chosen[:, 2]), rooms[beside])
        calls, tensors, starts = (
            np.concatenate(both) for both in ((calls, chosen[:, 0]), (tensors, beside), (starts, there))
        )
    return Plan(calls, tensors, starts * items[tensors])


def scaled(parts: Integers, wholes: Integers, of: Integers) -> Integers:
    """Where `parts` of `of` are in `wholes`: `parts * wholes // of`, exactly, for bytes and elements of any tensor.

    The product of two such numbers may have more than 64 bits: of 6 GiB in float32, for one.
    """
    if int(parts.max(initial=0)) * int(wholes.max(initial=0)) < 1 << 63:
        return parts * wholes // of
    triples = zip(parts.tolist(), wholes.tolist(), of.tolist(), strict=True)
    return np.array([part * whole // length for part, whole, length in triples], dtype=np.int64)


def logical_indices(positions: Integers, layout: Layout) -> Integers:
    """Where elements at `positions` of a dense tensor's memory are in `tensor.reshape(-1)`."""
    remaining = positions.copy()
    result = np.zeros_like(positions)
    factors = np.cumprod([1, *reversed(layout.shape[1:])])[::-1] if layout.shape else np.ones(0, dtype=np.int64)
    order = sorted(range(len(layout.shape)), key=lambda axis: -layout.stride[axis])
    for axis in order:
        if layout.shape[axis] == 1:
            continue
        index = remaining // layout.stride[axis]
        remaining -= index * layout.stride[axis]
        result += index * int(factors[axis])
    return result
