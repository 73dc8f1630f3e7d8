"""Library operations as torch's dispatcher sees them: bytes in and out, FLOPs, and the pattern of access.

The counting is by operator, below autograd, so a candidate that calls the library by whatever name is seen. Views and
allocations cost nothing, as on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kerneldojo.devices.work import Flops, Pattern, Precision, Traffic, Work

aten: Any = torch.ops.aten


def names(text: str) -> frozenset[str]:
    """Operators by name, without namespace and overload."""
    return frozenset(text.split())


ALLOCATIONS = names(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted lift_fresh resize_ detach alias "
    "_local_scalar_dense scalar_tensor is_same_size set_ record_stream _has_compatible_shallow_copy_type"
)
OVERWRITING = names("copy_ fill_ zero_ normal_ uniform_")
CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose", "mkldnn_convolution")
PRODUCTS = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "dot",
    "matmul",
    "linear",
    "_int_mm",
    "_scaled_mm",
)
REDUCTIONS = names(
    "sum mean prod amax amin max min argmax argmin any all norm linalg_vector_norm var std var_mean std_mean logsumexp "
    "_softmax _log_softmax softmax log_softmax native_layer_norm native_group_norm native_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training cumsum cumprod nll_loss_forward mse_loss "
    "_fused_rms_norm cudnn_batch_norm count_nonzero nansum median"
)
OTHERS = names(
    "sort topk index gather scatter embedding index_select nonzero unique masked_select avg_pool max_pool "
    "adaptive_avg_pool upsample grid_sampler roll cat stack repeat flip im2col col2im index_put lstm gru rnn unfold"
)
SPECIAL = names("exp log sqrt rsqrt tanh sigmoid gelu silu erf sin cos pow div softplus mish softmax reciprocal norm")
CLASSES: dict[torch.dtype, Precision] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "fp16",
    torch.int8: "int8",
    torch.uint8: "int8",
}

OPERATORS = frozenset(torch._C._dispatch_get_all_op_names())  # pyright: ignore[reportPrivateUsage]
"""Operators that were there before any hosted code: the library's. One that a source defines (`torch.library`) is none:
what it does inside is what counts."""
FOREIGN = names("lift_fresh from_file set_ detach alias")
"""Operators that hand on memory which others filled."""

SHARED_BYTES = 256 << 20
"""A storage larger than this is taken for an arena that holds several buffers."""


class Storages:
    """Numbers for buffers, in the order in which they are first seen.

    A buffer is a storage, or in a huge one (an arena) the range that a tensor covers. Every storage is kept alive
    while counting goes on: memory that was freed and given to another tensor would otherwise look like the same buffer.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, list[tuple[int, int, int]]] = {}
        self._count = 0
        self._alive: list[Any] = []

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the buffer that a tensor lies in."""
        return self.place(tensor)[2]

    def place(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        """First address, address behind the last, and number of the buffer that a tensor lies in."""
        storage = tensor.untyped_storage()
        known = self._buffers.setdefault(storage.data_ptr(), [])
        if not known:
            self._alive.append(storage)
        start, stop = buffer_range(tensor)
        for i, (low, high, number) in enumerate(known):
            if low < stop and start < high:
                known[i] = (min(low, start), max(high, stop), number)
                return known[i]
        known.append((start, stop, self._count))
        self._count += 1
        return known[-1]


def buffer_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of a tensor's buffer and the one behind it."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    if storage.nbytes() <= SHARED_BYTES:
        return start, start + max(1, storage.nbytes())
    first = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size)
    return first, first + (last + 1) * tensor.element_size()


def operation(function: Any, args: Any, kwargs: Any, output: Any, storages: Storages) -> Work | None:
    """Describe one operation that was just done; None if a GPU would launch nothing for it.

    Args:
        function: the `OpOverload`.
        args: its positional arguments.
        kwargs: its keyword arguments.
        output: what it returned.
        storages: numbering of memory.
    """
    name = operator_name(function)
    inputs, outputs = _tensors((args, kwargs)), _tensors(output)
    changed = _changed(function, args, kwargs)
    if name in ALLOCATIONS or not (inputs or outputs):
        return None
    seen = {t.untyped_storage().data_ptr() for t in inputs}
    fresh = [t for t in outputs if t.untyped_storage().data_ptr() not in seen]
    if not fresh and not changed:
        return None  # A view.
    written = _unique([*fresh, *changed])
    if not sum(t.numel() for t in written):
        return None
    overwritten = {id(t) for t in changed} if name in OVERWRITING else set()
    read = _unique([t for t in inputs if id(t) not in overwritten])
    pattern = classify(name)
    flops = _flops(function, args, kwargs, output) if pattern in ("product", "convolution", "attention") else 0.0
    elements = max((t.numel() for t in (*inputs, *outputs)), default=0)
    reads, writes = _traffic(read, storages), _traffic(written, storages)
    return Work(
        own=False,
        name=f"aten::{name}"[:200],
        pattern=pattern,
        num_programs=max(1, math.ceil(max((t.numel() for t in written), default=1) / 1024)),
        reads=reads,
        writes=writes,
        accessed_bytes=sum(item.sector_bytes for item in (*reads, *writes)),
        products=(Flops(precision=_precision(inputs, pattern), flops=flops),) if flops else (),
        arithmetic=float(elements) if not flops and any(t.is_floating_point() for t in outputs) else 0.0,
        special=float(elements) if not flops and any(part in name for part in SPECIAL) else 0.0,
    )


def is_of_library(function: Any) -> bool:
    """Whether an operator is one of the library's own, and does what it did when it was taken in."""
    name = function.name()
    return name in OPERATORS and f"{name.replace('::', '/')}/CPU" not in _replaced()


def _replaced() -> set[str]:
    """Operators given another implementation from Python, as `torch.library` lists them."""
    return torch.library._impls  # pyright: ignore


def met_by(function: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Tensors whose content an operation is about to read or to change."""
    return [] if operator_name(function) in ALLOCATIONS else _tensors((args, kwargs))


def made_by(function: Any, args: Any, kwargs: Any, output: Any) -> list[torch.Tensor]:
    """Tensors whose content is what an operation that was just done left there, uninitialised memory included."""
    name = operator_name(function)
    if name in FOREIGN:
        return []
    if "batch_norm" in name:  # Running statistics are updated, which not every schema says.
        return [*_tensors(output), *_tensors((args, kwargs))]
    return [*_tensors(output), *_changed(function, args, kwargs)]


def classify(name: str) -> Pattern:
    """How an operator touches its data, by its name without namespace and overload."""
    base = name.removesuffix("_")
    if "attention" in base:
        return "attention"
    if any(part in base for part in CONVOLUTIONS):
        return "convolution"
    if base in PRODUCTS:
        return "product"
    if base in REDUCTIONS:
        return "reduction"
    if any(base.startswith(part) for part in OTHERS):
        return "other"
    return "elementwise"


def operator_name(function: Any) -> str:
    """Without namespace and overload."""
    return function._schema.name.split("::")[-1]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]


def _unique(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor for each region of memory, the largest where several start at one place."""
    found: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        address = tensor.data_ptr()
        if address not in found or found[address].numel() < tensor.numel():
            found[address] = tensor
    return list(found.values())


def _traffic(tensors: list[torch.Tensor], storages: Storages) -> tuple[Traffic, ...]:
    totals: dict[int, int] = {}
    for tensor in tensors:
        # A dimension of stride 0 repeats the same bytes.
        elements = math.prod(s for s, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        number = storages.number(tensor)
        totals[number] = totals.get(number, 0) + (elements * tensor.element_size() if tensor.numel() else 0)
    return tuple(Traffic(storage=s, num_bytes=n) for s, n in sorted(totals.items()) if n)


def _changed(function: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Arguments that the operator's schema says it writes to."""
    result: list[torch.Tensor] = []
    for i, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            result += _tensors(args[i] if i < len(args) else kwargs.get(argument.name))
    return result


def _flops(function: Any, args: Any, kwargs: Any, output: Any) -> float:
    packet = function.overloadpacket
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=output))
    tensors = _tensors(args)
    shapes = [t.shape for t in tensors]
    name = packet.__name__
    if "attention" in name and len(shapes) >= 3:
        query, key, value = shapes[:3]
        return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    if name in ("mv", "dot", "vdot"):
        return 2.0 * shapes[0].numel()
    if name == "addmv":
        return 2.0 * shapes[1].numel()
    if name in ("linear", "mkldnn_linear") and len(shapes) >= 2:
        return 2.0 * shapes[0].numel() * shapes[1][0]
    if "convolution" in name and len(shapes) >= 2:
        return 2.0 * _tensors(output)[0].numel() * shapes[1][1:].numel()
    return 0.0


def _precision(inputs: list[torch.Tensor], pattern: Pattern) -> Precision:
    dtype = next((t.dtype for t in inputs if t.is_floating_point()), inputs[0].dtype if inputs else torch.float32)
    precision = CLASSES.get(dtype, "fp8" if dtype.itemsize == 1 else "fp32")
    if precision == "fp32":
        # torch's own defaults on a GPU: TF32 for convolutions, IEEE for products.
        backends: Any = torch.backends
        flag = backends.cudnn.allow_tf32 if pattern == "convolution" else backends.cuda.matmul.allow_tf32
        return "tf32" if flag else "fp32"
    return precision
