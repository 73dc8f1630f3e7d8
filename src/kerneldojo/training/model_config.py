"""Which model is trained: its shape or its path, its adapters, its arithmetic.

A small model is an ordinary Hugging Face checkpoint of a common shape, so that whatever samples from or trains a large
one does so with this one too. Its weights are random until `dojo train sft` has seen to them.
"""

from __future__ import annotations

import re
from typing import Any, Literal, cast

import torch
from pydantic import Field, field_validator, model_validator

from kerneldojo.schema import Settings
from kerneldojo.schema.base import at_home


class NewModelConfig(Settings):
    """The shape of a model made from nothing; the defaults are a laptop's 0.9 million parameters."""

    family: Literal["llama", "qwen3"] = "llama"
    """Whose layers: Llama's, or Qwen3's with normalised queries and keys."""
    vocabulary: int = Field(default=1024, ge=512)
    """Tokens of the tokenizer that is trained with it."""
    hidden: int = Field(default=128, gt=0, multiple_of=8)
    """Width of the residual stream."""
    intermediate: int = Field(default=352, gt=0)
    """Width of the gated feed-forward layers."""
    layers: int = Field(default=4, gt=0)
    heads: int = Field(default=4, gt=0)
    """Attention heads, each `hidden / heads` wide."""
    context: int = Field(default=2048, gt=0)
    """Longest prompt and answer together, in tokens."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> NewModelConfig:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden ({self.hidden}) must be an even multiple of heads ({self.heads})")
        return self


LAPTOP = NewModelConfig()
"""0.9 M parameters: learns in a minute on two cores."""
GPU = NewModelConfig(vocabulary=4096, hidden=320, intermediate=864, layers=8, heads=5, context=4096)
"""11 M parameters: learns in minutes on a GPU."""
GPU_LARGE = NewModelConfig(vocabulary=8192, hidden=512, intermediate=1408, layers=12, heads=8, context=4096)
"""43 M parameters."""
SIZES = {"laptop": LAPTOP, "gpu": GPU, "gpu-large": GPU_LARGE}


class LoRAConfig(Settings):
    """Low-rank adapters instead of all weights (peft)."""

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the layers that are adapted; the output layer never is."""

    @field_validator("targets")
    @classmethod
    def _targets_can_be_read(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(targets, str):
            try:
                re.compile(targets)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
        return targets


class ModelConfig(Settings):
    """Which model is trained."""

    path: str | None = None
    """A checkpoint: a folder or a name of the hub. None: `new`."""
    new: NewModelConfig | Literal["laptop", "gpu", "gpu-large"] = "laptop"
    """Shape of a model from nothing, by itself or by the name of one of our sizes."""
    new_tokens: tuple[str, ...] = ()
    """Texts that become single tokens of the model in `path`, where they are none yet (`<plan>`): a cold start teaches
    them. Their rows begin as the mean of the others."""
    lora: LoRAConfig | None = None
    """Adapters instead of all weights; None for all weights, or if `path` is an adapter, which then is trained on."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the layers; the weights that the optimiser sees are float32. `auto`: bfloat16 on CUDA."""
    residual: Literal["same", "float32"] = "same"
    """What layers hand on to one another, in training and in sampling: in the dtype that they compute in, as models
    with bfloat16 weights do, or in float32, which takes twice the memory and a cast before each matrix. With several
    ranks it is the same dtype always: weights are gathered in it."""
    fused: bool = True
    """On a GPU: from logits to log-probabilities by kernels of our own (`algorithms/fused.py`), which agree with
    torch's operations to rounding."""
    compile: bool = False
    """On a GPU: compile the layers. The first steps take a minute longer, all others less time."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass rather than keeping them."""

    @field_validator("path")
    @classmethod
    def _path_begins_at_home(cls, path: str | None) -> str | None:
        return None if path is None else at_home(path)

    @field_validator("new", mode="before")
    @classmethod
    def _sizes_have_names(cls, told: Any) -> Any:
        """One line that has them, where a union would tell what a table has to be."""
        if not (isinstance(told, dict | NewModelConfig) or (isinstance(told, str) and told in SIZES)):
            raise ValueError(f"neither a table nor one of our sizes: {', '.join(SIZES)}")
        return cast("Any", told)

    @model_validator(mode="after")
    def _new_tokens_can_be_learned(self) -> ModelConfig:
        if self.new_tokens and self.path is None:
            raise ValueError("new_tokens: a model from nothing has a tokenizer of its own")
        if self.new_tokens and self.lora is not None:
            raise ValueError("new_tokens: adapters do not train the rows of new tokens")
        return self

    @model_validator(mode="after")
    def _adapters_adapt_something(self) -> ModelConfig:
        if self.lora is not None and self.path is None:
            raise ValueError("lora: a model from nothing is in no folder and its adapter fits no other: give path")
        return self

    @property
    def shape(self) -> NewModelConfig:
        """The shape of a model from nothing."""
        return SIZES[self.new] if isinstance(self.new, str) else self.new

    def compute_dtype(self, device: torch.device) -> torch.dtype:
        """What the layers compute in on `device`."""
        if self.precision == "auto":
            return torch.bfloat16 if device.type == "cuda" else torch.float32
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32
