"""Algorithms: from rewards to a gradient, as pure functions of tensors.

Start with `turns` (how samples are indexed) and `pipeline` (the order of operations); every other file is one idea:

| file | idea | source |
|---|---|---|
| `returns` | discounted return-to-go, sum or max | Dr. Kernel Eq. 2, Kevin section 3 |
| `baselines`, `groups` | leave-one-out and centred baselines over ragged groups | Dr. Kernel Eq. 3 to 5 |
| `trloo`, `grpo`, `rloo`, `kevin` | advantages | one paper each |
| `prs`, `mrs`, `filters` | what is not learned from | Dr. Kernel Eq. 6 to 9, and its released code |
| `hrd` | plan and code tokens apart | TritonRL |
| `losses`, `kl`, `aggregation` | from advantages to a number | PPO, DAPO, Dr. GRPO |
| `config`, `samples`, `pipeline` | the order of operations, the papers' settings by name | ours |
| `log_probs` | log-probabilities without copies of the logits | ours |

Shapes: n samples (one a turn), T tokens (answers one after the other), nothing padded.
"""

from kerneldojo.algorithms.advantages import AdvantageConfig, advantages
from kerneldojo.algorithms.aggregation import AggregationConfig, token_weights
from kerneldojo.algorithms.config import DR_KERNEL, KEVIN, TRITONRL, LearningConfig
from kerneldojo.algorithms.filters import meaningful_turns
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.grpo import GRPOConfig
from kerneldojo.algorithms.hrd import HRDConfig, plan_tokens
from kerneldojo.algorithms.kevin import KevinConfig
from kerneldojo.algorithms.kl import KLConfig, kl_estimate
from kerneldojo.algorithms.log_probs import log_probs_from_hidden, log_probs_from_logits
from kerneldojo.algorithms.losses import ClipConfig, clipped_policy_loss
from kerneldojo.algorithms.mrs import MismatchWarning, MRSConfig, mismatch_rejection
from kerneldojo.algorithms.pipeline import StepLoss, policy_loss, prepare
from kerneldojo.algorithms.prs import PRSConfig, profiling_rejection
from kerneldojo.algorithms.returns import ReturnConfig, return_to_go
from kerneldojo.algorithms.rloo import RLOOConfig
from kerneldojo.algorithms.samples import Prepared, Report, Samples
from kerneldojo.algorithms.trloo import TRLOOConfig
from kerneldojo.algorithms.turns import Turns

__all__ = [
    "DR_KERNEL",
    "KEVIN",
    "TRITONRL",
    "AdvantageConfig",
    "AggregationConfig",
    "ClipConfig",
    "GRPOConfig",
    "Groups",
    "HRDConfig",
    "KLConfig",
    "KevinConfig",
    "LearningConfig",
    "MRSConfig",
    "MismatchWarning",
    "PRSConfig",
    "Prepared",
    "RLOOConfig",
    "Report",
    "ReturnConfig",
    "Samples",
    "StepLoss",
    "TRLOOConfig",
    "Turns",
    "advantages",
    "clipped_policy_loss",
    "kl_estimate",
    "log_probs_from_hidden",
    "log_probs_from_logits",
    "meaningful_turns",
    "mismatch_rejection",
    "plan_tokens",
    "policy_loss",
    "prepare",
    "profiling_rejection",
    "return_to_go",
    "token_weights",
]
