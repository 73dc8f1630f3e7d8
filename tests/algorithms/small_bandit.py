"""A two-turn bandit, small enough that expectations over *all* groups of N rollouts are sums, not samples.

Turn 0 chooses one of three arms; two of them go on to turn 1, which chooses one of two arms knowing the first. Each
choice has its own reward. So there are five trajectories, of unequal length, and whether turn 1 exists depends on the
policy's own action: what context limits and token budgets do to real episodes.

An expectation over N rollouts is a sum over 5^N groups, each weighted by its probability. All of these groups are put
into one call of the function under test, as so many prompts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kerneldojo.algorithms import ReturnConfig, Turns, return_to_go

# The arms of each trajectory: (first,) or (first, second). Arm 2 of the first turn ends the episode.
TRAJECTORIES = [(0, 0), (0, 1), (1, 0), (1, 1), (2,)]
REWARD_FIRST = [0.2, 1.0, 0.7]
REWARD_SECOND = {(0, 0): 3.0, (0, 1): 0.0, (1, 0): 0.5, (1, 1): 2.0}

Estimator = Callable[[Tensor, Turns], Tensor]


def parameters() -> Tensor:
    """(7,) float64 logits: three for turn 0, then two for turn 1 after each of its first two arms."""
    return torch.tensor([0.3, -0.2, 0.1, 0.4, -0.4, -0.6, 0.5], dtype=torch.float64, requires_grad=True)


def log_probs(theta: Tensor) -> list[list[Tensor]]:
    """For each trajectory, the log-probability of each of its choices."""
    first = theta[:3].log_softmax(0)
    second = theta[3:].view(2, 2).log_softmax(1)
    return [[first[arms[0]]] + [second[arms[0], arm] for arm in arms[1:]] for arms in TRAJECTORIES]


def rewards(first: Sequence[float]) -> list[list[float]]:
    """For each trajectory, the reward of each of its turns."""
    return [[first[arms[0]]] + [REWARD_SECOND[arms[0], arm] for arm in arms[1:]] for arms in TRAJECTORIES]


def true_gradient(first: Sequence[float] = REWARD_FIRST) -> Tensor:
    """d/dtheta of the expected sum of rewards, (7,)."""
    theta = parameters()
    value = torch.zeros((), dtype=torch.float64)
    for steps, earned in zip(log_probs(theta), rewards(first), strict=True):
        value = value + torch.stack(steps).sum().exp() * sum(earned)
    return torch.autograd.grad(value, theta)[0]


def expected_gradient(estimator: Estimator, num_rollouts: int, first: Sequence[float] = REWARD_FIRST) -> Tensor:
    """E over groups of `num_rollouts` of (1/N) Σ_i Σ_t A_{i,t} ∇ log π(a_{i,t}), exactly; (7,)."""
    theta = parameters()
    steps, earned = log_probs(theta), rewards(first)
    prompt, trajectory, turn, reward, taken, weight = [], [], [], [], [], []
    for group, members in enumerate(itertools.product(range(len(TRAJECTORIES)), repeat=num_rollouts)):
        probability = torch.stack([torch.stack(steps[kind]).sum() for kind in members]).sum().exp().detach()
        for place, kind in enumerate(members):
            for at, log_prob in enumerate(steps[kind]):
                prompt.append(group)
                trajectory.append(group * num_rollouts + place)
                turn.append(at)
                reward.append(earned[kind][at])
                taken.append(log_prob)
                weight.append(probability)
    turns = Turns.of(prompt, trajectory, turn)
    returns = return_to_go(torch.tensor(reward, dtype=torch.float64), turns, ReturnConfig())
    surrogate = (torch.stack(weight) * estimator(returns, turns) * torch.stack(taken)).sum() / num_rollouts
    return torch.autograd.grad(surrogate, theta)[0]
