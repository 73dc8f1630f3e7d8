"""A configuration beside the model that was opened for it: what only both together can tell, before the first step."""

from __future__ import annotations

from kerneldojo.episodes import PromptTooLong, first_episode, prompt
from kerneldojo.policies.sampler import Sampler
from kerneldojo.schema import Problem
from kerneldojo.training.config import RLConfig
from kerneldojo.training.following import check_follows
from kerneldojo.training.learner import Learner
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
        check_follows(learner, sampler)
