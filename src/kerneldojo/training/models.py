"""Models: our own small ones, made from nothing, and anybody else's, opened.

A checkpoint is a whole model or an adapter: low-rank matrices and the name of the model that they were trained on. What
is trained from an adapter on are these same matrices (a second pair on top would be another model, and one in their
place would throw away what they know), so that SFT and RL with LoRA follow one another as they do with all weights.

A small model is an ordinary Hugging Face checkpoint of a common shape, so that whatever samples from or trains a large
one does so with this one too. Its weights are random until `dojo train sft` has seen to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from pydantic import Field, field_validator, model_validator

from kerneldojo.schema import Settings
from kerneldojo.schema.base import at_home
from kerneldojo.training.settings import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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


HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""`owner/name`, which the hub may know."""


def check_path(path: str) -> None:
    """Refuse what can be no checkpoint, without asking the hub for it.

    Raises:
        ConfigError: there is no such folder, or no model in it.
    """
    wrong = _what_is_wrong(path)
    if wrong:
        raise ConfigError(f"model.path: {wrong}")


def _what_is_wrong(path: str) -> str:
    folder = Path(path)
    if not path:
        return "is empty"
    if folder.is_dir():
        names = ("config.json", "adapter_config.json")
        return "" if any((folder / name).is_file() for name in names) else f"{path} has no {' and no '.join(names)}"
    if folder.exists():
        return f"{path} is not a folder"
    # A name of the hub, unless it begins with a folder that is here: then it is a misspelt path.
    is_name = HUB_NAME.fullmatch(path) and not Path(folder.parts[0]).exists()
    return "" if is_name else f"there is no folder {path} (and a name of the hub is owner/name)"


@contextmanager
def loading(what: str, path: str, key: str = "model.path") -> Generator[None]:
    """Tell in one line why `what` of `path` cannot be loaded: every library involved has exceptions of its own.

    Raises:
        ConfigError: with that line.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}: cannot load the {what} of {path}: {reason[:200]}") from error


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
        base = _base_of(base)
    model = new_model(config.shape, tokenizer, seed) if base is None else load_model(base)
    return model, _load_adapter(model, start, config.lora)


def is_adapter(path: str) -> bool:
    """Whether a checkpoint is an adapter rather than a whole model."""
    return _adapter_config(path) is not None


def _adapter_config(path: str) -> dict[str, Any] | None:
    from transformers.utils.peft_utils import find_adapter_config_file

    found = find_adapter_config_file(path)
    return None if found is None else json.loads(Path(found).read_text("utf-8"))


def _base_of(path: str) -> str:
    """The model that the adapter in `path` was trained on."""
    base = (_adapter_config(path) or {}).get("base_model_name_or_path")
    if not base:
        raise ConfigError(f"model.path: the adapter in {path} does not say which model it belongs to")
    if wrong := _what_is_wrong(base):
        raise ConfigError(f"model.path: the adapter in {path} belongs to {base}, which cannot be loaded: {wrong}")
    if is_adapter(base):
        raise ConfigError(f"model.path: the adapter in {path} belongs to another adapter, {base}")
    return base


def _load_adapter(model: PreTrainedModel, path: str, told: LoRAConfig | None) -> Any:
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


def num_parameters(model: torch.nn.Module) -> int:
    """How many numbers the model has; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
