"""A copy of a model's weights to sample from, in lower precision and whole, while the original is trained.

A trainer keeps float32 weights and lets layers compute in bfloat16 (autocast). Sampling from these weights would cast
every matrix anew for every token. The copy holds the matrices of linear layers cast already and everything else as it
is (norms, and embeddings unless what they give is cast at once, `layers.narrow_residual`), and runs under the same
autocast: the arithmetic is the trainer's own, number by number, so that nothing but the order of sums lies between the
log-probabilities of the two. A trainer that is sharded gathers every weight in bfloat16, and so the copy has them all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kerneldojo.policies.layers import is_narrow


class SamplingCopy:
    """A model with the weights of another, refreshed on demand."""

    def __init__(self, source: Any, dtype: torch.dtype, device: torch.device | None = None) -> None:
        """Copy `source`, with linear layers in `dtype`. To be made before `source` is sharded (FSDP) or compiled.

        `device`: where the copy is, of a `source` on `meta` that will be sharded. Its numbers come with `refresh`, and
        all of them are cast: FSDP gathers every weight in `dtype`, those of norms too.
        """
        self.source = source
        self.dtype = dtype
        is_cast = _is_cast if device is None else _has_own
        kept = {id(one) for part in source.modules() if not is_cast(part) for one in part.parameters(recurse=False)}
        memo: dict[int, Any] = {}
        for part in filter(is_cast, source.modules()):
            for one in part.parameters(recurse=False):
                if id(one) not in kept and id(one) not in memo:
                    memo[id(one)] = _cast(one, dtype)
        # What is cast is never copied in float32: of a large model a device has room for one such copy, not for two.
        self.model = copy.deepcopy(source, memo).requires_grad_(False).eval()
        for part in filter(is_cast, self.model.modules()):
            # A parameter beside the one it is cast from: an output layer may share the embeddings' weight, which
            # stays in float32 if it is not narrow.
            for name, one in list(part.named_parameters(recurse=False)):
                if one.dtype != dtype:
                    setattr(part, name, _cast(one, dtype))
        if device is not None:
            make_room(self.model, device)

    def refresh(self) -> None:
        """Take over the weights as they are now, at unchanged addresses.

        Weights that are sharded are gathered: then every rank must call this, equally often.
        """
        with torch.inference_mode(False), torch.no_grad():  # shards are no tensors for the sampler's inference mode
            current = self.source.state_dict()
            for name, target in self.model.state_dict().items():
                value = current[name]
                target.copy_(value.full_tensor() if hasattr(value, "full_tensor") else value)


def make_room(module: nn.Module, device: torch.device) -> None:
    """Bring a model whose parameters are on `meta` to `device`: room for these, which is to be filled, and buffers."""

    def room(parameter: nn.Parameter) -> nn.Parameter:
        if not parameter.is_meta:
            return parameter
        return nn.Parameter(torch.empty_like(parameter.detach(), device=device), requires_grad=parameter.requires_grad)

    replace_parameters(module, room)
    for part in module.modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))


def replace_parameters(module: nn.Module, new: Callable[[nn.Parameter], nn.Parameter]) -> None:
    """Put `new` of each parameter in its place; a shared one is asked for once, and stays shared."""
    made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    """New by the old one's id; old ones are kept, or another might get the id of one that is gone."""
    for part in module.modules():
        for name, old in list(part.named_parameters(recurse=False, remove_duplicate=False)):
            if id(old) not in made:
                made[id(old)] = (old, new(old))
            setattr(part, name, made[id(old)][1])


def _is_cast(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Embedding) and is_narrow(module))


def _has_own(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _cast(parameter: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)
