"""An episode, step by step, in pure functions: the environment, asynchronous rollouts and training are made of these.

    episode = first_episode(problem, config)
    while not episode.finish:
        answer = ...                                 # a policy reads next_messages(episode)
        job = job_for(episode, answer)               # None where there is nothing to judge
        evaluation = judge(job) if job else None
        episode = with_turn(episode, answer, evaluation)

An episode has a fixed number of turns. Three things end it sooner: the token budget (`budget`; turns that were not
played are absent, not zero), an answer that cannot be judged, since the problem is invalid or the device is not made
for it (`refused`), and a fault of ours (`fault`). The turn of a refusal or a fault has no reward at all; but a refusal
would come out the same again, so that a run does not try it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kerneldojo.episodes.config import PlayConfig, config_of
from kerneldojo.episodes.context import Chat, PromptTooLong, chat
from kerneldojo.episodes.extraction import extract
from kerneldojo.episodes.feedback import feedback, not_parsed
from kerneldojo.episodes.render import Tokenizer, chat_ids, num_tokens
from kerneldojo.rewards import Reward, reward
from kerneldojo.schema import Answer, Candidate, Episode, Evaluation, Job, Message, Problem, Status, Turn, content_hash

NOTHING = Evaluation(status=Status.COMPILE_ERROR)
"""What an answer without code is worth: as much as one that does not compile."""


def first_episode(
    problem: Problem,
    config: PlayConfig,
    *,
    sample: int = 0,
    seed: int = 0,
    policy: str = "",
    id: str = "",
    tokenizer: Tokenizer | None = None,
) -> Episode:
    """An episode before its first turn.

    Args:
        problem: what is to be made faster.
        config: how it is played.
        sample: which attempt at this problem.
        seed: seed of the run; the episode's own is derived from it and the id.
        policy: name of the policy.
        id: unique within a run; by default `problem/sample`, with suite and level where the problem has them.
        tokenizer: counts the budget exactly; see `PlayConfig.max_prompt_tokens`.

    Returns:
        An episode to be continued; already finished with `budget` if the problem alone does not fit.
    """
    name = id or f"{episode_name(problem)}/{sample}"
    episode = Episode(
        id=name,
        problem=problem,
        sample=sample,
        language=config.language,
        device=config.device,
        policy=policy,
        seed=seed_of("episode", seed, name),
        settings=config.model_dump(mode="json"),
    )
    return episode if _fits(episode, config, tokenizer) else episode.model_copy(update={"finish": "budget"})


def episode_name(problem: Problem) -> str:
    """A problem's name with its suite and level, so that problems of two suites do not share one."""
    level = [] if problem.level is None else [str(problem.level)]
    return "/".join([problem.suite, *level, problem.name])


def by_episode_name(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Problems by `episode_name`, in their order.

    Raises:
        ValueError: two share one, as those of a suite that is named twice do.
    """
    found: dict[str, Problem] = {}
    for problem in problems:
        name = episode_name(problem)
        if name in found:
            raise ValueError(f"two problems have the same suite, level and name: {name}")
        found[name] = problem
    return found


def next_messages(episode: Episode, tokenizer: Tokenizer | None = None) -> tuple[Message, ...]:
    """The prompt of the next turn as a chat."""
    return messages_at(episode, len(episode.turns), tokenizer)


def messages_at(episode: Episode, turn: int, tokenizer: Tokenizer | None = None) -> tuple[Message, ...]:
    """The prompt of any turn as a chat; with the tokenizer of the run it holds what `render` does.

    Without it, which turns a budget left room for is estimated; the prompt of a turn that was played is never refused.

    Raises:
        PromptTooLong: the prompt of a turn to come does not fit the budget (then the episode has ended).
    """
    config = config_of(episode)
    if tokenizer is None and turn < len(episode.turns):
        return chat(episode, turn, config, must_fit=False).messages()
    return _chat(episode, turn, config, tokenizer).messages()


def prompt(episode: Episode, tokenizer: Tokenizer | None = None) -> tuple[tuple[Message, ...], tuple[int, ...] | None]:
    """The next prompt in both forms at the cost of one: messages, and ids where there is a tokenizer."""
    config = config_of(episode)
    found = _chat(episode, len(episode.turns), config, tokenizer)
    return found.messages(), None if tokenizer is None else tuple(chat_ids(found, config, tokenizer))


def job_for(episode: Episode, answer: Answer) -> Job | None:
    """The order to judge an answer; None where there is nothing to judge (no code, cut, or the policy failed)."""
    config = config_of(episode)
    candidate = _candidate(answer, config)
    if candidate is None:
        return None
    return Job(
        problem=episode.problem,
        candidate=candidate,
        device=config.device,
        protocol=config.protocol,
        baseline=config.baseline,
        precision=config.precision,
        timeout=config.judge_timeout,
        allow_degenerate=config.allow_degenerate,
    )


def with_turn(
    episode: Episode, answer: Answer, evaluation: Evaluation | None, tokenizer: Tokenizer | None = None
) -> Episode:
    """The episode after one more turn.

    Args:
        episode: not finished.
        answer: what the policy wrote.
        evaluation: the verdict on `job_for(episode, answer)`; None exactly where there was no job.
        tokenizer: counts the budget of the next prompt exactly.

    Returns:
        A new episode: `finish` is `fault` after a failed policy or judge, `refused` after a verdict that says that
        nothing can be judged, `turns` after the last turn, `budget` where the next prompt does not fit.

    Raises:
        ValueError: the episode has ended, or there is a verdict without a job or a job without a verdict.
    """
    if episode.finish:
        raise ValueError(f"{episode.id} has ended ({episode.finish})")
    config = config_of(episode)
    candidate = _candidate(answer, config)
    if (candidate is None) != (evaluation is None):
        raise ValueError(f"{episode.id}: a verdict belongs to every answer with code, and to no other")
    earned = _earned(answer, evaluation, config)
    turn = Turn(
        index=len(episode.turns),
        answer=answer,
        candidate=candidate,
        evaluation=evaluation,
        feedback=_feedback(answer, evaluation, config),
        reward=earned.value,
        plan_reward=earned.plan,
        code_reward=earned.code,
    )
    after = episode.model_copy(update={"turns": (*episode.turns, turn)})
    finish = ""
    if turn.reward is None:
        finish = "refused" if evaluation is not None and evaluation.status.is_refusal else "fault"
    elif len(after.turns) >= config.num_turns:
        finish = "turns"
    elif not _fits(after, config, tokenizer):
        finish = "budget"
    return after.model_copy(update={"finish": finish})


def answer_seed(episode: Episode) -> int:
    """Seed of the next answer alone: other episodes and turns do not influence it."""
    return seed_of("answer", episode.seed, str(len(episode.turns)))


def seed_of(purpose: str, seed: int, name: str) -> int:
    """A seed derived from another, below 2^31."""
    return int(content_hash(purpose, str(seed), name)[:8], 16) >> 1


def _chat(episode: Episode, turn: int, config: PlayConfig, tokenizer: Tokenizer | None) -> Chat:
    if tokenizer is None:
        return chat(episode, turn, config)
    return chat(episode, turn, config, partial(num_tokens, config=config, tokenizer=tokenizer))


def _fits(episode: Episode, config: PlayConfig, tokenizer: Tokenizer | None) -> bool:
    if config.max_prompt_tokens is None:
        return True
    try:
        _chat(episode, len(episode.turns), config, tokenizer)
    except PromptTooLong:
        return False
    return True


def _candidate(answer: Answer, config: PlayConfig) -> Candidate | None:
    if answer.finish != "stop":
        return None
    code = extract(answer.text, plan_open=config.plan_open, plan_close=config.plan_close).code
    return None if code is None else Candidate(source=code, language=config.language)


def _earned(answer: Answer, evaluation: Evaluation | None, config: PlayConfig) -> Reward:
    if answer.finish == "failed":
        return Reward(value=None, valid=False, reason=answer.error)
    return reward(NOTHING if evaluation is None else evaluation, config.reward)


def _feedback(answer: Answer, evaluation: Evaluation | None, config: PlayConfig) -> str:
    if answer.finish == "failed":
        return ""
    return not_parsed(answer, config) if evaluation is None else feedback(evaluation, config)
