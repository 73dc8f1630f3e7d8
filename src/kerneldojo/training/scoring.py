"""Scoring: the log-probabilities of given answers under a model, without ever building all logits.

Only the positions that predict an answer's token go through the output layer, a chunk at a time
(`algorithms.log_probs`). `Scorer` is the module that is trained and sharded: everything that touches weights happens
inside its `forward`, so that FSDP gathers the output layer too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from kerneldojo.algorithms import log_probs_from_hidden, log_probs_from_logits
from kerneldojo.algorithms.log_probs import TokenLogProbs
from kerneldojo.training.packing import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


ROUNDING = 1e-3
"""Share of the largest logit by which two ways to compute the same may differ; what is not the same differs by more."""


class Traits(NamedTuple):
    """What only a trial tells of a model."""

    is_plain: bool
    """See `has_plain_output`."""
    can_pack: bool
    """See `keeps_samples_apart`."""


class Scorer(nn.Module):
    """A causal model as a function from packed rows to log-probabilities of the answers in them."""

    def __init__(
        self,
        model: PreTrainedModel,
        dtype: torch.dtype = torch.float32,
        chunk_size: int | None = None,
        *,
        is_fused: bool = False,
        traits: Traits | None = None,
    ) -> None:
        """`dtype`: what the layers compute in; float32 weights are cast as they are used.

        `chunk_size`: tokens whose logits exist at once. None: 1024, or 4096 if `is_fused` (see `log_probs_from_hidden`)
        makes no float32 copies of them. `traits`: of the model, where they cannot be tried out here.
        """
        super().__init__()
        self.model = model
        self.dtype, self.is_fused = dtype, is_fused
        self.chunk_size = chunk_size or (4096 if is_fused else 1024)
        self.traits = traits or traits_of(model)

    def forward(self, batch: Batch, temperature: float = 1.0) -> TokenLogProbs:
        """(K,) log-probabilities and entropies of `batch.targets` at `temperature`, float32."""
        inputs: dict[str, Any] = {
            "input_ids": batch.input_ids,
            "position_ids": batch.position_ids,
            "attention_mask": None,
            "use_cache": False,
        }
        decoder = cast("Any", self.model).get_decoder() if self.traits.is_plain else self.model
        with torch.autocast(batch.input_ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            output = decoder(**inputs)
        if not self.traits.is_plain:
            logits = output.logits.flatten(0, 1)[batch.predictors]
            return log_probs_from_logits(logits, batch.targets, temperature, self.chunk_size)
        chosen = output.last_hidden_state.flatten(0, 1)[batch.predictors].to(self.dtype)
        weight = cast("Tensor", cast("Any", self.model).get_output_embeddings().weight).to(self.dtype)
        return log_probs_from_hidden(
            chosen, weight, batch.targets, temperature, self.chunk_size, is_fused=self.is_fused
        )


def traits_of(model: PreTrainedModel) -> Traits:
    """Try a model out, where it is."""
    return Traits(has_plain_output(model), keeps_samples_apart(model))


@torch.no_grad()
def has_plain_output(model: PreTrainedModel) -> bool:
    """Whether the logits are just hidden states times the output layer's weight, found out by trying.

    Some models scale or cap their logits, or have a bias; for these the logits are built, at the answers' positions.
    """
    inner = cast("Any", model)
    head = inner.get_output_embeddings()
    if head is None or not isinstance(getattr(head, "weight", None), Tensor):
        return False
    device = head.weight.device
    ids = torch.arange(1, 5, device=device)[None] % int(head.weight.shape[0])
    training = model.training
    model.eval()
    hidden = inner.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    logits = model(input_ids=ids, use_cache=False).logits
    model.train(training)
    return torch.allclose(logits.float(), (hidden @ head.weight.T).float(), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def keeps_samples_apart(model: PreTrainedModel) -> bool:
    """Whether of two samples in a row the second one does not see the first, found out by trying.

    Positions that start again tell most models so. Some look at none: BLOOM and MPT, which have ALiBi, OPT, Falcon
    before version 5.24 of transformers, and those that carry a state from token to token (Mamba).
    """
    inner = cast("Any", model)
    weight: Tensor = inner.get_input_embeddings().weight
    lengths = (8, 4)
    ids = torch.arange(sum(lengths), device=weight.device) % weight.shape[0]
    positions = torch.cat([torch.arange(length, device=weight.device) for length in lengths])
    training = model.training
    model.eval()
    packed = inner(input_ids=ids[None], position_ids=positions[None], use_cache=False).logits[0, lengths[0] :].float()
    alone = inner(input_ids=ids[None, lengths[0] :], use_cache=False).logits[0].float()
    model.train(training)
    return bool((packed - alone).abs().max() <= ROUNDING * alone.abs().max())


@torch.no_grad()
def score_all(
    scorer: nn.Module, batches: Sequence[Batch], num_tokens: int, temperature: float, device: torch.device
) -> TokenLogProbs:
    """(num_tokens,) log-probabilities and entropies over all batches, without gradients, on the CPU.

    Tokens that are in no batch are 0, so that sums over ranks with different batches are the whole. Nothing comes to
    the host before all is done: one batch's last kernels and the next one's first launches lie side by side.
    """
    found = torch.zeros((2, num_tokens), device=device)
    for batch in batches:
        placed = batch.to(device)
        scores = scorer(placed, temperature)
        found[0, placed.tokens] = scores.log_probs.float()
        found[1, placed.tokens] = scores.entropy.float()
    return TokenLogProbs(*found.cpu())
