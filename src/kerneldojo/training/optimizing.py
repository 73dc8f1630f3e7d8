"""Optimisers and schedules: Muon for the matrices, AdamW for the rest; the learning rate a function of the step.

Muon (Jordan et al. 2024) orthogonalises a matrix's momentum, so that every direction is learned at the same pace; for
small models from nothing it needs about half of AdamW's steps. Embeddings, norms and the output layer stay with AdamW.
Its update is scaled to AdamW's usual size, so that one learning rate serves both.

The schedule has no state: resuming at step n asks for the rate of step n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from kerneldojo.schema import Settings
from kerneldojo.training.muon import HostMuon
from kerneldojo.training.settings import ConfigError

ROUNDING = 1e-6
"""What torch adds to a norm before it divides by it."""
Decay = Annotated[float, Field(ge=0, lt=1)]
"""The share of a moving average that stays at each step."""


class OptimizerConfig(Settings):
    """How weights are changed; the defaults suit a small model from nothing."""

    matrices: Literal["muon", "adamw"] = "adamw"
    """What updates the matrices of the layers."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate of AdamW."""
    matrix_learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of the matrices; None for the same."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay of AdamW's two averages."""
    momentum: Decay = 0.95
    """Decay of Muon's."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled, on matrices only."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How it falls afterwards."""
    final_share: float = Field(default=0.0, ge=0, le=1)
    """Where it ends, as a share of the peak."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm; None for no limit."""
    fused: bool = True
    """On a GPU: AdamW in one kernel, which agrees with torch's many to rounding."""

    def rate_factor(self, step: int, progress: float) -> float:
        """Factor on the peak rate for step `step` (counted from 0) at `progress` of the run, in [0, 1]."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        progress = min(max(progress, 0.0), 1.0)
        match self.schedule:
            case "constant":
                fall = 1.0
            case "linear":
                fall = 1 - progress
            case "cosine":
                fall = 0.5 * (1 + math.cos(math.pi * progress))
        if self.schedule != "constant":
            fall = self.final_share + (1 - self.final_share) * fall
        return warmup * fall


class Optimizers:
    """One or two optimisers that act as one."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        """Divide the parameters of `model` that ask for gradients."""
        self.config = config
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        matrices = matrices_of(model) if config.matrices == "muon" else []
        taken = {id(parameter) for parameter in matrices}
        rest = [parameter for parameter in self.parameters if id(parameter) not in taken]
        self.each: list[torch.optim.Optimizer] = []
        self.peaks: list[float] = []
        if matrices:
            peak = config.matrix_learning_rate or config.learning_rate
            has_bfloat16 = all(one.is_cuda for one in matrices)
            muon = (torch.optim.Muon if has_bfloat16 else HostMuon)(
                matrices,
                lr=peak,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            self._add(muon, peak)
        groups = [
            {"params": [one for one in rest if one.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [one for one in rest if one.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        if groups:
            peak = config.learning_rate
            fused = config.fused and all(one.is_cuda for one in rest)
            self._add(torch.optim.AdamW(groups, lr=peak, betas=config.betas, fused=fused or None), peak)

    def _add(self, optimizer: torch.optim.Optimizer, peak: float) -> None:
        self.each.append(optimizer)
        self.peaks.append(peak)

    def clip(self) -> Tensor:
        """The norm of all gradients before they are scaled down to the configured limit; a scalar."""
        limit = self.config.max_grad_norm
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        norm: Any = torch.nn.utils.get_total_norm(gradients)
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if limit is not None and not float(norm) + ROUNDING <= limit:  # else they would be multiplied by 1
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        return norm

    def step(self, step: int, progress: float) -> float:
        """Change the weights with the rate of this step, and forget the gradients; returns AdamW's (or Muon's) rate."""
        factor = self.config.rate_factor(step, progress)
        for optimizer, peak in zip(self.each, self.peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * factor
            optimizer.step()
        self.zero_grad()
        return self.peaks[-1] * factor

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for optimizer in self.each:
            optimizer.zero_grad(set_to_none=True)


def check_rows(model: nn.Module, config: OptimizerConfig, num_ranks: int) -> None:
    """See that Muon can have a row of each of its matrices on every rank, as torch's needs.

    Raises:
        ConfigError: it cannot.
    """
    fewest = min((one.shape[0] for one in matrices_of(model)), default=num_ranks)
    if config.matrices == "muon" and fewest < num_ranks:
        raise ConfigError(
            f"optimizer.matrices: muon needs a row of each matrix on every rank; one has {fewest} for {num_ranks} ranks"
        )


def matrices_of(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of the layers: what is neither embedding nor output layer nor a vector; and asks for gradients."""
    outside: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            outside.add(id(module.weight))
        get_output = getattr(module, "get_output_embeddings", None)
        head: Any = get_output() if callable(get_output) else None
        if head is not None and hasattr(head, "weight"):
            outside.add(id(head.weight))
    parameters: Iterable[nn.Parameter] = model.parameters()
    return [one for one in parameters if one.requires_grad and one.dim() == 2 and id(one) not in outside]
