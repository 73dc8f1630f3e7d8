"""The step from one turn to the next, and what a prompt holds of the turns before."""

from __future__ import annotations

import pytest
from chat_tokenizer import tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts_of_play import PROBLEM, answer_with, passed, verdict, wrong

from kerneldojo.episodes import (
    Best,
    Environment,
    Everything,
    PlayConfig,
    PromptTooLong,
    Summaries,
    answer_seed,
    first_episode,
    job_for,
    messages_at,
    next_messages,
    render,
    with_turn,
)
from kerneldojo.episodes.context import ranking
from kerneldojo.episodes.one_shot import TRITON
from kerneldojo.rewards import KevinConfig, TritonRLConfig
from kerneldojo.schema import Answer, Episode, Status

CONFIG = PlayConfig(device="model:h100", num_turns=3, protocol="quick", judge_timeout=7)


def played(config: PlayConfig, speedups, prose: str = "turn {}", tokenizer=None) -> Episode:
    """An episode whose turns were passed at the given speedups; None for a wrong one."""
    episode = first_episode(PROBLEM, config, tokenizer=tokenizer)
    for number, speedup in enumerate(speedups):
        if episode.finish:
            break
        answer = Answer(text=answer_with(TRITON + f"# {number}\n", prose.format(number)))
        evaluation = verdict(Status.INCORRECT, "off") if speedup is None else passed(speedup)
        episode = with_turn(episode, answer, evaluation, tokenizer)
    return episode


def shown(episode: Episode) -> list[int]:
    """Which turns the next prompt holds."""
    answers = [message.content for message in messages_at(episode, len(episode.turns)) if message.role == "assistant"]
    return [int(text.split("# ")[1].split("\n")[0]) for text in answers]


def test_a_job_holds_what_was_found_and_how_it_is_judged():
    job = job_for(first_episode(PROBLEM, CONFIG), Answer(text=answer_with()))
    assert job is not None
    assert job.candidate.source == TRITON and job.candidate.language == "triton"
    assert (job.device, job.protocol, job.timeout, job.problem) == ("model:h100", "quick", 7, PROBLEM)


def test_an_episode_has_a_fixed_number_of_turns_right_or_wrong():
    episode = played(CONFIG, [2.0, None, 3.0])
    assert [turn.reward for turn in episode.turns] == [4.0, 0.0, 5.0] and episode.finish == "turns"
    with pytest.raises(ValueError, match="has ended"):
        with_turn(episode, Answer(text=""), None)


@pytest.mark.parametrize("config", [CONFIG, CONFIG.model_copy(update={"reward": TritonRLConfig()})])
@pytest.mark.parametrize(
    "answer", [Answer(text="no code"), Answer(text=answer_with(), finish="length")], ids=["empty", "cut"]
)
def test_an_answer_without_code_or_cut_is_not_judged_earns_nothing_and_stays(config, answer):
    episode = first_episode(PROBLEM, config)
    assert job_for(episode, answer) is None
    after = with_turn(episode, answer, None)
    assert after.turns[0].reward == 0 and after.turns[0].evaluation is None and not after.finish
    assert after.turns[0].code_reward == (0 if isinstance(config.reward, TritonRLConfig) else None)
    assert after.turns[0].feedback in next_messages(after)[-1].content


@pytest.mark.parametrize(
    ("status", "finish"),
    [
        (Status.INFRASTRUCTURE_ERROR, "fault"),
        (Status.INVALID_PROBLEM, "refused"),
        (Status.UNSUPPORTED_ON_DEVICE, "refused"),
    ],
)
def test_a_verdict_that_is_not_about_the_answer_ends_the_episode_without_a_reward(status, finish):
    after = with_turn(first_episode(PROBLEM, CONFIG), Answer(text=answer_with()), verdict(status, "disk"))
    assert after.finish == finish and after.turns[0].reward is None


def test_a_policy_that_fails_ends_the_episode_without_a_reward():
    failed = Answer(text="", finish="failed", error="connection refused")
    assert job_for(first_episode(PROBLEM, CONFIG), failed) is None
    after = with_turn(first_episode(PROBLEM, CONFIG), failed, None)
    assert after.finish == "fault" and after.turns[0].reward is None


def test_degenerate_problems_are_judged_where_the_configuration_says_so():
    answer = Answer(text=answer_with())
    for allowed in (False, True):
        episode = first_episode(PROBLEM, CONFIG.model_copy(update={"allow_degenerate": allowed}))
        assert job_for(episode, answer).allow_degenerate is allowed


def test_rewards_follow_the_configuration():
    config = CONFIG.model_copy(update={"reward": KevinConfig()})
    assert played(config, [2.0]).turns[0].reward == pytest.approx(2.3)
    turn = played(CONFIG.model_copy(update={"reward": TritonRLConfig()}), [3.0]).turns[0]
    assert (turn.plan_reward, turn.code_reward) == (2.0, 1.0)


def test_a_verdict_without_a_job_is_refused_and_the_other_way_round():
    episode = first_episode(PROBLEM, CONFIG)
    with pytest.raises(ValueError, match="verdict belongs"):
        with_turn(episode, Answer(text="no code"), passed())
    with pytest.raises(ValueError, match="verdict belongs"):
        with_turn(episode, Answer(text=answer_with()), None)


def test_seeds_differ_by_run_episode_and_turn_and_by_nothing_else():
    episodes = [first_episode(PROBLEM, CONFIG, sample=n, seed=s) for n in range(3) for s in range(3)]
    later = [with_turn(episode, Answer(text=""), None) for episode in episodes]
    seeds = [answer_seed(episode) for episode in episodes + later]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)
    assert answer_seed(first_episode(PROBLEM, CONFIG, seed=2)) == seeds[2]


def test_a_prompt_can_be_rendered_again_from_the_stored_record():
    episode = played(CONFIG.model_copy(update={"context": Best(window=1)}), [1.0, 2.0, 3.0])
    again = Episode.model_validate_json(episode.model_dump_json(round_trip=True))
    assert again == episode
    for turn in range(3):
        assert messages_at(again, turn) == messages_at(episode, turn)


def test_everything_holds_every_answer_whole():
    episode = played(CONFIG.model_copy(update={"num_turns": 9}), [1.0, None, 2.0])
    messages = next_messages(episode)
    assert [message.role for message in messages] == ["user", "assistant"] * 3 + ["user"]
    assert [message.content for message in messages[1::2]] == [turn.answer.text for turn in episode.turns]
    for turn, message in zip(episode.turns, messages[2::2], strict=True):
        assert turn.feedback in message.content


def test_summaries_drop_the_thoughts_and_the_worked_example():
    config = CONFIG.model_copy(update={"context": Summaries(max_summary_chars=40)})
    episode = played(config, [1.0, 2.0])
    first, *rest = next_messages(episode)
    assert TRITON.rstrip() in messages_at(episode, 0)[0].content and TRITON.rstrip() not in first.content
    for number, message in enumerate(rest[::2]):
        assert message.content.startswith(f"turn {number} Done.") and f"# {number}" in message.content
        assert "draft" not in message.content and "<think>" not in message.content


def test_the_best_turns_are_kept_in_the_order_in_which_they_were_played():
    config = CONFIG.model_copy(update={"num_turns": 9, "context": Best(window=2)})
    assert shown(played(config, [2.0, None, 1.5, None])) == [0, 2]
    assert shown(played(config, [None, None, None])) == [1, 2]
    kept = config.model_copy(update={"context": Best(window=2, keep_last=True)})
    assert shown(played(kept, [2.0, None, 1.5, None])) == [0, 3]


@given(st.lists(st.none() | st.sampled_from([1.0, 2.0, 2.5]), max_size=8), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_turn_that_was_left_out_is_better_than_one_that_is_kept(speedups, window, keep_last):
    turns = played(CONFIG.model_copy(update={"num_turns": 99}), speedups).turns
    order = ranking(turns, Best(window=window, keep_last=keep_last))
    assert len(order) == len(set(order)) == min(window, len(turns))
    ranked = order[1:] if keep_last else order
    rewards = [turns[index].reward for index in ranked]
    assert rewards == sorted(rewards, reverse=True)
    for out in set(range(len(turns))) - set(order):
        assert all((turns[out].reward, out) < (turns[index].reward, index) for index in ranked)
    if keep_last and turns:
        assert order[0] == len(turns) - 1


@pytest.mark.parametrize("context", [Everything(), Summaries(), Best(window=3)])
@pytest.mark.parametrize("exact", [True, False], ids=["tokenizer", "estimate"])
def test_over_the_budget_turns_leave_and_the_problem_stays(context, exact):
    counter = tokenizer() if exact else None
    config = CONFIG.model_copy(update={"num_turns": 6, "context": context, "one_shot": False})
    speedups = [2.5, 1.5, None, 1.2, 2.0]
    whole = played(config, speedups)
    assert len(shown(whole)) == (3 if isinstance(context, Best) else 5)
    budget = 2600 if exact else 2000
    episode = played(config.model_copy(update={"max_prompt_tokens": budget}), speedups, tokenizer=counter)
    assert len(episode.turns) == 5
    messages = next_messages(episode, counter)
    num_shown = len(messages) // 2
    assert 1 <= num_shown < len(next_messages(whole)) // 2
    assert PROBLEM.source.rstrip() in messages[0].content
    kept = [message.content.split("# ")[1].split("\n")[0] for message in messages[1::2]]
    expected = [0, 4, 1][:num_shown] if isinstance(context, Best) else [4, 3, 2, 1][:num_shown]
    assert kept == [str(number) for number in sorted(expected)]
    if exact:
        assert len(render(episode, 5, counter)) <= budget


def test_the_budget_ends_an_episode_when_not_one_turn_fits():
    config = CONFIG.model_copy(update={"max_prompt_tokens": 2000, "one_shot": False})
    episode = played(config, [1.0, 1.0], prose="long " * 3000)
    assert episode.finish == "budget" and len(episode.turns) == 1 and episode.turns[0].reward is not None
    assert first_episode(PROBLEM, config.model_copy(update={"max_prompt_tokens": 10})).finish == "budget"


def test_prompts_that_were_played_can_be_read_without_the_tokenizer():
    episode = played(CONFIG.model_copy(update={"num_turns": 9}), [1.0, 2.0, 3.0])
    tight = episode.model_copy(update={"settings": {**episode.settings, "max_prompt_tokens": 10}})
    assert [len(messages_at(tight, turn)) for turn in range(3)] == [1, 3, 3]
    with pytest.raises(PromptTooLong, match="shortest prompt of turn 3"):
        messages_at(tight, 3)


def test_the_environment_plays_the_same_episode_as_the_pure_functions():
    environment = Environment(CONFIG, wrong, tokenizer=tokenizer())
    observation = environment.reset(PROBLEM, seed=3, sample=1)
    episode = first_episode(PROBLEM, CONFIG, seed=3, sample=1)
    assert observation.messages == next_messages(episode) and not observation.done and observation.reward is None
    for number in range(3):
        text = answer_with(TRITON + f"# {number}\n")
        assert observation.seed == answer_seed(episode)
        assert list(observation.prompt_ids) == render(episode, number, tokenizer())
        observation = environment.step(text)
        answer = Answer(text=text)
        episode = with_turn(episode, answer, wrong(job_for(episode, answer)))
        assert (observation.reward, observation.turn) == (0.0, number + 1)
        assert observation.evaluation.status is Status.INCORRECT and "3.5 times" in observation.feedback
    assert observation.done and observation.finish == "turns" and observation.messages == ()
    assert environment.episode == episode
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step("more")


def test_an_environment_without_an_episode_says_so():
    with pytest.raises(RuntimeError, match="call reset first"):
        Environment(CONFIG, wrong).step("x")


def test_a_judge_that_raises_leaves_the_turn_unplayed():
    def broken(job):
        raise OSError("no route to the judge")

    environment = Environment(CONFIG, broken)
    environment.reset(PROBLEM)
    with pytest.raises(OSError, match="no route"):
        environment.step(answer_with())
    assert environment.episode.turns == ()
