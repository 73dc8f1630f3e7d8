"""Which inputs the rounds of a verdict meet, and that a second call has everything of its own."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.contestant import tree
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.outputs import check_outputs
from kerneldojo.judging.processes import host_arena
from kerneldojo.judging.protocol import PROTOCOLS
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Conduct, Match, drawn_order
from kerneldojo.judging.ruling import Ruling
from kerneldojo.problems.distributions import DECIDING as ALL
from kerneldojo.problems.distributions import FILLING, PROBING, SIDED, TELLING

DECIDING = tuple(name for name in ALL if name != FILLING[1])
"""As many as a problem can have: one of the two for inputs that hold one value."""


def test_every_distribution_is_met_and_those_that_tell_most_come_first() -> None:
    orders = {drawn_order(DECIDING) for _ in range(2000)}  # Of 24: with 200 one was missed now and then.
    others = [name for name in DECIDING if name not in TELLING]
    assert orders == {(*TELLING, *rest) for rest in itertools.permutations(others)}
    assert drawn_order(("own",)) == ("own",)
    for name in ("standard", "strict"):
        assert PROTOCOLS[name].num_rounds + 1 >= len(DECIDING), "one more is played beyond the rounds"


def test_a_second_call_has_its_own_numbers_and_its_tensors_at_the_old_places() -> None:
    session: Any = SimpleNamespace(arena=host_arena(1 << 20))
    hosted = Hosted(session, 10.0)
    node = hosted.give([torch.zeros(3), {"slope": 0.25}, (torch.ones(2, 2),)])
    first = hosted.peek(node)
    second = hosted.rewrite(node, [torch.full((3,), 7.0), {"slope": 0.5}, (torch.full((2, 2), 9.0),)])
    assert [view.data_ptr() for view in hosted.peek(second)] == [view.data_ptr() for view in first]
    told = tree.decode(second, session.arena.view)
    assert told[1] == {"slope": 0.5}
    assert (float(told[0][0]), float(told[2][0][0, 0])) == (7.0, 9.0)


def test_a_wrong_answer_is_told_what_was_unusual_about_its_inputs() -> None:
    answer = Answer([torch.zeros(64)], [{}], None, [], [], 0.0)
    expected = Expected([], {"native": [-torch.rand(64)]}, {}, mutates_inputs=False, work=[])
    for distribution, words in (("own", "tolerance)"), ("negative", "all negative)"), ("heavy", "unusual magnitude)")):
        with pytest.raises(Ruling) as refused:
            check_outputs(answer, expected, 1, Delivery(names=[], needed=False), distribution=distribution)
        assert refused.value.message.endswith(words)


@pytest.mark.parametrize("distribution", ALL + PROBING)
def test_unusual_inputs_refuse_no_isolated_element_but_more_of_them_and_infinities(distribution: str) -> None:
    """Where a bound meets a product that has become huge, rounding alone decides an element in a million."""
    truth = torch.randn(256, 256)
    is_lenient = distribution in (*SIDED, *PROBING)

    def is_right(num_wrong: int, value: float) -> bool:
        got = truth.clone()
        got.view(-1)[:num_wrong] = value
        answer = Answer([got], [{}], None, [], [], 0.0)
        expected = Expected([], {"native": [truth]}, {}, mutates_inputs=False, work=[])
        try:
            check_outputs(answer, expected, 1, Delivery(names=[], needed=False), distribution=distribution)
        except Ruling:
            return False
        return True

    assert is_right(6, 9.0) == is_lenient
    assert not is_right(7, 9.0)
    assert not is_right(1, float("inf"))
    assert not is_right(60_000, 0.0)


@pytest.mark.parametrize(("num_rounds", "num_beyond"), [(2, 1), (4, 1), (5, 1), (6, 0), (10, 0)])
def test_few_rounds_have_one_more_on_inputs_that_they_did_not_meet(
    monkeypatch: pytest.MonkeyPatch, num_rounds: int, num_beyond: int
) -> None:
    played: list[str] = []
    nobody: Any = None
    match = Match(nobody, nobody, Conduct(distributions=DECIDING))
    monkeypatch.setattr(match, "_play", lambda name, distribution, *, repeat: played.append(distribution))
    for number in range(num_rounds):
        match.play_round(number, repeat=False)
    assert set(played[:2]) == set(TELLING)
    match.play_beyond(num_rounds)
    assert len(played) == num_rounds + num_beyond
    assert not set(played[num_rounds:]) & set(played[:num_rounds])
