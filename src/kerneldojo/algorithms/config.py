"""Everything between a reward and a gradient, as one configuration, with the papers' settings by name."""

from __future__ import annotations

from kerneldojo.algorithms.advantages import AdvantageConfig
from kerneldojo.algorithms.aggregation import AggregationConfig
from kerneldojo.algorithms.grpo import GRPOConfig
from kerneldojo.algorithms.hrd import HRDConfig
from kerneldojo.algorithms.kevin import KevinConfig
from kerneldojo.algorithms.kl import KLConfig
from kerneldojo.algorithms.losses import ClipConfig
from kerneldojo.algorithms.mrs import MRSConfig
from kerneldojo.algorithms.prs import PRSConfig
from kerneldojo.algorithms.returns import ReturnConfig
from kerneldojo.algorithms.trloo import TRLOOConfig
from kerneldojo.schema import Settings


class LearningConfig(Settings):
    """Everything between a reward and a gradient; the defaults are Dr. Kernel's."""

    returns: ReturnConfig = ReturnConfig()
    """How later turns count."""
    advantage: AdvantageConfig = TRLOOConfig()
    """What a return is compared with."""
    drop_meaningless_turns: bool = False
    """Leave out turns that earn nothing after an earlier one earned something (released code of Dr. Kernel)."""
    prs: PRSConfig | None = PRSConfig()
    """Rejection of right but lazy answers; None for off."""
    mrs: MRSConfig | None = MRSConfig()
    """Rejection where engine and trainer disagree; None for off."""
    hrd: HRDConfig | None = None
    """Plan and code tokens apart; None for one advantage for all tokens of an answer."""
    clip: ClipConfig = ClipConfig()
    """Range of the probability ratio."""
    aggregation: AggregationConfig = AggregationConfig()
    """From token losses to one number."""
    kl: KLConfig | None = None
    """Penalty for leaving a reference policy; None for none."""


DR_KERNEL = LearningConfig()
"""Dr. Kernel: γ = 1, TRLOO, MRS, PRS, clip 0.2/0.28/3, token sums over 1000."""

KEVIN = LearningConfig(
    returns=ReturnConfig(discount=0.4),
    advantage=KevinConfig(),
    prs=None,
    mrs=None,
    clip=ClipConfig(dual=None),
    aggregation=AggregationConfig(mode="constant-length", max_length=16384),
)
"""Kevin: γ = 0.4, all turns pooled, constant-length normalisation over 16,384 tokens."""

TRITONRL = LearningConfig(
    advantage=GRPOConfig(),
    prs=None,
    mrs=None,
    hrd=HRDConfig(),
    clip=ClipConfig(high=0.2),
    aggregation=AggregationConfig(mode="token-mean"),
)
"""TritonRL: one turn, GRPO, plan and code apart. Clip and aggregation are not told in the paper: verl's defaults."""
