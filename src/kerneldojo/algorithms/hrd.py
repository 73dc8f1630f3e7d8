"""HRD, hierarchical reward decomposition (TritonRL): the plan is paid for speed, the code for being right.

An answer is a plan between two special tokens, then code. Each class of tokens has its own rewards, hence its own
returns and advantages:

    J = E[ α · J_plan + J_code ],     token advantage = α · A^plan on plan tokens, A^code on code tokens

Both terms share one denominator (that of the whole answer), so α is the only thing that weighs them. α is small (0.1),
because the plan should change slowly while the code catches up with it.

Over several turns (ours, not the paper's) each class has one return, with the same discount.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.schema import Settings


class HRDConfig(Settings):
    """Settings of the decomposition."""

    alpha: float = Field(default=0.1, ge=0)
    """Weight of the plan's tokens (0.1 in the paper; 1.0 was worse)."""


def plan_tokens(ids: Tensor, sample: Tensor, open_id: int, close_id: int, starts_open: bool = False) -> Tensor:
    """Which tokens of an answer are plan; all others are code.

    A token is plan if it lies between an opening token and the next closing one, both included. An answer without an
    opening token has only code tokens, and a stray closing token is code; a plan that is never closed lasts to the end.

    ids: (T,) int64, the answers' tokens as sampled, samples one after the other. sample: (T,) int64, not decreasing.
    starts_open: prompts end with the opening token already. Returns (T,) bool.
    """
    if bool((sample.diff() < 0).any()):
        raise ValueError("the tokens of a sample must be contiguous, samples in ascending order")
    position = torch.arange(len(ids), device=ids.device)
    start = torch.searchsorted(sample, sample)  # position of the first token of each token's sample
    opened = _latest(position, ids == open_id)
    closed = _latest(position, ids == close_id)
    closed_before = torch.cat((closed.new_full((1,), -1), closed))[: len(ids)]  # strictly before this token
    # Events of earlier samples do not count. "Open before the first token" sits between the two samples' positions,
    # so an event at `start` itself is later; doubling the positions makes room for it.
    opened = torch.where(opened >= start, 2 * opened + 1, 2 * start if starts_open else -2)
    closed_before = torch.where(closed_before >= start, 2 * closed_before + 1, -1)
    return opened > closed_before


def token_advantages(plan: Tensor, code: Tensor, sample: Tensor, is_plan: Tensor, config: HRDConfig) -> Tensor:
    """α · A^plan of its sample for a plan token, A^code for a code token.

    plan, code: (n,) advantages of each class. sample: (T,) int64. is_plan: (T,) bool. Returns (T,). With plan = code it
    is the uniform reward with plan tokens weighted by α.
    """
    return torch.where(is_plan, config.alpha * plan[sample], code[sample])


def _latest(position: Tensor, event: Tensor) -> Tensor:
    """(T,): the position of the latest event up to and including each token, -1 before the first."""
    if not len(position):
        return position
    return torch.where(event, position, -1).cummax(0).values
