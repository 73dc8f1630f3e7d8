"""Adapters: low-rank matrices inside a model (peft), and the name of the model that they were trained on.

What is trained from an adapter on are these same matrices (a second pair on top would be another model, and one in
their place would throw away what they know), so that SFT and RL with LoRA follow one another as they do with all
weights.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kerneldojo.training.model_config import LoRAConfig
from kerneldojo.training.paths import what_is_wrong
from kerneldojo.training.settings import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def with_lora(model: PreTrainedModel, config: LoRAConfig, seed: int = 0) -> Any:
    """`model` with adapters inside (peft's wrapper), the same for the same seed; only these ask for gradients.

    Raises:
        ConfigError: it has no such layers.
    """
    from peft import LoraConfig, get_peft_model

    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=config.dropout,
        target_modules=targets,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return get_peft_model(model, settings)
    except ValueError as error:
        raise ConfigError(f"model.lora.targets: {' '.join(str(error).split())[:200]}") from error


def is_adapter(path: str) -> bool:
    """Whether a checkpoint is an adapter rather than a whole model."""
    return _adapter_config(path) is not None


def _adapter_config(path: str) -> dict[str, Any] | None:
    from transformers.utils.peft_utils import find_adapter_config_file

    found = find_adapter_config_file(path)
    return None if found is None else json.loads(Path(found).read_text("utf-8"))


def base_of(path: str) -> str:
    """The model that the adapter in `path` was trained on."""
    base = (_adapter_config(path) or {}).get("base_model_name_or_path")
    if not base:
        raise ConfigError(f"model.path: the adapter in {path} does not say which model it belongs to")
    if wrong := what_is_wrong(base):
        raise ConfigError(f"model.path: the adapter in {path} belongs to {base}, which cannot be loaded: {wrong}")
    if is_adapter(base):
        raise ConfigError(f"model.path: the adapter in {path} belongs to another adapter, {base}")
    return base


def load_adapter(model: PreTrainedModel, path: str, told: LoRAConfig | None) -> Any:
    """`model` with the adapter in `path` inside, to be trained on."""
    from peft import LoraConfig, PeftConfig, PeftModel

    settings = PeftConfig.from_pretrained(path)
    if not isinstance(settings, LoraConfig):
        raise ConfigError(f"model.path: the adapter in {path} is no LoRA")
    wanted: set[str] = set()
    settings.lora_dropout = 0.0 if told is None else told.dropout  # a matter of training, not of what was learned
    if told is not None:
        for name, given, found in (("rank", told.rank, settings.r), ("alpha", told.alpha, settings.lora_alpha)):
            if given != found:
                raise ConfigError(f"model.lora: {name} is {given}, but {found} in the adapter {path}")
        wanted = _targeted(model, told.targets)
    adapter = PeftModel.from_pretrained(model, path, is_trainable=True, config=settings)
    if told is not None and wanted != _adapted(model):
        raise ConfigError(f"model.lora: targets are other layers than those of the adapter {path}")
    return adapter


def _targeted(model: PreTrainedModel, targets: str | tuple[str, ...]) -> set[str]:
    """Names of the layers that `targets` means, by peft's rules: ends of names, or an expression for all of one."""
    if targets == "all-linear":
        output = model.get_output_embeddings()
        modules = model.named_modules()
        return {name for name, one in modules if isinstance(one, torch.nn.Linear) and one is not output}
    names = [name for name, _ in model.named_modules()]
    if isinstance(targets, str):
        return {name for name in names if re.fullmatch(targets, name)}
    return {name for name in names if any(name == end or name.endswith(f".{end}") for end in targets)}


def _adapted(model: PreTrainedModel) -> set[str]:
    """Names of the layers that have an adapter inside."""
    from peft.tuners.lora import LoraLayer

    return {name for name, module in model.named_modules() if isinstance(module, LoraLayer)}
