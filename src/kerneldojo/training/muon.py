"""Muon where there is no GPU: torch's, with its orthogonalisation in float32.

torch's runs the Newton-Schulz iteration in bfloat16, which is what a GPU is quick at. A processor without instructions
for it takes some twenty times as long as in float32, and one thread: of a step of SFT on a laptop that was four fifths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class HostMuon(torch.optim.Muon):
    """Muon (Jordan et al. 2024) for matrices on the CPU, its update scaled to AdamW's usual size (Liu et al. 2025,
    arXiv 2502.16982). State and settings are those of `torch.optim.Muon`, so that checkpoints fit both."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Change every matrix that has a gradient; there is no closure."""
        assert closure is None
        for group in self.param_groups:
            assert group["adjust_lr_fn"] == "match_rms_adamw", "no other scale is here"
            rate, decay, momentum = group["lr"], group["weight_decay"], group["momentum"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                average = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                update = matrix.grad.lerp(average, momentum) if group["nesterov"] else average
                update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                matrix.mul_(1 - rate * decay)
                matrix.add_(update, alpha=-rate * 0.2 * math.sqrt(max(matrix.shape)))


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], num_steps: int, smallest: float) -> Tensor:
    """About the nearest matrix whose singular values are 1, by a quintic Newton-Schulz iteration.

    Args:
        matrix: (m, n) float32.
        coefficients: of the polynomial; Muon's bring singular values to between 0.7 and 1.2 in five steps.
        num_steps: iterations, each of about 4 m² n + 2 m³ FLOPs for the smaller dimension m.
        smallest: norm that is divided by at least.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if is_tall else matrix
    found = found / found.norm().clamp(min=smallest)
    first, third, fifth = coefficients
    for _ in range(num_steps):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=third, alpha=fifth), found, beta=first)
    return found.T if is_tall else found
