"""How many bytes of its inputs a problem cannot do without.

The physical limit of a problem counts only what must be read, and must never accuse an honest kernel: so a byte is
counted only on evidence that the output depends on it, at the grain in which memory is read (sectors of 32 bytes).

Three steps, each cheaper than testing blocks one by one:
1. one backward pass: a sector in which any element has a gradient other than zero is needed;
2. one forward with everything else changed at once: no difference means that none of it is needed (the other
   triangle of a matrix, tokens beyond a length);
3. else a random sample of the rest, one sector changed at a time: the share that makes a difference, less three
   standard errors' worth, is counted. This is how what a maximum or a comparison needs is found, and integers.

The first two take several times the memory of the inputs: where these fill a good part of a device, only the third is
taken, of all sectors. Runs in the reference runner's process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch

from kerneldojo.problems.pieces import memory_order, num_bytes, pieces

SECTOR_BYTES = 32
SAMPLES = 24
"""Sectors changed one at a time; if all make a difference, 1 - 3 / SAMPLES of the rest is counted."""
STRENGTH = 1000.0
"""Size of a change, in units of the tensor's largest value: it must show in a sum of millions."""

LARGE_BYTES = 1 << 30
"""Of all inputs together; from here on there may be no room for several copies."""

Call = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def needed_bytes(call: Call, inputs: list[torch.Tensor], seed: int) -> list[int]:
    """Return, for each input, a lower bound of the bytes on which the outputs depend.

    Args:
        call: runs the reference on tensors like `inputs` and returns its output tensors; must not change state that
            later calls read.
        inputs: the problem's input tensors; left as they are.
        seed: seed of the sample.
    """
    with torch.no_grad():
        before = _own_memory(call([x.clone() for x in inputs]))
        if not _equal(before, call([x.clone() for x in inputs])):
            return [0] * len(inputs)  # not repeatable: no evidence of anything
    is_large = num_bytes(inputs) >= LARGE_BYTES
    gradients = [None] * len(inputs) if is_large else _gradients(call, inputs)
    generator = torch.Generator("cpu").manual_seed(seed)
    return [
        _needed(call, inputs, place, before, gradients[place], generator, only_sample=is_large)
        for place in range(len(inputs))
    ]


def _gradients(call: Call, inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the gradient of a random weighting of the outputs; None where there is none to be had."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    try:
        with torch.enable_grad():
            # A clone between leaf and call, so that a module which works in place may.
            outputs = [y for y in call([leaf.clone() for leaf in leaves]) if y.requires_grad]
            total = sum((y.float() * torch.rand_like(y, dtype=torch.float32)).nan_to_num().sum() for y in outputs)
        if not isinstance(total, torch.Tensor) or not wanted:
            return [None] * len(inputs)
        found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
    except RuntimeError:  # not differentiable, or short of memory: the other steps do without
        return [None] * len(inputs)
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


def _needed(
    call: Call,
    inputs: list[torch.Tensor],
    place: int,
    before: list[torch.Tensor],
    gradient: torch.Tensor | None,
    generator: torch.Generator,
    *,
    only_sample: bool,
) -> int:
    own = inputs[place]
    if own.numel() == 0:
        return 0
    per_sector = max(1, SECTOR_BYTES // own.element_size())
    live = _sectors(_in_memory_order(gradient, own) != 0, per_sector) if gradient is not None else None
    total = -(-own.numel() // per_sector)
    proven = int(live.sum()) if live is not None else 0
    rest = (~live).nonzero().flatten() if live is not None else None
    num_rest = total - proven
    change = _Change(own, generator)

    def matters(sectors: torch.Tensor) -> bool:
        return any(
            not _equal(before, _call_changed(call, inputs, place, sectors, per_sector, sign, change))
            for sign in (1.0, -1.0)
        )

    share = 0.0
    with torch.no_grad():
        if num_rest and (only_sample or matters(torch.arange(total, device="cpu") if rest is None else rest)):
            order = torch.randint(0, num_rest, (min(SAMPLES, 4 * num_rest),), generator=generator, device="cpu")
            chosen = order if rest is None else rest[order]
            hits = sum(matters(sector.reshape(1)) for sector in chosen)
            share = max(0.0, hits / len(order) - 3.0 / SAMPLES)
    num_bytes = (proven + share * num_rest) * per_sector * own.element_size()
    return min(int(num_bytes), own.numel() * own.element_size())


def _call_changed(
    call: Call,
    inputs: list[torch.Tensor],
    place: int,
    sectors: torch.Tensor,
    per_sector: int,
    sign: float,
    change: _Change,
) -> list[torch.Tensor]:
    own = inputs[place]
    changed = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device).copy_(own)
    copies = [changed if number == place else x.clone() for number, x in enumerate(inputs)]
    positions = sectors.to(own.device)[:, None] * per_sector + torch.arange(per_sector, device=own.device)
    positions = positions[positions < own.numel()]
    by_memory = changed.permute(memory_order(own))
    if by_memory.is_contiguous():
        by_memory, places = by_memory.view(-1), (positions,)
    else:  # There are holes between its elements.
        places = torch.unravel_index(positions, tuple(by_memory.shape))
    by_memory[places] = change.of(by_memory[places], sign)
    return call(copies)


class _Change:
    """How an input is changed: what is known of all of its values is asked once, for it may have gigabytes of them.

    Args:
        own: the input.
        generator: draws the changes.
    """

    def __init__(self, own: torch.Tensor, generator: torch.Generator) -> None:
        self._own, self._generator = own, generator

    def of(self, values: torch.Tensor, sign: float) -> torch.Tensor:
        """Other values for some; each changed by its own amount, for many answers ignore a common one."""
        own = self._own
        if own.dtype == torch.bool:
            return ~values
        if own.is_floating_point():
            limit = min(STRENGTH * self._largest, torch.finfo(own.dtype).max / 4)
            amount = 0.5 + torch.rand(len(values), generator=self._generator, device="cpu")
            return (values.float() + sign * limit * amount.to(values.device)).to(own.dtype)
        # Integers may be places in a table: only values that occur are sure to be allowed.
        if sign > 0:
            flat = own.reshape(-1)
            drawn = torch.randint(0, len(flat), (len(values),), generator=self._generator, device="cpu")
            return flat[drawn.to(flat.device)]
        low, high = self._ends
        return torch.where(values == low, high, low)

    @cached_property
    def _largest(self) -> float:
        return max((_largest(piece) for (piece,) in pieces(self._own)), default=0.0) or 1.0

    @cached_property
    def _ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._own.min(), self._own.max()


def _largest(piece: torch.Tensor) -> float:
    return float(piece.float().nan_to_num(0.0, 0.0, 0.0).abs().max()) if piece.numel() else 0.0


def _in_memory_order(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Flatten `x` in the order in which the elements of `like` lie in memory."""
    return x.permute(memory_order(like)).reshape(-1)


def _sectors(live: torch.Tensor, per_sector: int) -> torch.Tensor:
    padded = torch.nn.functional.pad(live, (0, -live.numel() % per_sector))
    return padded.view(-1, per_sector).any(dim=1).cpu()


def _own_memory(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What no later call can write into. Each call has inputs and state of its own, so that this is for caches of a
    module's; large outputs are taken as they are."""
    is_large = num_bytes(outputs) >= LARGE_BYTES
    return [y.detach() if is_large else y.detach().clone() for y in outputs]


def _equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(
        a.shape == b.shape and all(_same_values(x, y) for x, y in pieces(a, b))
        for a, b in zip(left, right, strict=True)
    )


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan()) if a.is_floating_point() else a == b).all())
