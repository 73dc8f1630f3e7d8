"""What can be done for a verdict before it has the device: a source is imported, and what it compiles is compiled.

Compiling an extension takes ten seconds, and what needs the device three. Where one verdict has it alone, for want of
memory, nobody would use it meanwhile; and whoever is to have it alone waits until all others have left. So whoever
compiles opens its workshop (`judging.workshop`) before it has a place at the device, and imports the source in a
process without one, whose orders the workshop carries out. What contestant and twin order later is there by then.
Nothing of that process comes back but whether the source imports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop, build_seconds, is_slow_to_build
from kerneldojo.languages import Language


@contextlib.contextmanager
def built_ahead(bench: Bench, language: Language, findings: Findings) -> Generator[tuple[Guest | None, Workshop]]:
    """A guest at the gate and its workshop, in which all is built; none, and one for later, where that gains nothing.

    Raises:
        Ruling: the source does not import.
    """
    workshop, protocol = Workshop(), findings.protocol
    is_worthwhile = bench.pace.builds_ahead and bench.gate.capacity > 1 and is_slow_to_build(language, protocol)
    if not is_worthwhile:
        yield None, workshop
        return
    with bench.gate.approach() as guest, contextlib.ExitStack() as stack:
        stack.callback(workshop.abandon)
        with findings.stage("build"):
            bench.server.start()
            trial, session = bench.trial(findings.submission, protocol, guest, workshop.line())
            with contextlib.closing(session):
                for opened in workshop.open(bench, protocol, guest):
                    stack.callback(opened.close)
                trial.import_only(protocol.load_timeout, build_seconds(language, protocol))
        yield guest, workshop
