"""Models: made from nothing, or opened, whole or as an adapter with the model that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from kerneldojo.training.adapters import base_of, is_adapter, load_adapter, with_lora
from kerneldojo.training.model_config import ModelConfig, NewModelConfig
from kerneldojo.training.paths import loading

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
    if Path(path).is_dir():
        path = str(Path(path).absolute())  # adapters note it as the model that they belong to
    return cast("PreTrainedModel", AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32))


def add_rows(model: PreTrainedModel, ids: Sequence[int]) -> None:
    """Give new tokens rows in the embeddings and the output layer: the mean of those before them.

    A checkpoint may have more rows than its tokenizer has tokens; those were never trained, and are set, too.
    """
    if not ids:
        return
    if ids[-1] >= cast("Any", model.get_input_embeddings()).num_embeddings:
        model.resize_token_embeddings(ids[-1] + 1, mean_resizing=False)
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        weight: torch.Tensor = cast("Any", layer).weight
        with torch.no_grad():
            weight[ids[0] : ids[-1] + 1] = weight[: ids[0]].mean(dim=0)


def open_model(
    config: ModelConfig, tokenizer: PreTrainedTokenizerBase, seed: int, saved: str | None = None
) -> tuple[PreTrainedModel, Any]:
    """What `config` names, and peft's wrapper around it where adapters are trained (else None).

    `saved`: the model of a checkpoint of a run with this configuration, to go on from.

    Raises:
        ConfigError: it cannot be loaded, or not be trained as `config.lora` says.
    """
    start, key = saved or config.path, "model.path" if saved is None else "--resume"
    if start is None:
        model, adapter = new_model(config.shape, tokenizer, seed), None
    else:
        with loading("model", start, key):
            model, adapter = _load(config, tokenizer, seed, start)
    if adapter is None and config.lora is not None:
        adapter = with_lora(model, config.lora, seed)
    return (model if adapter is None else cast("PreTrainedModel", adapter.get_base_model())), adapter


def _load(
    config: ModelConfig, tokenizer: PreTrainedTokenizerBase, seed: int, start: str
) -> tuple[PreTrainedModel, Any]:
    """What is in `start`: a whole model and None, or the model that `config` begins with and the adapter around it."""
    if not is_adapter(start):
        return load_model(start), None
    base = config.path
    if base is not None and is_adapter(base):
        base = base_of(base)
    model = new_model(config.shape, tokenizer, seed) if base is None else load_model(base)
    return model, load_adapter(model, start, config.lora)


def num_parameters(model: torch.nn.Module) -> int:
    """How many numbers the model has; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
