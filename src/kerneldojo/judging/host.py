"""Judging without a GPU: kernels are interpreted, compiled for a target, and on `model:` devices priced.

Two fork servers take part, since interpreting and compiling cannot share a process. While rounds go on in one
contestant, another compiles the kernels under the signatures that the first round has shown.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Generator

from kerneldojo.devices import DEFAULT_MODEL, Device
from kerneldojo.judging import pricing
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.cause import check_cause, no_own_kernel
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.processes import Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference, patience
from kerneldojo.judging.rounds import MAX_SPECIALIZATIONS, Match
from kerneldojo.judging.ruling import Ruling, in_source
from kerneldojo.judging.servers import HostServers
from kerneldojo.judging.stock import Endings, Ready, References
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.target_build import Compilations, Compiled, TargetBuild, unfound
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language
from kerneldojo.schema import Problem, Status, content_hash

ARENA_BYTES = 8 << 30
"""Address space, not memory: pages exist once they are written."""
COMPILE_ARENA_BYTES = 1 << 20
"""No tensor goes to a compiling contestant."""
NUM_READY = 2
"""Sessions that are kept ready for the next candidates, of each fork server."""


class HostBench:
    """The two fork servers, kept warm between candidates, with sessions in stock.

    Each session serves one candidate, or one problem.

    Args:
        servers: that may be warming up already; closed with the bench.
    """

    def __init__(self, servers: HostServers | None = None) -> None:
        self._servers = servers or HostServers()
        self.interpreting, self.compiling = self._servers.interpreting, self._servers.compiling
        self.endings = Endings()
        self._contestants = Ready(
            lambda wanted: Session(self.interpreting, host_arena(ARENA_BYTES), wanted), NUM_READY, self.endings
        )
        self._compilers = Ready(
            lambda wanted: Session(self.compiling, host_arena(COMPILE_ARENA_BYTES), wanted), NUM_READY, self.endings
        )
        self._references = References(self.endings)
        self.compilations = Compilations()

    def start(self) -> None:
        """Begin to warm up without waiting."""
        self._servers.start()

    def close(self) -> None:
        """End both fork servers, and everything that they forked."""
        self._contestants.close()
        self._compilers.close()
        self._references.close()
        self.endings.close()
        self._servers.close()

    def reference(self, problem: Problem, protocol: Protocol, model: str = DEFAULT_MODEL) -> Reference:
        """A reference runner with the problem loaded, on the model of GPU that it is to believe in; the caller's."""
        session = Session(self.interpreting, host_arena(ARENA_BYTES), request(protocol, model))
        reference = Reference(session, problem, patience(protocol.timeout))
        try:
            reference.load()
        except BaseException:
            session.close()
            raise
        return reference

    @contextlib.contextmanager
    def lent_reference(self, problem: Problem, protocol: Protocol, model: str) -> Generator[Reference]:
        """A reference runner for one verdict, perhaps one that has served others; see `stock.References`."""
        key = content_hash(problem.source, json.dumps(request(protocol, model), sort_keys=True))
        reference = self._references.take(key)
        if reference is None:
            reference = self.reference(problem, protocol, model)
        else:
            reference.renew(patience(protocol.timeout))
        try:
            yield reference
        finally:
            self._references.give_back(key, reference)

    def contestant(self, submission: Submission, protocol: Protocol, model: str = DEFAULT_MODEL) -> Contestant:
        """A fresh contestant; nothing of the candidate has run in it yet, nor of any other."""
        return Contestant(self._contestants.take(request(protocol, model)), submission, protocol.timeout)

    def compiler(self, submission: Submission, protocol: Protocol, model: str) -> Contestant:
        """A fresh contestant in which kernels are compiled, not run."""
        return Contestant(self._compilers.take(request(protocol, model)), submission, protocol.timeout)


def judge_on_host(bench: HostBench, auditor: Auditor, device: Device, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    protocol = findings.protocol
    bench.start()
    with contextlib.ExitStack() as stack:
        with findings.stage("reference"):
            reference = stack.enter_context(bench.lent_reference(findings.problem, protocol, device.model))
        with findings.stage("audit"):
            conduct = auditor.conduct(findings, reference)
        with findings.stage("build"):
            contestant = bench.contestant(findings.submission, protocol, device.model)
            stack.callback(bench.endings.add, contestant.hosted.session)
            contestant.load(max(protocol.load_timeout, language.build_seconds))
            contestant.hosted.session.wait_started()
            findings.isolation = contestant.hosted.session.measures
            findings.note_borrowed(contestant.borrowed)
        if language.needs_gpu:
            raise Ruling(
                Status.UNSUPPORTED_ON_DEVICE, f"a {language.name} candidate needs a CUDA device; it was only built here"
            )
        match = Match(reference, contestant, conduct, overlap=True)
        build = TargetBuild(bench, bench.compilations, findings.submission, protocol, device)
        stack.callback(build.close)
        compiled = _play(match, build, device, findings)
        with findings.stage("cause"):
            if not match.seen.ran_own_kernel:
                raise no_own_kernel("any call", training=conduct.training)
            findings.notes += check_cause(match, protocol.cause_timeout)
        if unseen := unfound(compiled):
            name = in_source(unseen[0], findings.candidate.source) or "it launches"
            raise Ruling(
                Status.COMPILE_ERROR,
                f"the kernel {name} is made by a call: without a GPU it is not compiled, and an interpreter takes "
                "any function for a kernel; define it where the source is imported, or in the constructor",
            )


def _play(match: Match, build: TargetBuild, device: Device, findings: Findings) -> Compiled:
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
        with findings.stage("correctness"):
            match.play_beyond(protocol.num_rounds)
            for distribution in match.conduct.probing:
                match.probe(distribution)
    except Ruling as ruling:
        wrong = ruling
        if match.contestant.failed_specializations and not build.is_posted:
            build.post(match.contestant.failed_specializations[:MAX_SPECIALIZATIONS], protocol.load_timeout)
    with findings.stage("compile"):
        # A kernel that does not compile comes before one that is wrong, as on a GPU.
        compiled = build.collect(match.birth, training=match.conduct.training)
    findings.max_error = match.seen.max_error
    findings.precision_class = match.seen.precision_class
    if wrong is not None:
        raise wrong
    findings.note_weights(keeps_own=match.keeps_own)
    findings.outputs_matched = True
    pricing.fill(findings, match.seen, compiled, device)
    return compiled
