"""How many tasks ended lately, held against a list of when each did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.service.tally import Tally


@given(st.lists(st.floats(0, 50), max_size=200), st.floats(0, 200))
def test_what_ended_in_the_last_minute_and_in_each_of_the_last_sixty(pauses: list[float], then: float) -> None:
    tally, now, ended = Tally(), 1_000_000.0, list[int]()
    for pause in pauses:
        now += pause
        tally.count(now)
        ended.append(int(now))
    now += then
    assert tally.total == len(ended)
    assert tally.per_minute(now) == sum(now - 61 < second <= now for second in ended)
    minutes = [second // 60 for second in ended]
    last = int(now // 60)
    assert tally.history(now) == tuple(minutes.count(minute) for minute in range(last - 59, last + 1))


def test_it_takes_no_more_memory_the_longer_it_counts() -> None:
    tally = Tally()
    for second in range(100_000):
        tally.count(second)
    assert tally.total == 100_000
    assert 60 <= tally.per_minute(99_999.5) <= 61, "it counts by seconds"
    assert tally.history(99_999.5)[:-1] == (60,) * 59
    assert len(tally._seconds) < 100 and len(tally._minutes) < 100
