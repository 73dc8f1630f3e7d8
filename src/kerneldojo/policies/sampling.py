"""From logits to the next tokens, and their log-probabilities under the distribution they were really drawn from.

Every row has its own stream of uniform numbers, drawn beforehand from its own seed by a counter-based generator
(Philox; Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): what a row samples does not depend on its
neighbours, on the size of the batch or on the order of the rows, but for rounding.
"""

from __future__ import annotations

import numpy as np
import torch

BLOCK = 128
"""Words whose probabilities are summed up together."""


def uniforms(seed: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) that depend on `seed` alone; a longer stream begins with the shorter one."""
    return np.random.Generator(np.random.Philox(seed % (1 << 128))).random(count)


def log_distribution(
    logits: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor | None = None, top_k: int = 0
) -> torch.Tensor:
    """Log-probabilities that tokens are sampled from: scaled, truncated, renormalised. Shapes (B, V) to (B, V), fp32.

    Args:
        logits: Of shape (B, V), any floating dtype.
        temperature: Of shape (B,), in fp32; rows with 0 are treated as 1 here.
        top_p: Of shape (B,), in fp32: the smallest set of tokens with at least this probability (nucleus sampling,
            Holtzman et al. 2020). None for the whole distribution.
        top_k: Only the `top_k` likeliest tokens; 0 for all.
    """
    scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    log_probs = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    if top_k and top_k < log_probs.shape[-1]:
        smallest = log_probs.topk(top_k, dim=-1).values[:, -1:]
        log_probs = torch.log_softmax(log_probs.masked_fill(log_probs < smallest, -torch.inf), dim=-1)
    if top_p is not None:
        ordered, order = log_probs.sort(dim=-1, descending=True)
        probabilities = ordered.exp()
        # A token stays if what comes before it falls short of top_p: the first one always does.
        dropped = probabilities.cumsum(-1) - probabilities >= top_p[:, None]
        dropped[:, 0] = False
        log_probs = log_probs.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
        log_probs = torch.log_softmax(log_probs, dim=-1)
    return log_probs


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor | None, top_k: int, draws: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens, and their log-probabilities under what they were drawn from; see the two functions that it uses."""
    distribution = log_distribution(logits, temperature, top_p, top_k)
    tokens = next_tokens(distribution, draws)
    return tokens, distribution.gather(-1, tokens[:, None]).squeeze(-1)


def next_tokens(log_probs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Sample by the inverse of the distribution function: the first token whose cumulated probability exceeds a draw.

    First the block in which that happens is found, then the token in it: a running sum over a whole vocabulary, row by
    row, keeps few of a GPU's processors busy, and sums of blocks all of them.

    Args:
        log_probs: Of shape (B, V), normalised.
        draws: Uniform numbers in [0, 1), of shape (B,), float64.

    Returns:
        Token ids of shape (B,), int64; never one of probability 0.
    """
    size = log_probs.shape[-1]
    if size % BLOCK:
        log_probs = torch.nn.functional.pad(log_probs, (0, -size % BLOCK), value=-torch.inf)
    # In float64, so that the tail of a large vocabulary is not lost in the sum's rounding.
    blocks = log_probs.double().exp_().unflatten(-1, (-1, BLOCK))
    sums = blocks.sum(-1).cumsum(-1)
    block, rest = _first_above(sums, draws[:, None] * sums[:, -1:])
    inside = blocks.gather(1, block[..., None].expand(-1, 1, BLOCK)).squeeze(1).cumsum(-1)
    token, _ = _first_above(inside, rest)
    # Where nothing is a number the last token is as good as any: a broken model must not lead out of the vocabulary.
    return (block * BLOCK + token).squeeze(-1).clamp_(max=size - 1)


def _first_above(cumulated: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index of the first sum above `target`, and what of `target` is left of those before it; both (B, 1)."""
    # The last float below the whole keeps the target inside even if it rounds up to it.
    whole = cumulated[:, -1:]
    target = torch.minimum(target, torch.nextafter(whole, torch.zeros_like(whole)))
    # `right`: where a token has probability 0 the sum stays level, and the first index *above* the target skips it.
    index = torch.searchsorted(cumulated, target, right=True).clamp_(max=cumulated.shape[-1] - 1)
    before = torch.where(index > 0, cumulated.gather(1, (index - 1).clamp_(min=0)), 0.0)
    return index, target - before
