"""Correctness: several rounds, each with fresh secret seeds, a fresh instance, fresh weights and fresh inputs.

In some rounds, which the candidate cannot know beforehand, the instance is called a second time with new content in
the same buffers: a cache keyed on addresses answers wrongly, and a result of the first call that the second overwrote
is found. Inputs must come back unchanged, or as the reference leaves them, and buffers that it updates must be updated.

Whoever has other weights than the reference is dealt the reference's: most often they were drawn in another order. But
a constructor may also have folded something into them (a scale, a norm), which that undoes. So who answers wrongly with
weights that were dealt to it is asked once more with those that its constructor made, under the same seed as the
reference's; if that is right, it keeps its own from then on.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import torch

from kerneldojo.contestant.tree import tensors
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.work import Work
from kerneldojo.judging import order
from kerneldojo.judging.contestant import Answer, Contestant
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.fingerprints import remember
from kerneldojo.judging.outputs import Checked, check_buffers, check_inputs, check_outputs
from kerneldojo.judging.reference import Expected, Reference
from kerneldojo.judging.ruling import Ruling
from kerneldojo.problems.arithmetic import is_coarse, is_coarser
from kerneldojo.problems.distributions import PROBING, TELLING, has_negative_weights
from kerneldojo.schema import Status

MAX_SPECIALIZATIONS = 256
"""Signatures of own kernels that are remembered, and compiled where there is no GPU."""


@dataclass(frozen=True)
class Conduct:
    """How this problem is judged, as its audit settled."""

    training: bool = True
    distributions: tuple[str, ...] = ("own", "signed")
    """Input distributions that decide, those first in which answers that need no work are wrong."""
    probing: tuple[str, ...] = ()
    """Distributions that refuse only non-finite or grossly wrong results."""
    variants: tuple[str, ...] = ("native", "float64")
    """What the reference is run in; the first is the problem as written."""
    reduction_length: int = 1
    """Most terms that the problem sums for one element."""


@dataclass
class Rounds:
    """What the rounds have shown so far."""

    max_error: float | None = None
    """Largest error in units of the tolerance; None before there was one."""
    told_class: str | None = None
    """Class of the arithmetic by the tolerances that answers are within."""
    errors: dict[int, list[torch.Tensor]] = field(default_factory=dict[int, list[torch.Tensor]])
    """Of its answers, output by output, for one may err by so much that another's arithmetic does not show beside it:
    see `Checked.errors`."""
    own_errors: dict[int, list[torch.Tensor]] = field(default_factory=dict[int, list[torch.Tensor]])
    """Those on the problem's own inputs alone: calls are timed on such."""
    ran_own_kernel: bool = False
    """Whether any call launched a kernel of the candidate's own."""
    steady_works: list[list[dict[str, Any]]] = field(default_factory=list)
    """Counted work of each call of the candidate but the first ones of an instance, where weights may be packed."""
    steady_reference_works: list[list[dict[str, Any]]] = field(default_factory=list)
    steady_copies: list[list[Work]] = field(default_factory=list)
    """What bringing the outputs of these calls of the candidate into order takes."""
    disorder: list[str] = field(default_factory=list)
    """What is said of them."""
    specializations: list[dict[str, Any]] = field(default_factory=list)
    first_call_seconds: float = 0.0

    @property
    def precision_class(self) -> str | None:
        """Class of the arithmetic, for float32 problems where TF32 makes a difference."""
        seen = (*self.errors.values(), *self.own_errors.values())
        return "tf32" if self.told_class == "ieee" and any(map(is_coarse, seen)) else self.told_class

    def note_order(self, answer: Answer, expected: Expected) -> None:
        """Remember how the outputs of a steady call lie."""
        wanted = order.orders(answer, [Layout.of(tensor) for tensor in expected.outputs["native"]])
        self.steady_copies.append(order.copies(answer, wanted))
        self.disorder = order.notes(answer, wanted)

    def note_errors(self, checked: Checked, distribution: str) -> None:
        """Remember how far an answer that is right was from the truth, on inputs of this distribution."""
        self.max_error = max(self.max_error or 0.0, checked.error)
        if checked.precision_class is not None and self.told_class != "tf32":
            self.told_class = checked.precision_class
        for number, found in checked.errors.items():
            self.errors.setdefault(number, []).append(found)
            if distribution == "own":
                self.own_errors.setdefault(number, []).append(found)

    def were_finer(self, later: Checked) -> bool:
        """Whether answers were computed in float32, and this one, on inputs of the problem's own kind, in TF32."""
        return self.told_class == "ieee" and any(
            is_coarser([found], self.own_errors.get(number, ()), is_told=later.classes[number] == "tf32")
            for number, found in later.errors.items()
        )


@dataclass(frozen=True)
class Birth:
    """What an instance was made from."""

    seed: int
    init_values: Any
    state: dict[str, torch.Tensor]
    negative: bool = False
    """Whether weights are as `distributions.has_negative_weights` asks for them."""


@dataclass
class Question:
    """What an instance is asked in one call."""

    name: str
    """Of the instance."""
    seed: int
    """Of the call."""
    distribution: str
    """Of the inputs."""
    inputs: Any
    """None once nobody needs them any more: there may be no room for them beside two answers."""
    expected: Expected | None
    """The reference's answer, unless it is still to be asked."""


def secret_seed() -> int:
    """A seed that nobody could have known before it was drawn."""
    return secrets.randbits(62)


def drawn_order(distributions: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which rounds use them: those that tell most, then the others as they are drawn."""
    others = [name for name in distributions if name not in TELLING]
    secrets.SystemRandom().shuffle(others)
    return (*(name for name in distributions if name in TELLING), *others)


class Match:
    """One candidate against one reference.

    Args:
        reference: the problem's runner.
        contestant: the candidate.
        conduct: how the problem is judged.
        overlap: call both at the same time; not where they share a device.
    """

    def __init__(
        self, reference: Reference, contestant: Contestant, conduct: Conduct, *, overlap: bool = False
    ) -> None:
        self._overlap = overlap
        self.reference = reference
        self.contestant = contestant
        self.conduct = conduct
        self.seen = Rounds()
        self.birth: Birth | None = None
        self._order = drawn_order(conduct.distributions)
        self.delivery = Delivery(names=[], needed=False)
        self.keeps_own = False
        """Whether its weights are those that its constructor made."""

    def beside(self, contestant: Contestant) -> Match:
        """The same for another process of the same candidate."""
        match = Match(self.reference, contestant, self.conduct)
        match.keeps_own = self.keeps_own
        return match

    def prepare(self, instance: str, distribution: str = "own") -> Delivery:
        """Construct both sides under a fresh seed, with equal weights, for inputs of this distribution."""
        return self.construct(instance, self.conceive(instance, distribution))

    def conceive(self, instance: str, distribution: str = "own") -> Birth:
        """Construct the reference's side under a fresh seed; what the other side is to be made from."""
        seed, negative = secret_seed(), has_negative_weights(distribution)
        init_values, state = self.reference.begin(
            instance, secret_seed(), seed, training=self.conduct.training, negative=negative
        )
        self.birth = Birth(seed, init_values, state, negative)
        return self.birth

    def construct(self, instance: str, birth: Birth) -> Delivery:
        """Construct the contestant's side alone, with the weights that the reference has."""
        self.contestant.hosted.clear()
        self.delivery = self.contestant.construct(
            instance,
            birth.seed,
            birth.init_values,
            birth.state,
            training=self.conduct.training,
            negative=birth.negative,
            keeps_own=self.keeps_own,
        )
        return self.delivery

    def play_round(self, number: int, *, repeat: bool) -> None:
        """One round; raises `Ruling` on the first thing that is wrong."""
        name, distribution = f"round-{number}", self._order[number % len(self._order)]
        try:
            self._play(name, distribution, repeat=repeat)
        except Ruling as ruling:
            if number or not self._may_be_the_weights(ruling):
                raise
            self._play_with_own(name, distribution, ruling.with_traceback(None), repeat=repeat)

    def _may_be_the_weights(self, ruling: Ruling) -> bool:
        """Whether values are wrong, after weights were dealt by name or place."""
        is_dealt = self.delivery.needed and bool(self.delivery.names) and not self.contestant.takes_weights
        return is_dealt and ruling.status is Status.INCORRECT and ruling.max_error is not None

    def _play_with_own(self, name: str, distribution: str, before: Ruling, *, repeat: bool) -> None:
        self.keeps_own = True
        try:
            self._play(name, distribution, repeat=repeat)
        except Ruling:
            self.keeps_own = False
            raise before from None

    def play_beyond(self, num_rounds: int) -> None:
        """What so few rounds had no room for: one more, with a deciding distribution that they did not meet."""
        for distribution in self._order[num_rounds : num_rounds + 1]:
            self._play("beyond", distribution, repeat=False)

    def probe(self, distribution: str) -> None:
        """A round on unusual inputs, which refuses only non-finite or grossly wrong results."""
        self._play(f"probe-{distribution}", distribution, repeat=False)

    def _play(self, name: str, distribution: str, *, repeat: bool) -> None:
        self.prepare(name, distribution)
        question = self._question(name, distribution)
        node = self.contestant.hosted.give(question.inputs)
        first, lasting = self._call(question, node, hold="first" if repeat else None, steady=False)
        self.seen.first_call_seconds = self.seen.first_call_seconds or first.elapsed
        if repeat:
            num_outputs, before = len(first.outputs), remember([first.outputs[index] for index in lasting])
            del first, question  # There may be no room for two of them.
            question = self._question(name, distribution)
            node = self.contestant.hosted.rewrite(node, question.inputs)
            self._call(question, node, hold=None, steady=True)
            del question
            again = self.contestant.recall("first").outputs  # As many as it likes.
            if len(again) != num_outputs or not before.equals([again[index] for index in lasting]):
                raise Ruling(
                    Status.INCORRECT, "the result of a call was overwritten by the next call (reused output buffer)"
                )

    def _question(self, name: str, distribution: str) -> Question:
        seed, variants = secret_seed(), self.conduct.variants
        if self._overlap:  # The reference answers while the candidate does.
            inputs = self.reference.draw("get_inputs", secret_seed(), distribution)
            return Question(name, seed, distribution, inputs, None)
        inputs, expected = self.reference.answer(name, secret_seed(), seed, variants, distribution)
        return Question(name, seed, distribution, inputs, expected)

    def _call(self, question: Question, node: Any, *, hold: str | None, steady: bool) -> tuple[Answer, list[int]]:
        """What the contestant answers, if that is right, and which outputs the next call must leave as they are: all
        but those that lie in an input, on both sides."""
        delivery = self.delivery
        inputs = remember(tensors(question.inputs))
        if question.expected is not None:
            question.inputs = None  # They have been given, and answered by the reference.
        answer, expected = self._answers(question, node, hold)
        self._note(answer, expected, steady=steady)
        length, distribution = self.conduct.reduction_length, question.distribution
        checked = check_outputs(answer, expected, length, delivery, distribution=distribution)
        if distribution not in PROBING:
            self.seen.note_errors(checked, distribution)
        if steady:
            self.seen.note_order(answer, expected)
        left = self.contestant.hosted.peek(node)
        if not inputs.equals(left):
            check_inputs([tensor.clone() for tensor in left], expected, length, distribution=distribution)
        if expected.buffers:
            names = [delivery.pairs.get(name, name) for name in expected.buffers]
            own = self.contestant.state(question.name, names)
            check_buffers(own, expected, length, delivery, distribution=distribution)
        inputs_own = [at for at in expected.returns_inputs if answer.kinds[at].get("aliases_input") is True]
        return answer, [at for at in range(len(answer.outputs)) if at not in inputs_own]

    def _answers(self, question: Question, node: Any, hold: str | None) -> tuple[Answer, Expected]:
        name, seed, variants = question.name, question.seed, self.conduct.variants
        if question.expected is not None:
            return self.contestant.call(name, node, seed, hold=hold), question.expected
        self.reference.post_expect(name, question.inputs, variants, seed)
        try:
            answer = self.contestant.call(name, node, seed, hold=hold)
        finally:  # Its answer is fetched in any case, and its own failure comes first, as without overlap.
            expected = self.reference.collect_expect(variants)
        return answer, expected

    def _note(self, answer: Answer, expected: Expected, *, steady: bool) -> None:
        self.seen.ran_own_kernel |= any(work.get("own") is True for work in answer.work)
        if steady:
            self.seen.steady_works.append(answer.work)
            self.seen.steady_reference_works.append(expected.work)
        for item in answer.specializations:
            if item not in self.seen.specializations and len(self.seen.specializations) < MAX_SPECIALIZATIONS:
                self.seen.specializations.append(item)
