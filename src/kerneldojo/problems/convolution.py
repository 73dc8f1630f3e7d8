"""Transposed convolutions in float64 on a GPU, as the oracle of many problems needs them.

cuDNN has no quick ones: on an H200 the oracle of a three-dimensional one took 2.8 s a call, 77 times what the problem's
own arithmetic takes, whichever of cuDNN's algorithms was used. torch has its own, which is a product of matrices and a
sum (0.24 s), but holds all columns of that product at once, 9.4 GiB in this case. The channels of a result have nothing
to do with each other, so a few are made at a time here.

Other convolutions are left to cuDNN, which takes 0.4 to 2.5 times as long as torch there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

FEWEST_COLUMN_BYTES = 64 << 20
"""Columns may take so much, or an eighth of the input where that is more; those of one channel may take any."""
NUM_ARGUMENTS = 9
"""Of `aten::convolution`, which has no defaults."""


def is_slow(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation is one that `by_channels` does quicker.

    Args:
        func: any of torch's operations.
        args: its positional arguments.
    """
    if func is not torch.ops.aten.convolution.default or len(args) != NUM_ARGUMENTS:
        return False
    x, weight, *_, is_transposed, _, groups = args
    # Torch's own returns plain rows whatever it is given, and who views what comes back may rely on other strides.
    is_plain = x.is_cuda and x.dtype == torch.float64 and x.is_contiguous() and weight.is_contiguous()
    return bool(is_transposed and groups == 1 and is_plain and x.numel() and weight.numel())


def by_channels(
    func: Callable[..., torch.Tensor], args: tuple[Any, ...], most_bytes: int = FEWEST_COLUMN_BYTES
) -> torch.Tensor:
    """A transposed convolution without groups, some channels of its result at a time.

    Args:
        func: `aten::convolution`.
        args: its positional arguments, the input of shape (batch, channels, ...).
        most_bytes: see `FEWEST_COLUMN_BYTES`.
    """
    x, weight, bias, *others = args
    column_bytes = weight[0, 0].numel() * x[0, 0].numel() * x.element_size()
    at_once = max(1, max(most_bytes, x.nbytes // 8) // column_bytes)
    with _without_cudnn():
        if at_once >= weight.shape[1]:
            return func(*args)
        result: torch.Tensor | None = None
        for first in range(0, weight.shape[1], at_once):
            some = slice(first, first + at_once)
            part = func(x, weight[:, some].contiguous(), None if bias is None else bias[some], *others)
            if result is None:
                result = part.new_empty((part.shape[0], weight.shape[1], *part.shape[2:]))
            result[:, some] = part
    assert result is not None
    return result


@contextmanager
def _without_cudnn() -> Generator[None]:
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before
