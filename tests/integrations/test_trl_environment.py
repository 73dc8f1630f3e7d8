"""The environment for TRL by itself; `test_packages.py` gives it to TRL's own trainer."""

from __future__ import annotations

import pytest
from service_executors import TextExecutor, verdict

from kerneldojo.episodes import PlayConfig
from kerneldojo.integrations.credit import Credit
from kerneldojo.integrations.trl import KernelEnvironment, environment_factory, rows
from kerneldojo.problems.suite import load_suite
from kerneldojo.rewards import DrKernelConfig, reward

PROBLEMS = load_suite("katas:1", "small")
PASSED = reward(verdict("passed"), DrKernelConfig()).value
NAME = "katas/1/softmax_rows"


def begun(num_turns: int = 3, credit: Credit = "best") -> tuple[KernelEnvironment, TextExecutor, str]:
    executor = TextExecutor()
    play = PlayConfig(device="cpu", num_turns=num_turns)
    env = environment_factory(executor, PROBLEMS, play, credit=credit)()
    return env, executor, env.reset(problem=NAME, prompt=[], other=3)


def test_a_rollout_submits_reads_and_earns() -> None:
    env, _, task = begun()
    assert "class Model" in task and "submit_kernel" in task and "3 times" in task
    assert env.get_reward() == reward(verdict("compile_error"), DrKernelConfig()).value
    first = env.submit_kernel("incorrect one")
    assert "its answer is wrong" in first and "2 times more" in first
    assert "Correct." in env.submit_kernel("passed two")
    assert env.submit_kernel("compile_error three") == "Submitted. You have no submissions left."
    assert "no submissions left" in env.submit_kernel("passed four")
    assert env.get_reward() == env.get_reward() == PASSED
    # The same object plays the next rollout.
    assert "3 times" in env.reset(problem=NAME) and env.get_reward() != PASSED


@pytest.mark.parametrize(
    ("credit", "expected"), [("last", 0.0), ("mean", PASSED / 2), ("sum", PASSED), ("best", PASSED)]
)
def test_which_turn_counts_is_a_setting(credit: Credit, expected: float) -> None:
    env, _, _ = begun(2, credit)
    env.submit_kernel("passed one")
    env.submit_kernel("incorrect two")
    assert env.get_reward() == pytest.approx(expected)


def test_submissions_of_single_turns_are_judged_at_once() -> None:
    executor = TextExecutor(num_slots=4)
    make = environment_factory(executor, PROBLEMS, PlayConfig(device="cpu", num_turns=1))
    rollouts = [make() for _ in range(4)]
    for env in rollouts:
        env.reset(problem=NAME)
        env.submit_kernel("wait one")
    # All of them run although none has ended: nobody was waited for.
    executor.release.set()
    assert [env.get_reward() for env in rollouts] == [0.0] * 4 and len(executor.seen) == 4


def test_faults_of_ours_are_neither_scored_nor_shown() -> None:
    env, _, _ = begun()
    env.submit_kernel("infrastructure_error now")
    assert env.get_reward() is None
    env, executor, _ = begun()
    executor.close()
    with pytest.raises(RuntimeError):
        env.submit_kernel("passed one")
    with pytest.raises(RuntimeError, match="closed"):
        env.get_reward()


def test_what_is_wrong_is_said() -> None:
    env, executor, _ = begun()
    with pytest.raises(ValueError, match="'katas/9/none'"):
        env.reset(problem="katas/9/none")
    with pytest.raises(TypeError):
        env.submit_kernel(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="two problems"):
        environment_factory(executor, [*PROBLEMS, PROBLEMS[0]])
    with pytest.raises(RuntimeError, match="reset first"):
        environment_factory(executor, PROBLEMS)().get_reward()


def test_the_tool_describes_itself() -> None:
    from transformers.utils import get_json_schema

    env, _, _ = begun()
    tool = get_json_schema(env.submit_kernel)["function"]
    assert tool["name"] == "submit_kernel" and tool["parameters"]["required"] == ["code"]
    assert tool["parameters"]["properties"]["code"]["type"] == "string"
    assert {row["problem"] for row in rows(PROBLEMS)} >= {NAME}
