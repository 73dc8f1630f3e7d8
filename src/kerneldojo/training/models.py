"""Models: our own small ones, made from nothing, and anybody else's, opened.

A small model is an ordinary Hugging Face checkpoint of a common shape, so that whatever samples from or trains a large
one does so with this one too. Its weights are random until `dojo train sft` has seen to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from pydantic import Field, model_validator

from kerneldojo.schema import Frozen

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class NewModelConfig(Frozen):
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


class LoRAConfig(Frozen):
    """Low-rank adapters instead of all weights (peft)."""

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the layers that are adapted; the output layer never is."""


class ModelConfig(Frozen):
    """Which model is trained."""

    path: str | None = None
    """A checkpoint: a folder or a name of the hub. None: `new`."""
    new: NewModelConfig | Literal["laptop", "gpu", "gpu-large"] = "laptop"
    """Shape of a model from nothing, by itself or by the name of one of our sizes."""
    lora: LoRAConfig | None = None
    """Adapters instead of all weights; None for all weights."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the layers; the weights that the optimiser sees are float32. `auto`: bfloat16 on CUDA."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass rather than keeping them."""

    @property
    def shape(self) -> NewModelConfig:
        """The shape of a model from nothing."""
        return SIZES[self.new] if isinstance(self.new, str) else self.new

    def compute_dtype(self, device: torch.device) -> torch.dtype:
        """What the layers compute in on `device`."""
        if self.precision == "auto":
            return torch.bfloat16 if device.type == "cuda" else torch.float32
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32


def new_model(shape: NewModelConfig, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> PreTrainedModel:
    """A model with random weights for `tokenizer`, float32, on the CPU; the same for the same seed."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config
    from transformers.utils import logging

    logging.disable_progress_bar()
    config: Any = (LlamaConfig if shape.family == "llama" else Qwen3Config)(
        vocab_size=len(cast("Any", tokenizer)),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=cast("Any", tokenizer.eos_token_id),
        pad_token_id=cast("Any", tokenizer.pad_token_id),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    return cast("PreTrainedModel", model.float())


def load_model(path: str) -> PreTrainedModel:
    """A checkpoint as float32 master weights on the CPU."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # a run has a display of its own
    return cast("PreTrainedModel", AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32))


def with_lora(model: PreTrainedModel, config: LoRAConfig) -> Any:
    """`model` with adapters inside (peft's wrapper); only these ask for gradients."""
    from peft import LoraConfig, get_peft_model

    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=config.dropout,
        target_modules=targets,
    )
    return get_peft_model(model, settings)


def num_parameters(model: torch.nn.Module) -> int:
    """How many numbers the model has; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
