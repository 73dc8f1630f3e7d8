"""Many episodes at once: all played, each as if it were alone, and faults of ours never scored."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from small_policies import PROBLEMS, Fixed, Parity, Same, code_for, parity

from kerneldojo.episodes import Best, Environment, PlayConfig, first_episode
from kerneldojo.rollout import RolloutConfig, RunFolder, from_executor, from_function, play, play_episodes
from kerneldojo.schema import Answer, Evaluation, Job, Status

CONFIG = PlayConfig(num_turns=3, style="compact", device="model:h100")
SOON = RolloutConfig(retry_delay=0.0)


def played(policy, judge, problems=PROBLEMS, config=CONFIG, **options):
    options.setdefault("rollout", SOON)
    return asyncio.run(play(problems, policy, judge, config, **options))


def test_every_problem_is_played_as_often_as_asked_in_order():
    episodes = played(Fixed(), Parity(), num_samples=4)
    assert [(item.problem.name, item.sample) for item in episodes] == [
        (problem.name, sample) for problem in PROBLEMS for sample in range(4)
    ]
    assert all(item.finish == "turns" and len(item.turns) == 3 for item in episodes)
    assert {turn.reward == 0 for item in episodes for turn in item.turns} == {True, False}


def test_an_episode_is_the_same_alone_and_among_many():
    together = played(Fixed(latency=0.001), Parity(), num_samples=5, seed=4)
    alone = played(
        Fixed(), Parity(), problems=PROBLEMS[2:3], num_samples=5, seed=4, rollout=RolloutConfig(max_concurrent=1)
    )
    assert together[10:15] == alone
    environment = Environment(CONFIG, parity)
    observation = environment.reset(PROBLEMS[2], seed=4, sample=3, policy="fixed")
    while not observation.done:
        observation = environment.step(f"```python\n{code_for(observation.seed)}```")
    assert environment.episode == alone[3]


def test_seeds_of_answers_all_differ_and_change_with_the_run():
    policies = [Fixed(), Fixed()]
    for seed, policy in enumerate(policies):
        played(policy, Parity(), num_samples=4, seed=seed)
    seeds = [request.seed for policy in policies for request in policy.requests]
    assert len(set(seeds)) == len(seeds) == 2 * 6 * 4 * 3


def test_a_request_says_how_to_sample_and_carries_ids_where_there_is_a_tokenizer():
    sys.path.insert(0, str(Path(__file__).parents[1] / "episodes"))
    from chat_tokenizer import tokenizer

    from kerneldojo.episodes import messages_at, render

    policy, config = Fixed(), CONFIG.model_copy(update={"max_answer_tokens": 77})
    rollout = RolloutConfig(temperature=0.5, top_p=0.9)
    episodes = played(policy, Parity(), config=config, tokenizer=tokenizer(), rollout=rollout, problems=PROBLEMS[:2])
    assert {(item.max_tokens, item.temperature, item.top_p) for item in policy.requests} == {(77, 0.5, 0.9)}
    for request in policy.requests:
        turn = len(request.episode.turns)
        assert list(request.prompt_ids) == render(request.episode, turn, tokenizer())
        assert request.messages == messages_at(request.episode, turn, tokenizer())
    for episode in episodes:
        for turn in episode.turns:
            assert list(turn.answer.prompt_ids) == render(episode, turn.index, tokenizer())


def test_a_policy_with_a_tokenizer_of_its_own_is_asked_with_ids():
    sys.path.insert(0, str(Path(__file__).parents[1] / "episodes"))
    from chat_tokenizer import tokenizer

    from kerneldojo.episodes import render

    policy = Fixed()
    policy.tokenizer = tokenizer()
    episodes = played(policy, Parity(), problems=PROBLEMS[:1])
    assert [list(turn.answer.prompt_ids) for turn in episodes[0].turns] == [
        render(episodes[0], turn, tokenizer()) for turn in range(3)
    ]


def test_equal_answers_are_judged_once():
    judge = Parity()
    played(Same(), judge, num_samples=10)
    assert len(judge.asked) == len(PROBLEMS) and set(judge.asked.values()) == {1}


def test_no_more_episodes_are_under_way_than_asked():
    judge = Parity()
    played(Fixed(), judge, num_samples=4, rollout=RolloutConfig(max_concurrent=3))
    assert judge.most_at_once <= 3


def test_faults_of_ours_are_tried_again_and_not_seen_in_the_result():
    judge, policy = Parity(num_faults=2), Fixed(num_failures=2)
    (episode,) = played(policy, judge, problems=PROBLEMS[:1])
    assert episode.finish == "turns" and all(turn.reward is not None for turn in episode.turns)
    assert len(policy.requests) == 3 + 2 and sum(judge.asked.values()) == 3 + 2
    assert policy.requests[0] == policy.requests[1]


def test_a_fault_that_stays_ends_the_episode_without_a_reward():
    (episode,) = played(Fixed(), Parity(num_faults=3), problems=PROBLEMS[:1])
    assert episode.finish == "fault" and [turn.reward for turn in episode.turns] == [None]
    (episode,) = played(Fixed(num_failures=3), Parity(), problems=PROBLEMS[:1])
    assert episode.finish == "fault" and episode.turns[0].answer.error == "connection reset"


def test_a_judge_or_policy_that_breaks_stops_the_run_with_its_own_error():
    async def refuses(job: Job) -> Evaluation:
        raise ValueError("no device of this pool serves cuda")

    with pytest.raises(ValueError, match="no device of this pool"):
        played(Fixed(), refuses, num_samples=4)

    class Broken(Fixed):
        async def answer(self, request) -> Answer:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        played(Broken(), Parity(), num_samples=4)


def test_two_problems_of_one_name_are_refused():
    with pytest.raises(ValueError, match=rf"same suite, level and name: \S*{PROBLEMS[0].name}$"):
        played(Fixed(), Parity(), problems=[PROBLEMS[0], PROBLEMS[0]])


def test_episodes_of_different_settings_are_played_side_by_side():
    short, best = CONFIG.model_copy(update={"num_turns": 1}), CONFIG.model_copy(update={"context": Best(window=1)})
    episodes = [first_episode(PROBLEMS[0], short), first_episode(PROBLEMS[1], best)]
    ends: list[str] = []
    result = asyncio.run(play_episodes(episodes, Fixed(), Parity(), on_end=lambda item: ends.append(item.id)))
    assert [len(item.turns) for item in result] == [1, 3] and sorted(ends) == sorted(item.id for item in episodes)


def test_an_executor_and_a_function_judge_alike():
    class Inline:
        """An executor that judges at once, in the caller's thread."""

        num_slots = 1

        def submit(self, job: Job) -> Future[Evaluation]:
            future: Future[Evaluation] = Future()
            future.set_result(parity(job))
            return future

    by_executor = played(Fixed(), from_executor(Inline()), num_samples=2)
    assert by_executor == played(Fixed(), from_function(parity, num_threads=2), num_samples=2)


@pytest.mark.slow
def test_a_real_judge_and_a_folder(tmp_path):
    from kerneldojo import judge
    from kerneldojo.episodes.one_shot import REFERENCE
    from kerneldojo.schema import Problem

    problem = Problem(name="vector_add", source=REFERENCE.replace("4096", "8"))
    config = PlayConfig(num_turns=2, device="model:h100", protocol="quick")
    verdicts = from_function(lambda job: judge(job.problem, job.candidate, device=job.device, protocol=job.protocol))
    folder = RunFolder(tmp_path / "run")
    (episode,) = played(Same(), verdicts, problems=[problem], config=config, folder=folder)
    assert [turn.evaluation.status for turn in episode.turns] == [Status.PASSED] * 2, episode.turns[0].feedback
    assert episode.turns[0].reward > 1 and "times as fast" in episode.turns[0].feedback
    assert list(folder.episodes()) == [episode]
