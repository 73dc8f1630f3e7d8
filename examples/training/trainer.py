"""A trainer's loop against a service: a step's candidates go out together, and rewards come as verdicts do.

    dojo serve --device model:h100
    python examples/training/trainer.py http://127.0.0.1:8000 --run first --steps 4

The policy is a toy (one weight for each sample kernel of `examples/`); all else is what a real trainer does:

- Every step's tasks are called RUN-step-N-0, RUN-step-N-1, ... . A trainer that was killed is started again by the same
  command: what was submitted is found, not judged again. It has to write the same candidates again, so whatever chance
  decides is seeded by the run and the step.
- A service that is restarted meanwhile costs time alone: it keeps what it has accepted, and the client waits for it.
- A reward may be none at all (the verdict was on us, or the task was cancelled): that candidate is left out, not zero.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
from pathlib import Path

from kerneldojo import AsyncClient, Candidate, Problem
from kerneldojo.client import Retries, TaskCancelled
from kerneldojo.rewards import dr_kernel
from kerneldojo.schema import Job

SAMPLES = Path(__file__).parents[1]
PROBLEM = Problem(name="biased_softmax", source=(SAMPLES / "reference.py").read_text())
LEARNING_RATE = 0.5


class Policy:
    """Which sample to answer with; stands for a model that writes kernels."""

    def __init__(self) -> None:
        self.sources = {
            path.stem: path.read_text() for path in sorted(SAMPLES.glob("*.py")) if path.stem != "reference"
        }
        self.weights = dict.fromkeys(self.sources, 0.0)

    def write(self, number: int, seed: str) -> list[str]:
        """Names of so many samples; the same for the same weights and seed."""
        likelihoods = [math.exp(weight) for weight in self.weights.values()]
        return random.Random(seed).choices(list(self.weights), likelihoods, k=number)

    def learn(self, names: list[str], rewards: dict[int, float]) -> None:
        """Make likelier what earned more than the step's mean."""
        if not rewards:
            return
        mean = sum(rewards.values()) / len(rewards)
        for index, value in sorted(rewards.items()):  # In an order of its own: that in which they come is chance.
            self.weights[names[index]] += LEARNING_RATE * (value - mean)


async def rewards_of(client: AsyncClient, names: list[str], policy: Policy, prefix: str) -> dict[int, float]:
    """The reward of each candidate that has one, by its index."""
    jobs = [Job(problem=PROBLEM, candidate=Candidate(source=policy.sources[name]), device="auto") for name in names]
    found: dict[int, float] = {}
    try:
        async for index, evaluation in client.judge_many(jobs, prefix=prefix, deadline_seconds=3600):
            earned = dr_kernel(evaluation)
            if earned.value is not None:
                found[index] = earned.value
            # A real trainer could pack and send this candidate to its learner now, while others are judged.
            print(f"  {names[index]:10} {evaluation.status:15} reward {earned.value}", flush=True)
    except TaskCancelled as error:  # Raised last: all others have been told.
        print(f"  left out: {error}", flush=True)
    return found


async def train(url: str, token: str | None, run: str, num_steps: int, num_candidates: int) -> Policy:
    """Play the steps."""
    policy = Policy()
    async with AsyncClient(url, token=token, retries=Retries(give_up_seconds=1800)) as client:
        for step in range(num_steps):
            prefix = f"{run}-step-{step}"
            names = policy.write(num_candidates, seed=prefix)
            rewards = await rewards_of(client, names, policy, prefix)
            policy.learn(names, rewards)
            mean = sum(rewards.values()) / max(1, len(rewards))
            print(json.dumps({"step": step, "mean_reward": round(mean, 4), "num_rewards": len(rewards)}), flush=True)
    return policy


def main() -> None:
    parser = argparse.ArgumentParser(description="A toy trainer whose rewards come from a service.")
    parser.add_argument("url", help="of `dojo serve`; its token is read from KERNELDOJO_TOKEN")
    parser.add_argument("--run", default="trainer", help="names the tasks: the same one goes on where it was")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=8)
    asked = parser.parse_args()
    token = os.environ.get("KERNELDOJO_TOKEN") or None
    policy = asyncio.run(train(asked.url, token, asked.run, asked.steps, asked.candidates))
    print(f"best: {max(policy.weights, key=policy.weights.__getitem__)}")


if __name__ == "__main__":
    main()
