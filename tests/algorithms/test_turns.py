"""The index refuses contradictions, groups are what their keys say, and a fault takes its whole trajectory along."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.algorithms import Groups, Turns, meaningful_turns


@pytest.mark.parametrize(
    ("prompt", "trajectory", "turn", "complaint"),
    [
        ([0, 0], [0, 0], [0, 2], "gaps"),
        ([0, 0], [0, 0], [0, 0], "repeats"),
        ([0, 0], [0, 0], [-1, 0], "gaps"),
        ([0, 1], [0, 0], [0, 1], "one prompt"),
        ([0], [0, 0], [0, 1], "prompt must be"),
    ],
)
def test_contradictions_are_refused(prompt: list[int], trajectory: list[int], turn: list[int], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        Turns.of(prompt, trajectory, turn)


def test_a_fault_invalidates_its_whole_trajectory_and_no_other():
    turns = Turns.of([0] * 5, [7, 7, 7, 9, 9], [0, 1, 2, 0, 1], [True, False, True, True, True])
    assert turns.without_faulty_trajectories().valid.tolist() == [False, False, False, True, True]


def test_statistics_of_ragged_groups_read_members_only():
    members = torch.tensor([True, True, False, True])
    groups = Groups.by(torch.tensor([5, 5, 5, 8]), torch.tensor([1, 1, 1, 1]), members=members)
    values = torch.tensor([1.0, 4.0, float("nan"), 7.0])
    assert groups.size().tolist() == [2, 2, 2, 1]
    assert groups.mean(values).tolist() == [2.5, 2.5, 2.5, 7.0]
    torch.testing.assert_close(groups.deviation(values), torch.tensor([1.0, 1.0, 1.0, 0.0]) * 4.5**0.5)


def test_keys_that_differ_in_one_part_are_different_groups():
    groups = Groups.by(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), members=torch.ones(3, dtype=torch.bool))
    assert groups.num_groups == 3


def test_meaningful_turns_drop_failures_after_a_success():
    turns = Turns.of([0] * 6, [0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1])
    rewards = torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0, 0.0])
    assert meaningful_turns(rewards, turns).tolist() == [True, True, False, True, True, True]
