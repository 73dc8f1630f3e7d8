"""Parameters and buffers: made under a secret seed, never left at their famous initial values, and matched.

Both constructors run under the same seed. What they would set to a constant (zero biases, unit scales, running
statistics of 0 and 1) is drawn instead, from the same generator, so that a kernel which skips `+ bias` or the affine
part of a norm is wrong. A constructor that makes its modules in the reference's order therefore has the reference's
weights; one that writes `torch.ones(...)` by hand gets them delivered (`load`), by name or by position.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase as NormBase  # pyright: ignore[reportPrivateUsage]
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from kerneldojo.contestant.arena import extent

SPREAD = 0.1
"""Standard deviation of the draws that replace constants, relative to the constant, or absolute around zero."""

RANDOM = ("kaiming_uniform_", "kaiming_normal_", "_no_grad_uniform_", "_no_grad_normal_", "_no_grad_trunc_normal_")
"""Where `torch.nn.init` draws: the others go through these."""


@contextmanager
def drawn_constants(*, negative: bool = False) -> Generator[None]:
    """Replace the constant initialisers of `torch.nn.init` by draws while the context is open.

    Their names are replaced wherever torch itself looks them up. `reset_running_stats` of the norms draws too.

    Args:
        negative: have the random initialisers draw what they would, with a minus sign before every magnitude.
    """

    def around(constant: float) -> Callable[..., torch.Tensor]:
        def initialise(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            return _draw(tensor, constant)

        return initialise

    def constant_(tensor: torch.Tensor, val: float) -> torch.Tensor:
        return _draw(tensor, val)

    def reset_running_stats(self: NormBase) -> None:
        if self.track_running_stats:
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            _draw(self.running_mean, 0.0)
            _draw(self.running_var, 1.0)
            self.num_batches_tracked.zero_()

    replaced = {
        "zeros_": around(0.0),
        "ones_": around(1.0),
        "constant_": constant_,
        "_no_grad_zero_": around(0.0),
        "_no_grad_fill_": constant_,
    }
    if negative:
        replaced |= {name: _negative(getattr(nn.init, name)) for name in RANDOM if hasattr(nn.init, name)}
    saved = {name: getattr(nn.init, name) for name in replaced if hasattr(nn.init, name)}
    reset = NormBase.reset_running_stats
    try:
        for name in saved:
            setattr(nn.init, name, replaced[name])
        NormBase.reset_running_stats = reset_running_stats
        yield
    finally:
        for name, function in saved.items():
            setattr(nn.init, name, function)
        NormBase.reset_running_stats = reset


def _negative(initialiser: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def initialise(tensor: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        initialiser(tensor, *arguments, **named)
        with torch.no_grad():
            return tensor.abs_().neg_()

    return initialise


def _draw(tensor: torch.Tensor, constant: float) -> torch.Tensor:
    with torch.no_grad():
        if not tensor.is_floating_point():
            return tensor.fill_(constant)
        scale = SPREAD * abs(constant) if constant else SPREAD
        return tensor.normal_(0.0, 1.0).mul_(scale).add_(constant)


def redraw_constants(module: nn.Module) -> None:
    """Draw parameters that a constructor set to one constant by hand, such as `nn.Parameter(torch.ones(n))`.

    For the reference only: the candidate is given what came out. Buffers stay, for a constant one may be a mask.
    """
    for parameter in module.parameters():
        values = parameter.detach()
        if values.numel() and values.is_floating_point() and bool((values == values.flatten()[0]).all()):
            _draw(values, float(values.flatten()[0]))


def check_sizes(module: nn.Module) -> None:
    """See that all weights are there.

    Raises:
        ValueError: some have no size before the first call, as those of lazy modules; they cannot be dealt out.
    """
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise ValueError(f"{name} has no size before the first call (of a LazyLinear, say): give it one")


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, in order; the counter of batches, which no kernel needs, left out."""
    return {
        name: tensor.detach()
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, torch.Tensor) and not name.endswith("num_batches_tracked")
    }


def held(module: nn.Module, *kinds: str) -> list[torch.Tensor]:
    """Tensors that a module and those below it have registered, found without running any code of theirs.

    `parameters`, `buffers` and attributes can all be overridden; what lies in an object's own dictionary cannot.

    Args:
        module: where to begin.
        kinds: `_parameters` and `_buffers`, or one of them.
    """
    found: dict[int, torch.Tensor] = {}
    pending, seen = [module], set[int]()
    while pending:
        own: dict[str, Any] = _FIELDS.__get__(pending.pop())
        if id(own) in seen:
            continue
        seen.add(id(own))
        for kind in kinds or ("_parameters", "_buffers"):
            found |= {id(item): item for item in _values(own, kind) if type(item) in (torch.Tensor, nn.Parameter)}
        pending += [item for item in _values(own, "_modules") if issubclass(type(item), nn.Module)]
    return list(found.values())


_FIELDS: Any = nn.Module.__dict__["__dict__"]


def _values(own: dict[str, Any], kind: str) -> list[Any]:
    registered: Any = dict.get(own, kind)
    return list(dict.values(registered)) if issubclass(type(registered), dict) else []


def load(module: nn.Module, values: list[torch.Tensor], names: list[str]) -> None:
    """Copy `values` into the tensors of `module` called `names`, in place.

    A tensor whose elements share memory is one that torch does not write to: it stays, if it is equal.

    Raises:
        RuntimeError: shapes do not fit (torch's own message).
    """
    own = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in zip(names, values, strict=True):
            target = own[name]
            is_shared = target.numel() > extent(target.shape, target.stride())
            if not (is_shared and torch.equal(target, value)):
                target.copy_(value)
