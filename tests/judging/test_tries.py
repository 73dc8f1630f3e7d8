"""What was in vain lately is tried seldom, and never not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.judging.tries import NUM_REMEMBERED, Tries


@given(st.lists(st.booleans(), max_size=30))
def test_more_is_tried_the_more_of_the_last_were_worth_it(outcomes: list[bool]) -> None:
    tries = Tries()
    for outcome in outcomes:
        tries.remember(was_worth_it=outcome)
    last = outcomes[-NUM_REMEMBERED:]
    assert 1 / (1 + NUM_REMEMBERED) <= tries.share <= 1
    assert (tries.share == 1) == all(last)


def test_what_was_worth_it_each_time_is_always_tried_and_what_never_was_now_and_then() -> None:
    tries = Tries()
    assert all(tries.draw() for _ in range(100))
    for _ in range(NUM_REMEMBERED):
        tries.remember(was_worth_it=False)
    assert 1 <= sum(tries.draw() for _ in range(400)) <= 120
