"""What one forward of the reference needs: memory at its peak, and the longest sum in it.

Seen from torch's dispatcher, where every operation passes. The longest sum bounds how far two honest orders of
summation may differ (about the square root of its length times the machine epsilon), which no single run can show.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kerneldojo.problems.dispatching import Dispatching

_DEPTH_OF_PRODUCT = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::mv": 0, "aten::dot": 0}


class Footprint(Dispatching):
    """Counts while it is active.

    Attributes:
        peak_bytes: most bytes that tensors made within the block took at one time.
        reduction_length: most terms that any operation summed (or normalised over) for one element of its output.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes = 0
        self.reduction_length = 1
        self._live: dict[int, list[int]] = {}
        self._bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.reduction_length = max(self.reduction_length, terms_per_output(func.name(), args, outputs))
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if _has_storage(leaf)}
        for tensor in outputs:
            if _has_storage(tensor):
                self._follow(tensor, known)
        return result

    def _follow(self, tensor: torch.Tensor, known: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self._live:
            if key in known or key == 0:  # a view of something that was there before the block, or nothing at all
                return
            self._live[key] = [storage.nbytes(), 0]
            self._bytes += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self._bytes)
        self._live[key][1] += 1
        weakref.finalize(tensor, self._drop, key)

    def _drop(self, key: int) -> None:
        entry = self._live[key]
        entry[1] -= 1
        if entry[1] == 0:
            self._bytes -= entry[0]
            del self._live[key]


def _has_storage(value: Any) -> bool:
    """Whether it is a tensor with one memory of its own, as sparse ones are not: what they hold is not counted."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def terms_per_output(name: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> int:
    """How many elements of its input an operation combines into one element of its output, at most.

    Args:
        name: the operation's name, for example `aten::mm`.
        args: its positional arguments.
        outputs: the tensors that it returned.
    """
    name = name.partition(".")[0]
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not tensors or not outputs or not outputs[0].numel():
        return 1
    if name in _DEPTH_OF_PRODUCT:
        return tensors[_DEPTH_OF_PRODUCT[name]].shape[-1]
    if name == "aten::convolution":
        filters = tensors[1]
        return math.prod(filters.shape[1:]) if not args[6] else filters.numel() // filters.shape[1]
    if "scaled_dot_product" in name:
        return max(tensors[1].shape[-2], tensors[1].shape[-1])
    if "softmax" in name or "cum" in name or name == "aten::logsumexp":
        dimension = args[1] if isinstance(args[1], int) else args[1][0]
        return tensors[0].shape[dimension] if tensors[0].dim() else 1
    if "norm" in name and len(outputs) > 1 and outputs[1].numel():
        return tensors[0].numel() // outputs[1].numel()
    if name in ("aten::index", "aten::gather", "aten::slice", "aten::select", "aten::embedding", "aten::index_select"):
        return 1
    return max(1, tensors[0].numel() // outputs[0].numel())
