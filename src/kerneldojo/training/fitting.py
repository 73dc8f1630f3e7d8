"""A configuration beside the model that was opened for it: what only both together can tell, before the first step."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from kerneldojo.episodes import PromptTooLong, first_episode, prompt
from kerneldojo.policies.rows import Sampled, Samples
from kerneldojo.policies.sampler import Sampler
from kerneldojo.schema import Problem
from kerneldojo.training.config import RLConfig
from kerneldojo.training.learner import Learner
from kerneldojo.training.packing import Sample, token_offsets
from kerneldojo.training.settings import ConfigError


def check_template(config: RLConfig, problem: Problem, learner: Learner) -> None:
    """Write a prompt before anything else: a chat template is a program, and `play.template` are its arguments.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        prompt(first_episode(problem, config.play), learner.tokenizer)
    except PromptTooLong:  # is not the template's fault, and ends an episode rather than a run
        return
    except ValueError as error:
        raise ConfigError(f"{'play.template' if config.play.template else 'model.path'}: {error}") from error


def fitted(config: RLConfig, learner: Learner) -> RLConfig:
    """`config` with prompts that leave room for an answer in the model's positions.

    Without a limit of their own, the longest that do. An episode ends where its next prompt does not fit.

    Raises:
        ConfigError: prompts and answers as long as they may be do not fit the model together.
    """
    play = config.play
    positions = getattr(learner.model.config, "max_position_embeddings", None)
    if positions is None:
        return config
    room = positions - play.max_answer_tokens
    if room < (play.max_prompt_tokens or 1):
        prompts = "" if play.max_prompt_tokens is None else f"prompts of {play.max_prompt_tokens} tokens and "
        raise ConfigError(
            f"play.max_answer_tokens: {prompts}answers of {play.max_answer_tokens} do not fit the model, which has "
            f"{positions} positions"
        )
    limit = room if play.max_prompt_tokens is None else play.max_prompt_tokens
    return config.model_copy(update={"play": play.model_copy(update={"max_prompt_tokens": limit})})


def check_sampler(learner: Learner) -> None:
    """See that what is sampled comes from the model as it is. Every rank must call this.

    Raises:
        ConfigError: it does not.
    """
    sampler = learner.sampler
    assert sampler is not None
    is_served = not isinstance(sampler, Sampler)
    learner.refresh_sampler()
    try:
        sampler.check()
    except ValueError as error:
        raise ConfigError(f"{'sampling.served' if is_served else 'model'}: {error}") from error
    if is_served:
        _check_served(learner, sampler)


MOST_NATS, LEAST_NATS = 0.3, 0.02
"""Mean difference a token between a server's log-probabilities and the trainer's that rounding may make: at most, and
in any case."""
MOST_MISSED = 0.1
"""Share of what a change of the weights makes of log-probabilities by which a server that follows it may be off."""


def _check_served(learner: Learner, sampler: Samples) -> None:
    """See that a server samples with the trainer's weights, and follows when they change.

    For that they are changed, half of them by a factor of two, which can be undone to the bit. A server that takes all
    of them but, say, an output layer that is tied to the embeddings would otherwise be noticed by nobody.
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
