"""A round of a match: who is asked what, in which order, and what is remembered of the answers.

The processes are stand-ins that say what they were asked; the memory shared with the candidate's is real.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.judging import rounds
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.outputs import Checked
from kerneldojo.judging.processes import host_arena
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.rounds import Conduct, Match, Rounds
from kerneldojo.judging.ruling import Ruling
from kerneldojo.problems.distributions import PROBING
from kerneldojo.schema import Status

CONDUCT = Conduct(distributions=("own", "signed"), variants=("native", "float64"))


class Problem:
    """A reference whose answer is twice its input; it may write zeros there, and count its calls in a buffer."""

    def __init__(self, *, writes: bool = False, counts: bool = False) -> None:
        self.writes, self.counts = writes, counts
        self.asked: list[tuple[Any, ...]] = []
        self._begun: Expected | None = None

    def begin(
        self, instance: str, init_seed: int, seed: int, *, training: bool, negative: bool
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        self.asked.append(("begin", instance, init_seed, seed, training, negative))
        return [3], {"weight": torch.full((2,), 5.0)}

    def draw(self, what: str, seed: int, distribution: str) -> list[torch.Tensor]:
        self.asked.append(("draw", what, seed, distribution))
        return [torch.rand(64) + 1.0]

    def answer(
        self, instance: str, draw_seed: int, seed: int, variants: tuple[str, ...], distribution: str
    ) -> tuple[list[torch.Tensor], Expected]:
        self.asked.append(("answer", instance, draw_seed, seed, variants, distribution))
        inputs = [torch.rand(64) + 1.0]
        return inputs, self._expected(inputs)

    def post_expect(self, instance: str, inputs: list[torch.Tensor], variants: tuple[str, ...], seed: int) -> None:
        self.asked.append(("post_expect", instance, seed, variants))
        self._begun = self._expected(inputs)

    def collect_expect(self, variants: tuple[str, ...]) -> Expected:
        self.asked.append(("collect_expect", variants))
        assert self._begun is not None
        return self._begun

    def _expected(self, inputs: list[torch.Tensor]) -> Expected:
        right = 2 * inputs[0]
        return Expected(
            values=right,
            outputs={"native": [right], "float64": [right.double()]},
            buffers={"num_calls": torch.ones(1)} if self.counts else {},
            mutates_inputs=self.writes,
            work=[{"by": "the reference"}],
            inputs_after={"native": [torch.zeros(64)]} if self.writes else {},
            other_buffers={"float64": {"num_calls": torch.ones(1)}} if self.counts else {},
        )


class Candidate:
    """A contestant whose answers `compute` makes of the tensors that lie in its memory."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        session: Any = SimpleNamespace(arena=host_arena(1 << 16))
        self.hosted = Hosted(session, 10.0)
        self.compute = compute
        self.asked: list[tuple[Any, ...]] = []
        self.addresses: list[int] = []
        self.work: list[dict[str, Any]] = [{"own": True}]
        self.specializations: list[dict[str, Any]] = []
        self.buffers: dict[str, torch.Tensor] = {}
        self.elapsed = itertools.chain([0.5, 0.25], itertools.repeat(0.125))
        self.delivery = Delivery(names=["own_weight"], needed=False, pairs={"num_calls": "own_calls"})
        self.takes_weights = False
        self.keeps_own = list[bool]()
        """In each construction."""
        self._held: dict[str, torch.Tensor] = {}

    def construct(
        self,
        instance: str,
        seed: int,
        init_values: Any,
        state: Any,
        *,
        training: bool,
        negative: bool,
        keeps_own: bool,
    ) -> Delivery:
        self.asked.append(("construct", instance, seed, init_values, training, negative))
        self.keeps_own.append(keeps_own)
        assert torch.equal(state["weight"], torch.full((2,), 5.0))
        return self.delivery

    def call(self, instance: str, node: Any, seed: int, *, hold: str | None) -> Answer:
        self.asked.append(("call", instance, seed, hold))
        (x,) = self.hosted.peek(node)
        self.addresses.append(x.data_ptr())
        output = self.compute(x)
        if hold is not None:
            self._held[hold] = output
        return self._read(output, next(self.elapsed))

    def recall(self, name: str) -> Answer:
        self.asked.append(("recall", name))
        return self._read(self._held[name], 0.0)

    def state(self, instance: str, names: list[str]) -> dict[str, torch.Tensor]:
        self.asked.append(("state", instance, names))
        return self.buffers

    def _read(self, output: torch.Tensor, elapsed: float) -> Answer:
        return Answer([output.clone()], [{}], None, self.work, self.specializations, elapsed)


Meeting = Callable[..., tuple[Match, Problem, Candidate]]


@pytest.fixture
def meeting() -> Generator[Meeting]:
    """Makes a match of a candidate that computes so against a problem that is such."""
    arenas: list[Any] = []

    def make(
        compute: Callable[[torch.Tensor], torch.Tensor] = lambda x: 2 * x,
        conduct: Conduct = CONDUCT,
        *,
        overlap: bool = False,
        **kinds: bool,
    ) -> tuple[Match, Problem, Candidate]:
        problem, candidate = Problem(**kinds), Candidate(compute)
        arenas.append(candidate.hosted.arena)
        reference: Any = problem
        contestant: Any = candidate
        return Match(reference, contestant, conduct, overlap=overlap), problem, candidate

    yield make
    for arena in arenas:
        arena.close()


@pytest.mark.parametrize("training", [False, True])
def test_both_sides_are_made_alike_and_asked_under_one_seed(meeting: Meeting, training: bool) -> None:
    match, problem, candidate = meeting(conduct=replace(CONDUCT, training=training))
    match.play_round(3, repeat=False)
    begun, answered = problem.asked
    constructed, called = candidate.asked
    assert begun[:2] == ("begin", "round-3") and begun[4:] == (training, False)
    assert constructed == ("construct", "round-3", begun[3], [3], training, False)
    assert answered[:2] == ("answer", "round-3") and answered[4:] == (CONDUCT.variants, match._order[1])
    assert called == ("call", "round-3", answered[3], None)
    assert len({begun[2], begun[3], answered[2], answered[3]}) == 4, "each seed has one use"
    assert all(0 <= seed < 1 << 62 for seed in (begun[2], begun[3], answered[2], answered[3]))
    assert match.birth is not None and not match.birth.negative
    assert match.seen.first_call_seconds == 0.5
    assert not match.seen.steady_works and not match.seen.steady_reference_works


def test_rounds_take_turns_with_distributions_and_one_more_takes_what_they_did_not_meet(meeting: Meeting) -> None:
    conduct = replace(CONDUCT, distributions=("own", "signed", "negative", "opposed"))
    match, problem, candidate = meeting(conduct=conduct)
    for number in range(3):
        match.play_round(number, repeat=False)
    match.play_beyond(3)
    met = [asked for asked in problem.asked if asked[0] == "answer"]
    assert [asked[1] for asked in met] == ["round-0", "round-1", "round-2", "beyond"]
    assert [asked[5] for asked in met] == list(match._order)
    assert match.seen.first_call_seconds == 0.5, "of the first call of all"
    assert [asked[3] for asked in candidate.asked if asked[0] == "call"] == [None] * 4
    match.play_beyond(4)
    assert len([asked for asked in problem.asked if asked[0] == "answer"]) == 4, "all have been met"


def test_each_round_has_all_of_the_shared_memory(meeting: Meeting) -> None:
    match, _, candidate = meeting()
    for number in range(2 * candidate.hosted.arena.num_bytes // (4 * 64)):
        match.play_round(number, repeat=False)
    assert len(set(candidate.addresses)) == 1


def test_a_second_call_has_new_content_at_the_old_place_and_the_first_result_is_looked_at_again(
    meeting: Meeting,
) -> None:
    match, problem, candidate = meeting()
    match.play_round(0, repeat=True)
    assert [asked[0] for asked in candidate.asked] == ["construct", "call", "call", "recall"]
    (_, _, first_seed, first_hold), (_, _, second_seed, second_hold) = candidate.asked[1:3]
    assert (first_hold, second_hold) == ("first", None) and first_seed != second_seed
    assert candidate.addresses[0] == candidate.addresses[1]
    assert candidate.asked[3] == ("recall", "first")
    answers = [asked for asked in problem.asked if asked[0] == "answer"]
    assert [asked[3] for asked in answers] == [first_seed, second_seed]
    assert answers[0][2] != answers[1][2], "inputs are drawn anew"
    assert match.seen.steady_works == [[{"own": True}]]
    assert match.seen.steady_reference_works == [[{"by": "the reference"}]]
    assert match.seen.first_call_seconds == 0.5


@pytest.mark.parametrize("outputs", [[], [torch.zeros(64)], [torch.zeros(64)] * 2])
def test_who_recalls_something_else_is_wrong_and_no_fault_of_ours(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch, outputs: list[torch.Tensor]
) -> None:
    match, _, _ = meeting()
    answer = Answer(outputs, [{} for _ in outputs], None, [], [], 0.0)
    monkeypatch.setattr(Candidate, "recall", lambda *_: answer)
    with pytest.raises(Ruling, match="reused output buffer"):
        match.play_round(0, repeat=True)


@pytest.mark.parametrize("is_handed_back", [False, True])
@pytest.mark.parametrize("claims", [False, True])
def test_an_input_that_both_hand_back_is_no_reused_buffer(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch, is_handed_back: bool, claims: bool
) -> None:
    match, _, candidate = meeting(lambda x: x.mul_(2), writes=True)
    expected = Problem._expected

    def told(self: Problem, inputs: list[torch.Tensor]) -> Expected:
        left = {"native": [2 * inputs[0]]}
        at = frozenset({0}) if is_handed_back else frozenset()
        return replace(expected(self, inputs), inputs_after=left, returns_inputs=at)

    def read(self: Candidate, output: torch.Tensor, elapsed: float) -> Answer:
        return Answer([output.clone()], [{"aliases_input": claims}], None, [], [], elapsed)

    monkeypatch.setattr(Problem, "_expected", told)
    monkeypatch.setattr(Candidate, "_read", read)
    if is_handed_back and claims:
        match.play_round(0, repeat=True)
    else:
        with pytest.raises(Ruling, match="reused output buffer"):
            match.play_round(0, repeat=True)
    assert ("recall", "first") in candidate.asked


def test_who_keeps_an_answer_by_address_or_writes_over_it_is_found_by_that(meeting: Meeting) -> None:
    kept: dict[int, torch.Tensor] = {}
    match, *_ = meeting(lambda x: kept.setdefault(x.data_ptr(), 2 * x))
    match.play_round(0, repeat=False)
    kept.clear()
    with pytest.raises(Ruling) as refused:
        match.play_round(1, repeat=True)
    assert refused.value.status is Status.INCORRECT

    buffer = torch.empty(64)
    match, *_ = meeting(lambda x: torch.mul(x, 2, out=buffer))
    match.play_round(0, repeat=False)
    with pytest.raises(Ruling, match="overwritten by the next call"):
        match.play_round(1, repeat=True)


def test_inputs_are_left_as_they_were_or_as_the_reference_leaves_them(meeting: Meeting) -> None:
    def writing(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (2 * x, x.fill_(value))[0]

    with pytest.raises(Ruling, match=r"changed its inputs$"):
        meeting(writing(0.0))[0].play_round(0, repeat=False)
    meeting(writing(0.0), writes=True)[0].play_round(0, repeat=False)
    with pytest.raises(Ruling, match="otherwise than the reference"):
        meeting(writing(1.0), writes=True)[0].play_round(0, repeat=False)
    meeting(writes=True)[0].play_round(0, repeat=False)  # Who leaves them alone returns what is right.


@pytest.mark.parametrize(("value", "is_right"), [(1.0, True), (0.0, False)])
def test_buffers_that_the_reference_changes_are_asked_for_by_the_candidates_own_names(
    meeting: Meeting, value: float, is_right: bool
) -> None:
    match, _, candidate = meeting(counts=True)
    candidate.buffers = {"own_calls": torch.full((1,), value)}
    if is_right:
        match.play_round(0, repeat=False)
        assert candidate.asked[-1] == ("state", "round-0", ["own_calls"])
    else:
        with pytest.raises(Ruling):
            match.play_round(0, repeat=False)
    match, _, candidate = meeting()
    match.play_round(0, repeat=False)
    assert not [asked for asked in candidate.asked if asked[0] == "state"], "there are none"


def test_a_probe_refuses_what_is_grossly_wrong_and_its_errors_are_not_remembered(meeting: Meeting) -> None:
    distribution = next(iter(PROBING))
    match, problem, candidate = meeting(lambda x: 2 * x * (1 + 1e-6), replace(CONDUCT, probing=(distribution,)))
    match.probe(distribution)
    assert problem.asked[-1][1] == f"probe-{distribution}" and problem.asked[-1][5] == distribution
    assert [asked[3] for asked in candidate.asked if asked[0] == "call"] == [None]
    assert match.seen.max_error is None and not match.seen.errors
    match.play_round(0, repeat=False)
    assert match.seen.max_error is not None and match.seen.max_error > 0
    candidate.compute = torch.zeros_like
    with pytest.raises(Ruling):
        match.probe(distribution)


@pytest.mark.parametrize(
    ("work", "ran"),
    [([{"own": True}], True), ([{"own": False}, {"own": True}], True), ([{"own": 1}], False), ([], False)],
)
def test_one_launch_of_an_own_kernel_in_any_call_is_enough(
    meeting: Meeting, work: list[dict[str, Any]], ran: bool
) -> None:
    match, _, candidate = meeting()
    candidate.work = work
    match.play_round(0, repeat=False)
    assert match.seen.ran_own_kernel is ran
    candidate.work = []
    match.play_round(1, repeat=False)
    assert match.seen.ran_own_kernel is ran


def test_signatures_of_kernels_are_remembered_once_and_not_without_end(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_SPECIALIZATIONS", 3)
    match, _, candidate = meeting()
    for number, told in enumerate(([{"n": 1}], [{"n": 1}, {"n": 2}], [{"n": 3}, {"n": 4}, {"n": 5}])):
        candidate.specializations = told
        match.play_round(number, repeat=False)
    assert match.seen.specializations == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_where_both_may_work_at_once_the_reference_is_asked_first_and_heard_in_any_case(meeting: Meeting) -> None:
    match, problem, candidate = meeting(overlap=True)
    match.play_round(0, repeat=False)
    assert [asked[0] for asked in problem.asked] == ["begin", "draw", "post_expect", "collect_expect"]
    _, drawn, posted, collected = problem.asked
    assert drawn[1] == "get_inputs" and drawn[3] == match._order[0]
    assert posted == ("post_expect", "round-0", candidate.asked[-1][2], CONDUCT.variants)
    assert collected == ("collect_expect", CONDUCT.variants)
    assert drawn[2] != posted[2]

    def fails(_: torch.Tensor) -> torch.Tensor:
        raise Ruling(Status.RUNTIME_ERROR, "its own failure comes first")

    match, problem, _ = meeting(fails, overlap=True)
    with pytest.raises(Ruling, match="comes first"):
        match.play_round(0, repeat=False)
    assert problem.asked[-1][0] == "collect_expect"


def test_a_largest_error_is_the_largest_of_all_rounds(meeting: Meeting) -> None:
    match, _, candidate = meeting(lambda x: 2 * x * (1 + 5e-7))
    match.play_round(0, repeat=False)
    first = match.seen.max_error
    candidate.compute = lambda x: 2 * x
    match.play_round(1, repeat=False)
    assert first is not None and match.seen.max_error == first > 0
    candidate.compute = lambda x: 2 * x * (1 + 2e-6)
    match.play_round(2, repeat=False)
    assert match.seen.max_error > 2 * first


DEALT = Delivery(names=["own_weight"], needed=True, pairs={"num_calls": "own_calls"})


def test_who_is_wrong_with_dealt_weights_is_asked_with_its_own_and_keeps_them(meeting: Meeting) -> None:
    match, _, candidate = meeting(lambda x: (2 if candidate.keeps_own[-1] else 3) * x)
    candidate.delivery = DEALT
    match.play_round(0, repeat=True)
    assert candidate.keeps_own == [False, True]
    match.play_round(1, repeat=False)
    assert candidate.keeps_own == [False, True, True]
    assert match.keeps_own
    assert match.beside(candidate).keeps_own


@pytest.mark.parametrize(
    "delivery",
    [DEALT, replace(DEALT, needed=False), replace(DEALT, names=[])],
    ids=["in a later round", "the same weights", "nothing dealt"],
)
def test_otherwise_nobody_is_asked_twice(meeting: Meeting, delivery: Delivery) -> None:
    match, _, candidate = meeting(lambda x: 3 * x)
    candidate.delivery = delivery
    with pytest.raises(Ruling):
        match.play_round(int(delivery is DEALT), repeat=False)
    assert candidate.keeps_own == [False]


def test_nor_who_takes_weights_in_a_way_of_its_own_nor_who_answers_in_another_shape(meeting: Meeting) -> None:
    for compute, takes_weights in ((lambda x: 3 * x, True), (lambda x: 2 * x[:1], False)):
        match, _, candidate = meeting(compute)
        candidate.delivery, candidate.takes_weights = DEALT, takes_weights
        with pytest.raises(Ruling):
            match.play_round(0, repeat=False)
        assert candidate.keeps_own == [False]


def test_who_is_wrong_with_both_is_told_what_was_wrong_at_first(meeting: Meeting) -> None:
    match, _, candidate = meeting(lambda x: (5 if candidate.keeps_own[-1] else 3) * x)
    candidate.delivery = DEALT
    with pytest.raises(Ruling) as first:
        match.play_round(1, repeat=False)
    with pytest.raises(Ruling) as both:
        match.play_round(0, repeat=False)
    assert candidate.keeps_own == [False, False, True]
    assert not match.keeps_own
    assert first.value.max_error is not None and both.value.max_error is not None
    assert both.value.max_error == pytest.approx(first.value.max_error, rel=0.5)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([None, None], None),
        (["ieee", None], "ieee"),
        (["ieee", "tf32", "ieee"], "tf32"),
        (["tf32", None, "ieee"], "tf32"),
        (["ieee", "ieee"], "ieee"),
    ],
)
def test_who_was_within_the_tolerance_of_tf32_alone_once_computes_in_it(told: list[Any], found: str | None) -> None:
    seen = Rounds()
    for one in told:
        seen.note_errors(Checked(0.5, {} if one is None else {0: one}), "own")
    assert seen.precision_class == seen.told_class == found
