"""How long a stage may take before somebody says that it hangs."""

from __future__ import annotations

from kerneldojo.judging.patience import CANDIDATES_STAGES, TURN, seconds_of
from kerneldojo.judging.reference import BUDGET_SECONDS


def test_a_stage_may_take_what_candidate_and_reference_have() -> None:
    assert seconds_of("build", 30.0, 8) == 30.0
    assert seconds_of("audit", 30.0, 8) == seconds_of("correctness", 30.0, 8) == 30.0 + BUDGET_SECONDS
    assert seconds_of("a stage of tomorrow", 30.0, 8) == 30.0 + BUDGET_SECONDS


def test_who_waits_for_others_may_wait_until_each_has_had_its_time() -> None:
    """And not for ever: a worker may stop while all that is in it waits."""
    assert seconds_of(TURN, 30.0, 8) == 8 * (30.0 + BUDGET_SECONDS)
    assert TURN not in CANDIDATES_STAGES
