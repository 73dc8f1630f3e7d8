"""Rewards: what an answer earns, each a small pure function of the judge's `Evaluation`.

| name | formula | source |
|---|---|---|
| `dr_kernel` | C + C · min(speedup, 3) + C · PR | Dr. Kernel, Eq. 1 and 8 |
| `kevin` | 0.3 · C + C · speedup | Kevin, section 3 |
| `tritonrl` | code: C; plan: C · min(speedup, 2); uniform: their mixture | TritonRL |
| `naive_for_experiments_only` | one of the above, exploits paid | ours, for ablations |

What all of them share (masking, failures, noise) is in `rewards.outcome`. This room imports the schema, nothing else.
"""

from kerneldojo.rewards.dr_kernel import DrKernelConfig, dr_kernel
from kerneldojo.rewards.kevin import KevinConfig, kevin
from kerneldojo.rewards.naive import NaiveConfig, naive_for_experiments_only
from kerneldojo.rewards.outcome import Outcome, credited_speedup, judged, speedup_interval
from kerneldojo.rewards.registry import RewardConfig, parse, reward
from kerneldojo.rewards.reward import Reward
from kerneldojo.rewards.tritonrl import TritonRLConfig, tritonrl

__all__ = [
    "DrKernelConfig",
    "KevinConfig",
    "NaiveConfig",
    "Outcome",
    "Reward",
    "RewardConfig",
    "TritonRLConfig",
    "credited_speedup",
    "dr_kernel",
    "judged",
    "kevin",
    "naive_for_experiments_only",
    "parse",
    "reward",
    "speedup_interval",
    "tritonrl",
]
