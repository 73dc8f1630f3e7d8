"""A candidate's kernels, compiled for a GPU that need not be there, in a contestant of their own.

Compiling takes most of a hundred milliseconds, so its outcome is remembered. What a compiling contestant answers is a
claim of the code that it hosts; therefore it is remembered for that very source and those very signatures, where the
claim would be the same, and for nothing else: no candidate can speak for another.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any, Protocol

from kerneldojo.contestant import wire
from kerneldojo.devices import Device, work
from kerneldojo.devices.specs import gpu
from kerneldojo.judging import protocol as settings
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, readable
from kerneldojo.judging.rounds import MAX_SPECIALIZATIONS, Birth
from kerneldojo.judging.ruling import Ruling, exploit, of_candidate
from kerneldojo.judging.stock import Endings
from kerneldojo.judging.submission import Submission
from kerneldojo.schema import Status, content_hash

MAX_CANDIDATES = 512
"""Candidates whose compiled kernels are remembered, the last ones."""
MAX_SIGNATURES = 8
"""Sets of signatures remembered of one candidate: problems and sizes that it was judged on."""

MAX_ORDER_BYTES = wire.MAX_FRAME_BYTES - (1 << 10)
"""Signatures that fit into one command."""

Compiled = list[dict[str, Any]]


class Compilations:
    """What compiled without an error, by candidate and target, then by signatures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, OrderedDict[str, Compiled]] = OrderedDict()

    def get(self, candidate: str, signatures: str) -> Compiled | None:
        """What came of these signatures of this candidate."""
        with self._lock:
            return self._known.get(candidate, OrderedDict()).get(signatures)

    def put(self, candidate: str, signatures: str, compiled: Compiled) -> None:
        """Remember."""
        with self._lock:
            mine = self._known.setdefault(candidate, OrderedDict())
            mine[signatures] = compiled
            self._known.move_to_end(candidate)
            while len(mine) > MAX_SIGNATURES:
                mine.popitem(last=False)
            while len(self._known) > MAX_CANDIDATES:
                self._known.popitem(last=False)


class Bench(Protocol):
    """Where compiling contestants come from."""

    @property
    def endings(self) -> Endings:
        """Who waits for their end."""
        ...

    def compiler(self, submission: Submission, protocol: settings.Protocol, model: str) -> Contestant:
        """A fresh one."""
        ...


class TargetBuild:
    """Compiles a candidate's kernels under the signatures that the interpreter has shown, while rounds go on."""

    def __init__(
        self,
        bench: Bench,
        compilations: Compilations,
        submission: Submission,
        protocol: settings.Protocol,
        device: Device,
    ) -> None:
        self._bench = bench
        self._compilations = compilations
        self._submission = submission
        self._protocol = protocol
        self._device = device
        self._stage = f"compiling for {device.model}"
        self._key = content_hash(submission.source, submission.beside, submission.entry_point, device.model)
        self._signatures = ""
        self._contestant: Contestant | None = None
        self._known: Compiled | None = None
        self.is_posted = False

    def _begin(self) -> Contestant:
        """Only once there is something to compile: of the answers that are judged, half never come so far."""
        self._contestant = self._bench.compiler(self._submission, self._protocol, self._device.model)
        self._contestant.post_load()
        return self._contestant

    def post(self, specializations: list[dict[str, Any]], timeout: float) -> None:
        """Start compiling; the result is fetched with `collect`."""
        self._signatures = json.dumps(specializations, sort_keys=True)
        self._known = self._compilations.get(self._key, self._signatures)
        if self._known is not None:
            self.is_posted = True
            return
        contestant = self._begin()
        contestant.collect_load(timeout)
        if len(self._signatures) > MAX_ORDER_BYTES:
            raise Ruling(Status.COMPILE_ERROR, f"{self._stage}: its kernels have too many signatures to compile")
        self._order(contestant)
        self.is_posted = True  # Only now: a source that cannot be imported leaves no answer to wait for.

    def _order(self, contestant: Contestant) -> None:
        try:
            contestant.hosted.tell(
                "platform",
                what="compile",
                specializations=json.loads(self._signatures),
                capability=list(gpu(self._device.model).compute_capability),
            )
        except HostedEnd as end:  # It may have ended, or said what nobody asked, since it was imported.
            raise of_candidate(end, self._stage, self._submission.source) from None

    def collect(self, birth: Birth | None = None, *, training: bool = True) -> Compiled:
        """Wait for the compiler; raises `Ruling` with what it complained about.

        Args:
            birth: what an instance is made from if kernels are missing: a constructor may be what defines them.
            training: mode of that instance.
        """
        if not self.is_posted:
            return []
        self.is_posted = False
        if self._known is not None:
            return self._known
        compiled = self._answer()
        if birth is not None and unfound(compiled) and self._construct(birth, training=training):
            compiled = self._answer()
        for item in compiled:
            if item.get("error"):
                raise Ruling(Status.COMPILE_ERROR, f"{self._stage}: {readable(item['error'], 800)}")
        self._compilations.put(self._key, self._signatures, compiled)
        return compiled

    def _answer(self) -> Compiled:
        assert self._contestant is not None
        try:
            answer = self._contestant.hosted.collect()
        except HostedEnd as end:
            raise of_candidate(end, self._stage) from None
        compiled = answer.get("compiled")
        try:
            if not isinstance(compiled, list) or len(compiled) > MAX_SPECIALIZATIONS:
                raise ValueError("not a list, or a longer one than was ordered")
            return [work.Compiled.model_validate(item).model_dump() for item in compiled]
        except ValueError:
            raise exploit("tampering", "what it tells of its compiled kernels is malformed") from None

    def _construct(self, birth: Birth, *, training: bool) -> bool:
        """Make an instance where kernels are compiled, and compile again; False where that cannot be done."""
        assert self._contestant is not None
        try:
            self._contestant.ask(
                "construct",
                "constructor",
                instance="compile",
                entry_point=self._submission.entry_point,
                seed=birth.seed,
                training=training,
                alone=True,
                arguments=self._contestant.hosted.give(birth.init_values),
            )
            self._order(self._contestant)
        except (Ruling, HostedEnd):
            return False
        return True

    def close(self) -> None:
        """End the compiling contestant, if there is one."""
        if self._contestant is not None:
            self._bench.endings.add(self._contestant.hosted.session)
            self._contestant = None


def unfound(compiled: Compiled) -> list[str]:
    """Names of kernels that were launched and are nowhere where they could be compiled: a call makes them."""
    return [str(item.get("kernel"))[:200] for item in compiled if item.get("is_found") is False]
