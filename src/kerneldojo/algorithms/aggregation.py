"""From a loss for each token to one number: how much each token weighs.

Every aggregation in use is a weighted sum, so each is written here as its weights. That makes micro-batches and several
GPUs trivial: weights are computed once over the whole step, and partial sums add up to the total.

| mode | weight of a token | who |
|---|---|---|
| `seq-mean-token-sum` | 1 / (n · scale) | Dr. Kernel (scale 1000) |
| `constant-length` | 1 / (n · max_length) | Dr. GRPO, Kevin |
| `token-mean` | 1 / (tokens of all n samples) | DAPO |
| `seq-mean-token-mean` | 1 / (n · tokens of its sample) | GRPO |

Only the last one makes a token's weight depend on the length of its own answer: long wrong answers are punished less a
token than short ones. n counts the samples *before* rejection: rejected samples weigh nothing, but do not make the
others heavier, so that a step in which most were rejected is a small step. (Where episodes may end early, n is itself
random: the direction of a step is then that of an unbiased sum, its length varies a little with n.)
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from kerneldojo.schema import Settings


class AggregationConfig(Settings):
    """How token losses become one loss; the defaults are Dr. Kernel's."""

    mode: Literal["seq-mean-token-sum", "constant-length", "token-mean", "seq-mean-token-mean"] = "seq-mean-token-sum"
    scale: float = Field(default=1000.0, gt=0)
    """Divisor for `seq-mean-token-sum`. It sets the size of the gradient, hence what gradient clipping does."""
    max_length: int | None = Field(default=None, gt=0)
    """Longest answer in tokens, the divisor for `constant-length`."""

    @model_validator(mode="after")
    def _constant_length_has_a_length(self) -> AggregationConfig:
        if (self.mode == "constant-length") != (self.max_length is not None):
            raise ValueError("aggregation.max_length is given exactly with mode 'constant-length'")
        return self


def token_weights(sample: Tensor, counted: Tensor, kept: Tensor, config: AggregationConfig) -> Tensor:
    """The weight of each token in the step's loss.

    sample: (T,) int64, the sample that each token belongs to. counted: (n,) bool, the samples before rejection.
    kept: (n,) bool, those after it. Returns (T,) float32, 0 outside `kept`. To be computed over the whole step,
    never over a micro-batch.
    """
    lengths = torch.bincount(sample, minlength=len(counted)).to(torch.float64)
    num_samples = counted.sum().to(torch.float64)
    match config.mode:
        case "seq-mean-token-sum":
            per_sample = 1 / (num_samples * config.scale).expand_as(lengths)
        case "constant-length":
            assert config.max_length is not None
            per_sample = 1 / (num_samples * config.max_length).expand_as(lengths)
        case "token-mean":
            per_sample = 1 / lengths[counted].sum().expand_as(lengths)
        case "seq-mean-token-mean":
            per_sample = 1 / (num_samples * lengths)
    return torch.where(kept & counted, per_sample, 0.0)[sample].to(torch.float32)
