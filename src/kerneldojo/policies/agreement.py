"""Whether decoding a model token by token from our cache gives what the model gives for the whole text at once.

transformers has hundreds of architectures, and a few keep positions, masks or caches in ways of their own. Sampled from
here they would write something, with log-probabilities that are not the model's, and RL would learn from them. So a
model is tried once, on a few tokens, before it is trusted.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kerneldojo.policies.decoding import DecodingState, Start

PROMPTS = ((11, 7, 5, 3, 2), (2, 13, 4))
"""Of different lengths, so that rows have positions of their own."""
ANSWER = (1, 17, 6, 8)
"""Fed to both."""
LENGTH = 64
MOST = 0.25
"""Largest disagreement that is rounding: a hundredth is usual in bfloat16, and a wrong position changes everything."""


@torch.inference_mode()
def disagreement(model: Any) -> float:
    """How far decoding is off, as a share of the logits' own size; 0 for not at all, NaN where there are no numbers.

    Args:
        model: a causal model of transformers in evaluation mode, surrounded as for sampling.
    """
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    prompts, answer = [[token % vocabulary for token in text] for text in PROMPTS], [one % vocabulary for one in ANSWER]
    decoded = _decoded(model, prompts, answer)
    device = decoded.device
    worst = 0.0
    for row, prompt in enumerate(prompts):
        whole = model(input_ids=torch.tensor([[*prompt, *answer]], device=device), use_cache=False).logits[0].float()
        wanted = whole[len(prompt) - 1 :]
        size = (wanted - wanted.mean(-1, keepdim=True)).norm()
        off = float((decoded[row] - wanted).norm() / size) if size != 0 else 0.0
        worst = off if math.isnan(off) else max(worst, off)
    return worst


def _decoded(model: Any, prompts: list[list[int]], answer: list[int]) -> torch.Tensor:
    """(prompts, 1 + answer, vocabulary): what follows each prompt, and each token of the answer after it."""
    state = DecodingState(model, (), model.config.num_hidden_layers, len(prompts), LENGTH, LENGTH)
    width = max(map(len, prompts)) - 1
    padded = [prompt[:-1] + [0] * (width - len(prompt) + 1) for prompt in prompts]
    state.cache.prefill(torch.arange(len(prompts), device=state.device), None)
    model(input_ids=torch.tensor(padded, device=state.device), **state.cached)
    state.begin([Start(row, prompt[-1], len(prompt) - 1, LENGTH, 0.0, 1.0, 0) for row, prompt in enumerate(prompts)])
    found = [state.logits(len(prompts), LENGTH).float()]
    for token in answer:
        state.tokens.fill_(token)
        state.positions += 1
        found.append(state.logits(len(prompts), LENGTH).float())
    return torch.stack(found, 1)
