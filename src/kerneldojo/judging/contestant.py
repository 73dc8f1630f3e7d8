"""The contestant as the judge sees it: constructed, given the reference's weights, called."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda.page import WANTS_DEVICE
from kerneldojo.judging.delivery import Delivery, match_states
from kerneldojo.judging.ends import (
    Died,
    Failed,
    HostedEnd,
    Infrastructure,
    Tampered,
    frameless,
    readable,
    seconds_of,
)
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.processes import Session
from kerneldojo.judging.ruling import of_candidate
from kerneldojo.judging.submission import Submission


@dataclass(frozen=True)
class Answer:
    """What came back from one call. Tensors are the judge's own copies; everything else is a claim."""

    outputs: list[torch.Tensor]
    kinds: list[dict[str, Any]]
    untold: str | None
    """Why the result could not be described at all, if so."""
    work: list[dict[str, Any]]
    specializations: list[dict[str, Any]]
    elapsed: float
    """Seconds on the contestant's own clock."""
    keys: list[tuple[str | int, ...]] | None = None
    """As `tree.keys` of the result; None where tensors alone were looked at."""


class Contestant:
    """Drives the process in which the candidate lives. Whatever it does wrong becomes a ruling.

    Args:
        session: the process.
        submission: whose source is loaded in it.
        budget: seconds that all its commands together may take.
        is_furnished: whether it has its memory already.
    """

    def __init__(
        self,
        session: Session,
        submission: Submission,
        budget: float,
        *,
        is_furnished: bool = False,
    ) -> None:
        self.is_furnished = is_furnished
        self.hosted = Hosted(session, budget)
        self._submission = submission
        self._custom_state = False
        self.construction_seconds = 0.0
        """Duration of the last constructor, by the contestant's own clock."""
        self.borrowed = ""
        """Names that the source has of the reference's, as it says."""
        self.failed_specializations: list[dict[str, Any]] = []
        """Signatures of kernels launched by a call that failed."""

    def post_parse(self) -> None:
        """On CUDA, before anything else: have the source read, so that one that is not Python costs no context."""
        self._post("parse")

    def collect_parse(self, timeout: float) -> None:
        """Wait until it is read."""
        self._collect(timeout)

    def collect_trial(self, timeout: float) -> bool:
        """As `collect_load`, in a process without memory of the device's, which ends when the source wants the device.

        Returns:
            Whether it is there still.

        Raises:
            Ruling: the source does not import.
        """
        try:
            self.hosted.collect(timeout)
            return True
        except Died as end:
            if end.exit_code != WANTS_DEVICE:  # Who says so falsely is tried once more, with a device.
                raise of_candidate(end, "import", self._submission.source) from None
            return False
        except HostedEnd as end:
            raise of_candidate(end, "import", self._submission.source) from None

    def import_only(self, parse_timeout: float, timeout: float) -> bool:
        """See whether the source imports, as a trial, and whether that is still alive; raises `Ruling` if it does not
        import."""
        self.post_parse()
        self.collect_parse(parse_timeout)
        self.post_load()
        return self.collect_trial(timeout)

    def call_dry(self, gpu: str, timeout: float) -> None:
        """After `import_only`, of a trial that is alive: see whether what a call launches compiles (`dry_call`).

        Args:
            gpu: the GPU that is emulated.
            timeout: seconds after which it is left open, as whenever the call comes to nothing.

        Raises:
            Ruling: it does not.
        """
        given = self._submission
        try:
            self.hosted.post("dry_call", entry_point=given.entry_point, beside=given.beside, gpu=gpu)
            self.hosted.collect(timeout)
        except HostedEnd as end:
            if isinstance(end, Failed) and end.kind == "compile_error":  # It may claim other things as well.
                raise of_candidate(frameless(end), "forward", given.source) from None

    def furnish(self, timeout: float) -> None:
        """After `collect_parse`, before `post_load`: give it its memory, and wait until all is there that the source
        will meet.

        Raises:
            Infrastructure: it ended on the way, and nothing of the candidate's had run yet.
        """
        self.post_furnish()
        self.collect_furnish(timeout)

    def post_furnish(self) -> None:
        """Begin what `furnish` does, unless that was done ahead."""
        if self.is_furnished:
            return
        with _not_its_doing():
            self.hosted.post_furnish()

    def collect_furnish(self, timeout: float) -> None:
        """Wait for what `post_furnish` began."""
        if self.is_furnished:
            return
        with _not_its_doing():
            self.hosted.collect(timeout)
        self.is_furnished = True

    def extend(self, descriptors: list[int], sizes: list[int]) -> bool:
        """Give it the memory that it is timed in: see `CudaArena.extend`; whether it says it needed more before."""
        answer = self.ask("platform", "being prepared", what="extend", descriptors=descriptors, sizes=sizes)
        return answer.get("has_overflowed") is True

    def get_ready(self, sets: list[tree.Node], strides: list[tuple[int, ...]]) -> None:
        """Have it read the argument trees of timed calls, one a call, and be ready for windows.

        What it returns in these is read in the order that `strides` give for each output, and copied if it lies in
        another.
        """
        self.ask("platform", "being prepared", what="ready", sets=sets, strides=strides)

    def post_open(self) -> None:
        """Begin to make its context; raises `HostedEnd`. Whose fault it is depends on what has run in it."""
        self.hosted.post("open")

    def collect_open(self, timeout: float) -> None:
        """Wait until the context is there; raises `HostedEnd`."""
        self.hosted.collect(timeout)

    def load(self, timeout: float) -> None:
        """Import the source."""
        self.post_load()
        self.collect_load(timeout)

    def post_load(self) -> None:
        """Begin to import the source; the outcome is fetched with `collect_load`."""
        self._post("load")

    def collect_load(self, timeout: float) -> None:
        """Wait until the source is imported."""
        answer = self._collect(timeout)
        self._custom_state = bool(answer.get("custom_state"))
        told = answer.get("borrowed")
        told = told if isinstance(told, list) else []
        names = [name for name in told if isinstance(name, str) and name.isidentifier()]
        self.borrowed = readable(", ".join(names), 200)

    def _post(self, operation: str) -> None:
        given = self._submission
        try:
            self.hosted.post(operation, source=given.source, entry_point=given.entry_point, beside=given.beside)
        except HostedEnd as end:
            raise of_candidate(end, "import", given.source) from None

    def _collect(self, timeout: float) -> dict[str, Any]:
        try:
            return self.hosted.collect(timeout)
        except HostedEnd as end:
            raise of_candidate(end, "import", self._submission.source) from None

    def construct(
        self,
        instance: str,
        seed: int,
        init_values: Any,
        state: dict[str, torch.Tensor],
        *,
        training: bool,
        negative: bool = False,
        keeps_own: bool = False,
    ) -> Delivery:
        """Make an instance, the only one, and see to it that it has the reference's weights, unless it `keeps_own`; see
        `Reference.begin`."""
        answer = self.ask(
            "construct",
            "constructor",
            instance=instance,
            entry_point=self._submission.entry_point,
            seed=seed,
            training=training,
            negative=negative,
            alone=True,
            arguments=self.hosted.give(init_values),
        )
        with self._blamed("constructor"):
            self.construction_seconds = seconds_of(answer.get("seconds"))
        own = self._take_named(answer.get("state"), "constructor")
        delivery = match_states(own, state)
        if self._custom_state and state:
            self._deliver(instance, list(state), list(state.values()), custom=True)
        elif delivery.needed and delivery.names and not keeps_own:
            values = [
                value.reshape(own[name].shape) for name, value in zip(delivery.names, state.values(), strict=True)
            ]
            self._deliver(instance, delivery.names, values, custom=False)
        return delivery

    def _deliver(self, instance: str, names: list[str], values: list[torch.Tensor], *, custom: bool) -> None:
        slots = self.hosted.give_tensors(values)
        self.ask("load_state", "loading weights", instance=instance, names=names, slots=slots, custom=custom)

    def state(self, instance: str, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Those of its parameters and buffers as they are now that have such names, and perhaps others."""
        return self._take_named(self.ask("state", "state", instance=instance, names=list(names)).get("state"), "state")

    def call(
        self, instance: str, arguments: tree.Node, seed: int, *, timeout: float | None = None, **options: Any
    ) -> Answer:
        """Call an instance; `hold="name"` keeps the result alive for `recall`, `silenced=True` stops own kernels."""
        self.post_call(instance, arguments, seed, **options)
        return self.collect_call(timeout)

    def post_call(self, instance: str, arguments: tree.Node, seed: int, **options: Any) -> None:
        """Begin what `call` does; its answer must be fetched with `collect_call` before anything else is asked."""
        with self._blamed("forward"):
            self.hosted.post("call", instance=instance, arguments=arguments, seed=seed, **options)

    def collect_call(self, timeout: float | None = None) -> Answer:
        """Wait for what `post_call` began."""
        with self._blamed("forward"):
            answer = self.hosted.collect(timeout)
        return self._read(answer, "forward")

    def arm(self) -> bool:
        """Have it ready for calls in which its own kernels are no-ops; whether it says that it is, which is a claim.

        Raises:
            Ruling: it broke.
        """
        return self.ask("arm", "being silenced").get("is_armed") is True

    def recall(self, name: str) -> Answer:
        """Read a held result again."""
        return self._read(self.ask("recall", "forward", hold=name), "forward")

    def ask(self, operation: str, stage: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a command; what ends it is a ruling."""
        with self._blamed(stage):
            return self.hosted.ask(operation, timeout=timeout, **fields)

    @property
    def takes_weights(self) -> bool:
        """Whether it says that it has a way of its own to take the reference's weights."""
        return self._custom_state

    @contextmanager
    def _blamed(self, stage: str) -> Generator[None]:
        try:
            yield
        except HostedEnd as end:
            if isinstance(end, Failed):
                self.failed_specializations = _dicts(end.specializations)
            raise of_candidate(frameless(end), stage, self._submission.source) from None

    def _read(self, answer: dict[str, Any], stage: str) -> Answer:
        if "untold" in answer:
            return Answer([], [], readable(answer["untold"], 120), [], [], 0.0)
        with self._blamed(stage):
            values = self.hosted.take(answer.get("outputs"))
            outputs, kinds = tree.tensors(values), _dicts(answer.get("kinds"))
            if len(kinds) != len(outputs):
                raise Tampered("as many descriptions as outputs are told, each of its kind")
            elapsed = seconds_of(answer.get("elapsed"))
        return Answer(
            outputs=outputs,
            kinds=kinds,
            untold=None,
            work=_dicts(answer.get("work")),
            specializations=_dicts(answer.get("specializations")),
            elapsed=elapsed,
            keys=tree.keys(values),
        )

    def _take_named(self, pairs: Any, stage: str) -> dict[str, torch.Tensor]:
        with self._blamed(stage):
            return self.hosted.take_named(pairs)


@contextmanager
def _not_its_doing() -> Generator[None]:
    """Nothing of the candidate's has run in it yet."""
    try:
        yield
    except HostedEnd as end:
        raise Infrastructure(f"a contestant could not be made ready: {frameless(end)}") from None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
