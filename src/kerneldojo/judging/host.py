"""Judging without a GPU: kernels are interpreted, compiled for a target, and on `model:` devices priced.

Two fork servers take part, since interpreting and compiling cannot share a process. While rounds go on in one
contestant, another compiles the kernels under the signatures that the first round has shown.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

from kerneldojo.devices import DEFAULT_MODEL, Device
from kerneldojo.devices.specs import gpu
from kerneldojo.judging import pricing
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.cause import check_cause, no_own_kernel
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling, of_candidate
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language
from kerneldojo.schema import Candidate, Problem, Status

ARENA_BYTES = 8 << 30
"""Address space, not memory: pages exist once they are written."""
REFERENCE_SECONDS = 600.0


class HostBench:
    """The two fork servers, kept warm between candidates."""

    def __init__(self) -> None:
        self.interpreting = ForkServer("interpret")
        self.compiling = ForkServer("compile")

    def start(self) -> None:
        """Begin to warm up without waiting."""
        self.interpreting.start()
        self.compiling.start()

    def close(self) -> None:
        """End both fork servers."""
        self.interpreting.close()
        self.compiling.close()

    def reference(self, problem: Problem, protocol: Protocol, model: str = DEFAULT_MODEL) -> Reference:
        """A reference runner with the problem loaded, on the model of GPU that it is to believe in."""
        session = Session(self.interpreting, host_arena(ARENA_BYTES), request(protocol, model))
        reference = Reference(session, problem, REFERENCE_SECONDS)
        try:
            reference.load()
        except BaseException:
            session.close()
            raise
        return reference

    def contestant(self, candidate: Candidate, protocol: Protocol, model: str = DEFAULT_MODEL) -> Contestant:
        """A fresh contestant; nothing of the candidate has run in it yet."""
        session = Session(self.interpreting, host_arena(ARENA_BYTES), request(protocol, model))
        return Contestant(session, candidate, protocol.timeout)


class TargetBuild:
    """The candidate's kernels, compiled for a GPU that need not be there, in a process of their own."""

    def __init__(self, server: ForkServer, candidate: Candidate, protocol: Protocol, device: Device) -> None:
        self._device = device
        self._session = Session(server, host_arena(1 << 20), request(protocol, device.model))
        self._contestant = Contestant(self._session, candidate, protocol.timeout)
        self.is_posted = False

    def post(self, specializations: list[dict[str, Any]], timeout: float) -> None:
        """Start compiling; the result is fetched with `collect`."""
        self._contestant.load(timeout)
        capability = gpu(self._device.model).compute_capability
        self._session.post("platform", what="compile", specializations=specializations, capability=list(capability))
        self.is_posted = True

    def collect(self) -> list[dict[str, Any]]:
        """Wait for the compiler; raises `Ruling` with what it complained about."""
        if not self.is_posted:
            return []
        self.is_posted = False
        try:
            answer = self._session.collect(self._contestant.hosted.remaining)
        except HostedEnd as end:
            raise of_candidate(end, f"compiling for {self._device.model}") from None
        compiled = [item for item in answer.get("compiled") or [] if isinstance(item, dict)]
        for item in compiled:
            if item.get("error"):
                raise Ruling(Status.COMPILE_ERROR, f"compiling for {self._device.model}: {str(item['error'])[:800]}")
        return compiled

    def close(self) -> None:
        """End the compiling contestant."""
        self._session.close()


def judge_on_host(bench: HostBench, auditor: Auditor, device: Device, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    protocol = findings.protocol
    bench.start()
    with contextlib.ExitStack() as stack:
        with findings.stage("reference"):
            reference = bench.reference(findings.problem, protocol, device.model)
            stack.callback(reference.hosted.session.close)
        with findings.stage("audit"):
            conduct = auditor.conduct(findings, reference)
        with findings.stage("build"):
            contestant = bench.contestant(findings.candidate, protocol, device.model)
            stack.callback(contestant.hosted.session.close)
            contestant.load(max(protocol.load_timeout, language.build_seconds))
            contestant.hosted.session.wait_started()
            findings.isolation = contestant.hosted.session.measures
        if language.needs_gpu:
            raise Ruling(
                Status.UNSUPPORTED_ON_DEVICE, f"a {language.name} candidate needs a CUDA device; it was only built here"
            )
        match = Match(reference, contestant, conduct)
        build = TargetBuild(bench.compiling, findings.candidate, protocol, device)
        stack.callback(build.close)
        _play(match, build, device, findings)
        with findings.stage("cause"):
            if not match.seen.ran_own_kernel:
                raise no_own_kernel("any call")
            check_cause(match, protocol.cause_timeout)


def _play(match: Match, build: TargetBuild, device: Device, findings: Findings) -> None:
    protocol = findings.protocol
    repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
    wrong: Ruling | None = None
    try:
        for number in range(protocol.num_rounds):
            with findings.stage("correctness"):
                match.play_round(number, repeat=number in repeats)
            if number == 0:
                with findings.stage("compile"):
                    build.post(match.seen.specializations, protocol.load_timeout)
        for distribution in match.conduct.probing:
            with findings.stage("correctness"):
                match.probe(distribution)
    except Ruling as ruling:
        wrong = ruling
        if match.contestant.failed_specializations and not build.is_posted:
            build.post(match.contestant.failed_specializations, protocol.load_timeout)
    with findings.stage("compile"):
        compiled = build.collect()  # A kernel that does not compile comes before one that is wrong, as on a GPU.
    findings.max_error = match.seen.max_error
    findings.precision_class = match.seen.precision_class
    if wrong is not None:
        raise wrong
    findings.outputs_matched = True
    pricing.fill(findings, match.seen, compiled, device)
