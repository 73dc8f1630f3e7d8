"""Whether a server that samples follows the trainer's weights: seen before anything is learned from what it says."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from kerneldojo.policies.rows import Sampled, Samples
from kerneldojo.training.learner import Learner
from kerneldojo.training.packing import Sample, token_offsets
from kerneldojo.training.settings import ConfigError

MOST_NATS, LEAST_NATS = 0.3, 0.02
"""Mean difference a token between a server's log-probabilities and the trainer's that rounding may make: at most, and
in any case."""
MOST_MISSED = 0.1
"""Share of what a change of the weights makes of log-probabilities by which a server that follows it may be off."""


def check_follows(learner: Learner, sampler: Samples) -> None:
    """See that a server samples with the trainer's weights, and follows when they change. Every rank must call this.

    For that they are changed, half of them by a factor of two, which can be undone to the bit. A server that takes all
    of them but, say, an output layer that is tied to the embeddings would otherwise be noticed by nobody.

    Raises:
        ConfigError: it does not, in one line.
    """
    samples, told = _answers(learner, sampler)
    if not (off := _apart(_scores(learner, samples), told)) < MOST_NATS:
        raise ConfigError(
            f"sampling.served: the server's log-probabilities are not the trainer's ({off:.2f} nats a token apart): "
            "does it serve this model, and read the folder of sampling.served.weights?"
        )
    with _changed(learner):
        learner.refresh_sampler(changed=True)
        samples, told = _answers(learner, sampler)
        scores = _scores(learner, samples)
    learner.refresh_sampler(changed=True)
    off, moved = _apart(scores, told), _apart(scores, _scores(learner, samples))
    if not off < max(LEAST_NATS, min(MOST_NATS, MOST_MISSED * moved)):
        raise ConfigError(
            f"sampling.served: the server does not follow all changes of the weights: after one that makes {moved:.2f} "
            f"nats a token it is off by {off:.2f} (vLLM on processors keeps an output layer tied to the embeddings)"
        )


@contextmanager
def _changed(learner: Learner) -> Generator[None]:
    """Every other weight is twice what it is."""
    chosen = [one for _, one in learner.model.named_parameters()][::2]
    with torch.no_grad():
        for one in chosen:
            one.mul_(2.0)
    try:
        yield
    finally:
        with torch.no_grad():
            for one in chosen:
                one.mul_(0.5)


def _answers(learner: Learner, sampler: Samples) -> tuple[list[Sample], Tensor]:
    """A few short answers of the server, and what it says their (num_tokens,) log-probabilities are."""
    prompt = tuple(cast("Any", learner.tokenizer)("import torch\n", add_special_tokens=False)["input_ids"])
    found: list[Sampled] = []
    if learner.ranks.is_first:
        waiting = [[sampler.row(prompt, 16, seed=seed) for seed in range(4)]]
        sampler.serve(lambda _free, _idle: waiting.pop() if waiting else None, lambda _, one: found.append(one))
    found = learner.ranks.from_first(found)
    if lost := next((one.error for one in found if one.error), ""):
        raise ConfigError(f"sampling.served: {lost}")
    told = torch.tensor([one for each in found for one in each.log_probs])
    return [Sample(prompt, one.ids) for one in found], told


def _scores(learner: Learner, samples: list[Sample]) -> Tensor:
    """(num_tokens,) log-probabilities by the trainer."""
    longest = max(map(len, samples))
    batches = learner.pack(samples, longest, longest * len(samples))
    return learner.score(batches, token_offsets(samples)[-1], 1.0).log_probs.cpu()


def _apart(first: Tensor, second: Tensor) -> float:
    """Mean difference, in nats."""
    return float((first - second).abs().mean())
