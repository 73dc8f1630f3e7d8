"""Replaying a recorded run."""

from __future__ import annotations

import asyncio

import pytest
from policy_requests import SOURCE, episode, request

from kerneldojo.policies.replay import ReplayPolicy
from kerneldojo.schema import Answer, Usage

TRAINABLE = Answer(
    text="third",
    prompt_ids=(1, 2),
    answer_ids=(3,),
    log_probs=(-0.5,),
    usage=Usage(prompt_tokens=2, answer_tokens=1, seconds=9.0, dollars=1.0),
)


def write(path, *episodes, tail=""):
    path.write_text("".join(each.model_dump_json() + "\n" for each in episodes) + tail)
    return path


def answer(policy, played):
    return asyncio.run(policy.answer(request(played=played)))


def test_by_problem_sample_and_turn(tmp_path):
    recorded = [
        episode(answers=["a0", "a1"]),
        episode(sample=1, answers=["b0"]),
        episode("other", 0, ["c0"], "class M2: ..."),
    ]
    write(tmp_path / "episodes.jsonl", *recorded)
    policy = ReplayPolicy(tmp_path)
    assert answer(policy, episode()).text == "a0"
    assert answer(policy, episode(answers=["anything"])).text == "a1"
    assert answer(policy, episode(sample=1)).text == "b0"
    # By content where the name has changed, by name where the content has.
    assert answer(policy, episode("renamed", source="class M2: ...")).text == "c0"
    assert answer(policy, episode("other", source="class M3: ...")).text == "c0"
    assert not policy.gives_ids and policy.name.startswith("replay:")


def test_what_is_missing_is_told(tmp_path):
    policy = ReplayPolicy(write(tmp_path / "run.jsonl", episode(answers=["a0"])))
    for played, words in [
        (episode(answers=["a0"]), "sample 0, turn 1"),
        (episode(sample=4), "sample 4, turn 0"),
        (episode("unknown", source=SOURCE + "#"), "unknown"),
    ]:
        found = answer(policy, played)
        assert found.finish == "failed" and words in found.error and "run.jsonl" in found.error


def test_ids_come_back_and_cost_nothing(tmp_path):
    policy = ReplayPolicy(write(tmp_path / "run.jsonl", episode(answers=[TRAINABLE])))
    found = answer(policy, episode())
    assert policy.gives_ids and found.is_trainable and found.answer_ids == (3,)
    assert found.usage == Usage(prompt_tokens=2, answer_tokens=1)


def test_the_longest_record_of_an_episode_counts(tmp_path):
    whole = episode(answers=["a0", "a1", "a2"])
    part = episode(answers=["a0"])
    for order in ([part, whole], [whole, part]):
        policy = ReplayPolicy(write(tmp_path / "run.jsonl", *order))
        assert answer(policy, episode(answers=["x", "y"])).text == "a2"


def test_a_torn_last_line_is_left_out_and_any_other_is_refused(tmp_path):
    path = write(tmp_path / "run.jsonl", episode(answers=["a0"]), tail='{"id": "x", "prob')
    assert answer(ReplayPolicy(path), episode()).text == "a0"
    path.write_text('{"id": 3}\n' + path.read_text())
    with pytest.raises(ValueError, match="line 1 is no episode") as refused:
        ReplayPolicy(path)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot read"):
        ReplayPolicy(tmp_path / "nothing.jsonl")
