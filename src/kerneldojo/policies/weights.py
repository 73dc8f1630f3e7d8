"""A copy of a model's weights to sample from, in lower precision and whole, while the original is trained.

A trainer keeps float32 weights and lets layers compute in bfloat16 (autocast). Sampling from these weights would cast
every matrix anew for every token. The copy holds the matrices of linear layers cast already and everything else
(embeddings, norms) as it is, and runs under the same autocast: the arithmetic is the trainer's own, number by number,
so that nothing but the order of sums lies between the log-probabilities of the two.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


class SamplingCopy:
    """A model with the weights of another, refreshed on demand."""

    def __init__(self, source: Any, dtype: torch.dtype) -> None:
        """Copy `source`, with linear layers in `dtype`. To be made before `source` is sharded (FSDP)."""
        self.source = source
        self.dtype = dtype
        self.model = copy.deepcopy(source).requires_grad_(False).eval()
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                # Parameters of its own: an output layer that shares the embeddings' weight leaves them in float32.
                for name, parameter in list(module.named_parameters(recurse=False)):
                    setattr(module, name, nn.Parameter(parameter.to(dtype), requires_grad=False))

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights as they are now, at unchanged addresses.

        Weights that are sharded are gathered: then every rank must call this, equally often.
        """
        current = self.source.state_dict()
        for name, target in self.model.state_dict().items():
            value = current[name]
            target.copy_(value.full_tensor() if hasattr(value, "full_tensor") else value)
