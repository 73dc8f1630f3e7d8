"""The learner: a model, its tokenizer and its optimisers on this process's device, and the few things done with them.

It scores answers, adds gradients up over micro-batches, takes a step, and writes or takes up a checkpoint, with all
weights or adapters alone, on one device or on several. What is learned *from* is not its business: supervised training
and RL hand it batches and a loss.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from kerneldojo.algorithms.log_probs import TokenLogProbs
from kerneldojo.policies.hub import located
from kerneldojo.policies.layers import compile_layers, narrow_residual
from kerneldojo.policies.rows import SamplerConfig, Samples, ServedConfig, end_ids_of
from kerneldojo.policies.sampler import Sampler
from kerneldojo.policies.weights import make_room
from kerneldojo.training.checkpoints import load_state, random_state, restore_random_state
from kerneldojo.training.model_config import ModelConfig
from kerneldojo.training.models import add_rows, open_model
from kerneldojo.training.optimizing import OptimizerConfig, Optimizers, check_rows
from kerneldojo.training.packing import WIDTH_MULTIPLE, Batch, Sample, make_batches
from kerneldojo.training.parallel import (
    Ranks,
    full_tensor,
    optimizer_state,
    restore_optimizer_state,
    shard,
    whole_model,
)
from kerneldojo.training.paths import check_path, loading
from kerneldojo.training.scoring import Scorer, score_all, traits_of
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.skeleton import fill, open_once, take_weights
from kerneldojo.training.tokens import add_tokens, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from kerneldojo.policies.served import ServedSampler

Loss = Callable[[Batch, Tensor], Tensor]
"""From a batch and the (K,) log-probabilities of its targets to the share of these in the loss of the whole step."""


class Learner:
    """A model that is trained."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: ModelConfig,
        optimizer: OptimizerConfig,
        ranks: Ranks,
        adapter: Any = None,
        sampler: SamplerConfig | ServedConfig | None = None,
    ) -> None:
        """Put `model` (float32, on the CPU; a skeleton on other ranks) on the device, or a share of it on each rank's.

        `adapter`: peft's wrapper. `sampler`: for a learner that answers, too, by itself or by a server.

        Raises:
            ConfigError: a server cannot sample for it, in one line.
        """
        self.tokenizer, self.config, self.ranks, self.adapter = tokenizer, config, ranks, adapter
        self.dtype = config.compute_dtype(ranks.device)
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            if adapter is not None:
                model.enable_input_require_grads()
        check_rows(model, optimizer, ranks.count)
        # Tried out on the CPU: no device of several ranks ever has all of the model.
        traits = ranks.from_first(traits_of(model) if ranks.is_first else None)
        weights = take_weights(model) if ranks.count > 1 else {}
        if self.dtype != torch.float32 and config.residual == "same":
            narrow_residual(model)
        is_fused = config.fused and ranks.device.type == "cuda"
        self.scorer = Scorer(model, self.dtype, is_fused=is_fused, traits=traits)
        if ranks.count == 1:
            cast("Any", self.scorer).to(ranks.device)
        # What samples has whole weights of its own. Its model is copied before this one is divided, which cannot be.
        self._mirror: PreTrainedModel | None = None
        self._served: ServedSampler | None = None
        self._is_published = False
        self.sampler: Samples | None = None
        if isinstance(sampler, ServedConfig):
            self.sampler = self._served = self._new_served(sampler)
        elif sampler is not None:
            self.sampler = self._new_sampler(sampler)
        if config.compile and ranks.device.type == "cuda":
            compile_layers(model)
        shard(self.scorer, ranks, self.dtype)
        if ranks.count > 1:
            fill(model, weights, ranks)
            self._refresh_mirror()
        self.optimizers = Optimizers(self.scorer, optimizer)
        self.pad_id = int(cast("Any", tokenizer.pad_token_id or 0))

    @property
    def model(self) -> PreTrainedModel:
        """The model itself."""
        return self.scorer.model

    @property
    def width_multiple(self) -> int:
        """What widths of rows are rounded up to, where that is faster and goes past no position that the model has."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        return WIDTH_MULTIPLE if self.ranks.device.type == "cuda" and positions % WIDTH_MULTIPLE == 0 else 1

    def pack(
        self,
        samples: Sequence[Sample],
        row_tokens: int,
        batch_tokens: int,
        *,
        chosen: Sequence[int] | None = None,
        any_order: bool = False,
    ) -> list[Batch]:
        """Batches that suit the model and the device; see `packing.make_batches`."""
        return make_batches(
            samples,
            chosen=chosen,
            row_tokens=row_tokens,
            batch_tokens=batch_tokens,
            pad_id=self.pad_id,
            any_order=any_order,
            alone=not self.scorer.traits.can_pack,
            width_multiple=self.width_multiple,
        )

    def score(self, batches: Sequence[Batch], num_tokens: int, temperature: float) -> TokenLogProbs:
        """(num_tokens,) log-probabilities and entropies of a whole step; every rank scores its share."""
        self.scorer.eval()
        mine = [batch for batch, _ in self.ranks.even_share(batches)]
        if self.ranks.count > 1 and mine and not self.ranks.even_share(batches)[-1][1]:
            # The repeat keeps the ranks in step; its scores would be counted twice.
            scores = score_all(self.scorer, mine[:-1], num_tokens, temperature, self.ranks.device)
            score_all(self.scorer, mine[-1:], num_tokens, temperature, self.ranks.device)
        else:
            scores = score_all(self.scorer, mine, num_tokens, temperature, self.ranks.device)
        return TokenLogProbs(self.ranks.total(scores.log_probs), self.ranks.total(scores.entropy))

    def add_gradients(self, batches: Sequence[Batch], loss: Loss, temperature: float = 1.0) -> float:
        """Add the gradients of `loss` over all batches of a step; returns the loss of the step, over all ranks."""
        self.scorer.train()
        total = torch.zeros((), dtype=torch.float64)
        for batch, counts in self.ranks.even_share(batches):
            placed = batch.to(self.ranks.device)
            value = loss(placed, self.scorer(placed, temperature).log_probs) if counts else None
            if value is None:  # a repeat: the passes are made for the other ranks' sake
                value = self.scorer(placed, temperature).log_probs.sum() * 0.0
            (value * self.ranks.count).backward()  # FSDP averages over ranks what is to be summed
            total += value.detach().double().cpu()
        return float(self.ranks.total(total))

    def step(self, step: int, progress: float, loss: float) -> tuple[float, float] | None:
        """Clip and apply the gradients; returns their norm and the rate.

        Where loss or gradients are not finite the weights stay as they are and None is returned.
        """
        norm = float(self.optimizers.clip())
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizers.zero_grad()
            return None
        self._is_published = False
        return norm, self.optimizers.step(step, progress)

    def _new_sampler(self, config: SamplerConfig) -> Sampler:
        """Samples in what the layers compute in: in float32 from the model itself, else from a copy of its own."""
        device = None
        if self.dtype == torch.bfloat16:
            config = config.model_copy(update={"dtype": "bfloat16"})
            device = self.ranks.device if self.ranks.count > 1 else None
        elif self.ranks.count > 1:
            self._mirror = copy.deepcopy(self.model).requires_grad_(False).eval()
            make_room(self._mirror, self.ranks.device)
        return Sampler(self._mirror or self.model, end_ids_of(self.model, self.tokenizer), config, device=device)

    def _new_served(self, config: ServedConfig) -> ServedSampler:
        """Asks a server, which is given the weights."""
        if self.adapter is not None:
            raise ConfigError("sampling.served: adapters cannot be served; leave it out, or train all weights")
        if find_spec("openai") is None:
            raise ConfigError("sampling.served: needs openai, which is not installed: install kerneldojo[policies]")
        from kerneldojo.policies.served import ServedSampler

        assert config.weights is not None
        positions = getattr(self.model.config, "max_position_embeddings", None)
        try:
            return ServedSampler(config, config.weights, end_ids_of(self.model, self.tokenizer), positions)
        except ValueError as error:
            raise ConfigError(f"sampling.served: {error}") from error

    def refresh_sampler(self, *, changed: bool = False) -> None:
        """Let the sampler know today's weights (its own copies it refreshes itself). Every rank must call this.

        `changed`: they are others than after the last step; a server is not given the same ones again.

        Raises:
            ConfigError: a server does not take them, in one line.
        """
        self._refresh_mirror()
        if self._served is None:
            return
        was_lost = any(self.ranks.gather(self._served.was_lost))  # it may be another one now, with weights of its own
        if self._is_published and not was_lost and not changed:
            return
        save, wrong = self.gather_weights(self.dtype), ""
        if self.ranks.is_first:
            try:
                self._served.publish(save)
            except (ConnectionError, OSError) as error:
                wrong = str(error)
        if wrong := self.ranks.from_first(wrong):
            raise ConfigError(f"sampling.served: {wrong}")
        self._is_published = True

    def _refresh_mirror(self) -> None:
        if self._mirror is None:
            return
        targets = dict(self._mirror.named_parameters())
        with torch.no_grad():
            for name, source in self.model.named_parameters():
                targets[name].copy_(full_tensor(source))

    def without_adapter(self) -> AbstractContextManager[Any]:
        """A context in which the adapters are off, so that the model is the one they were put on."""
        return self.adapter.disable_adapter()

    def state(self) -> dict[str, Any]:
        """All that a checkpoint needs beside the weights. Every rank must ask for it."""
        device = self.ranks.device
        return {
            "optimizer": optimizer_state(self.scorer, self.optimizers.each),
            "random": self.ranks.gather(random_state(device)),
        }

    def restore(self, checkpoint: Path) -> dict[str, Any]:
        """Take up optimiser and generators of a checkpoint (weights come with `open_learner`); returns its state."""
        state = load_state(checkpoint, mapped=self.ranks.count > 1)
        restore_optimizer_state(self.scorer, self.optimizers.each, state.pop("optimizer"))
        random = state["random"]
        if len(random) == self.ranks.count:
            restore_random_state(random[self.ranks.rank], self.ranks.device)
        return state

    def gather_weights(self, dtype: torch.dtype = torch.float32) -> Callable[[Path], object]:
        """What writes model and tokenizer into a folder. Every rank must ask for it; the first one calls it."""
        weights = whole_model(self.model, self.ranks) if self.ranks.count > 1 or dtype != torch.float32 else None
        if weights is not None and dtype != torch.float32:
            weights = {name: one.to("cpu", dtype) for name, one in weights.items()}

        def save(folder: Path) -> None:
            if self.adapter is None:
                self.model.save_pretrained(folder, state_dict=weights)
            else:
                named = None if weights is None else {f"base_model.model.{key}": one for key, one in weights.items()}
                self.adapter.save_pretrained(folder, state_dict=named)
            cast("Any", self.tokenizer).save_pretrained(folder)

        return save


def open_learner(
    config: ModelConfig,
    optimizer: OptimizerConfig,
    ranks: Ranks,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    sampler: SamplerConfig | ServedConfig | None = None,
) -> Learner:
    """The model that `config` names, or with `checkpoint` the same as it was there.

    `tokenizer`: for a model from nothing, which has none of its own yet. `sampler`: for a learner that answers, too, by
    itself or by a server (whose `weights` are then a folder).

    Raises:
        ValueError: a model from nothing without a tokenizer.
        ConfigError: in one line, the model cannot be loaded, or not be trained as `config.lora` says.
    """
    saved = None if checkpoint is None else str(checkpoint / "model")
    source = saved or config.path
    if config.path is not None:
        check_path(config.path)
        if saved is None:
            with loading("model", config.path):
                located(config.path)
    if source is not None:
        with loading("tokenizer", source, "model.path" if saved is None else "--resume"):
            tokenizer = load_tokenizer(source)
    if tokenizer is None:
        raise ValueError("a model from nothing needs a tokenizer")
    new_ids = add_tokens(tokenizer, config.new_tokens) if saved is None else []

    def open_it() -> tuple[PreTrainedModel, Any]:
        model, adapter = open_model(config, tokenizer, seed, saved)
        if new_ids and adapter is not None:
            raise ConfigError("model.new_tokens: adapters do not train the rows of new tokens")
        add_rows(model, new_ids)
        _tell_end(model, tokenizer)
        return model, adapter

    model, adapter = open_once(ranks, open_it)
    return Learner(model, tokenizer, config, optimizer, ranks, adapter, sampler)


def _tell_end(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let the model's own settings, which go into its checkpoints, name every token that ends an answer: other engines
    stop at those alone, and a base model's do not know its chat template's."""
    settings, ends = cast("Any", model).generation_config, end_ids_of(model, tokenizer)
    known = getattr(settings, "eos_token_id", None)
    if settings is not None and set(ends) != set(known if isinstance(known, list) else [known]):
        settings.eos_token_id = list(ends)
