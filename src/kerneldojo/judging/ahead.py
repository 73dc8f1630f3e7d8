"""What can be done for a verdict before it has the device: a source is imported, and what it compiles is compiled.

A context, memory and a reference are lost on a source that does not import, and so is everybody's time where one
verdict has the device alone. So what needs none of that comes first, where several are judged at once: in a process
without the device the source is imported, and if it compiles only when it is called, it is called without numbers
(`contestant.dry_call`).

Compiling an extension takes ten seconds, and what needs the device three. So whoever compiles opens its workshop
(`judging.workshop`) before it has a place at the device, and imports the source in a process whose orders the workshop
carries out. What contestant and twin order later is there by then. Nothing of that process comes back but whether the
source imports. The workshop stays where a problem turns out to need a larger room: there it has built already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.parties import may_compile_cuda
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop, build_seconds, is_slow_to_build
from kerneldojo.languages import Language

DRY_CALL_SECONDS = 4.0
"""For a call without numbers, of which most take less than a tenth; what takes longer shows on the device."""


@dataclass(frozen=True)
class Ahead:
    """What there is of a verdict before it has a place."""

    workshop: Workshop
    """In which all is built, if anything is."""
    guest: Guest | None = None
    """At the gate, where that workshop stands still in others' windows; None if nothing is built yet."""

    @property
    def serves_on(self) -> bool:
        """Whether there would be nothing to build in one more room."""
        return self.guest is not None and self.workshop.is_ready


@contextlib.contextmanager
def built_ahead(bench: Bench, language: Language, findings: Findings) -> Generator[Ahead]:
    """What is ahead of a verdict: a workshop for later where to build sooner gains nothing.

    Raises:
        Ruling: the source does not import, or what it launches does not compile.
    """
    protocol = findings.protocol
    is_early = bench.pace.builds_ahead and bench.gate.capacity > 1
    is_slow = is_slow_to_build(language, protocol)
    if is_early and not is_slow and not may_compile_cuda(findings.candidate.source):
        _try_source(bench, findings)
    with contextlib.ExitStack() as stack:
        workshop = Workshop()
        stack.callback(workshop.abandon)
        if not (is_early and is_slow):
            yield Ahead(workshop)
            return
        guest = stack.enter_context(bench.gate.approach())
        with findings.stage("build"):
            bench.server.start()
            trial, session = bench.trial(findings.submission, protocol, guest, workshop.line())
            with contextlib.closing(session):
                for opened in workshop.open(bench, protocol, guest):
                    stack.callback(opened.close)
                trial.import_only(protocol.load_timeout, build_seconds(language, protocol))
        yield Ahead(workshop, guest)


def _compiles_when_called(source: str) -> bool:
    """Whether a call without numbers may tell something, and soon: torch's own compiler takes seconds of one."""
    return "triton" in source and "torch.compile" not in source


def _try_source(bench: Bench, findings: Findings) -> None:
    """See once whether the source imports, and whether what it launches compiles."""
    if findings.is_tried:
        return
    findings.is_tried = True
    timeout = findings.protocol.load_timeout
    with findings.stage("build"), bench.gate.approach() as guest:
        bench.server.start()
        trial, session = bench.trial(findings.submission, findings.protocol, guest)
        try:
            is_alive = trial.import_only(timeout, timeout)
            if is_alive and bench.emulated and _compiles_when_called(findings.candidate.source):
                trial.call_dry(bench.emulated, DRY_CALL_SECONDS)
        finally:
            bench.dismiss(session)
