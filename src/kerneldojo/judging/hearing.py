"""A verdict on a real GPU from the first process to the last: the rounds. `measurement` goes on with who passes them.

Two hosted processes take part, or three. Reference runner and contestant play the rounds and are timed in turns. Then
the candidate's own kernels become no-ops, which shows whether they cause the answer, and how much of the time they can
account for at most: in the contestant itself, or in a *silent twin*, a second one in which they are no-ops from birth.
The twin is a context more, so it comes only for what cannot be silenced in place, where that proves nothing or may be
seen, and by lot (`silence`).
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from functools import partial

from kerneldojo.devices.cuda.launchers import checked
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.measurement import Measurement
from kerneldojo.judging.parties import Parties
from kerneldojo.judging.preparation import rehearse_twin
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.turns import Turn
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop
from kerneldojo.languages import Language


@dataclass
class Hearing:
    """Of one candidate, by a bench that has let its guest in.

    Args:
        bench, guest: where, and whose processes are held in others' windows.
        auditor: what is known of problems.
        language, findings: of the candidate; `findings` is filled in.
        workshop: in which something may be built already.
    """

    bench: Bench
    auditor: Auditor
    language: Language
    findings: Findings
    guest: Guest
    workshop: Workshop
    turn: Turn | None = None
    """Its turn to have memory for timing, once it has asked for it."""

    def hold(self) -> None:
        """Play the rounds, and measure who passes them; raises `Ruling` where the candidate does not pass."""
        bench, findings, guest = self.bench, self.findings, self.guest
        parties = Parties(bench, guest, self.auditor, self.language, findings, self.workshop)
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_turn)  # Last of all: its processes have that memory until they are dead.
            with findings.stage("start"):
                bench.server.start()
                bench.enter()
                bench.look_around(guest)
                reference = stack.enter_context(bench.lent_reference(findings.problem, findings.protocol, guest))
                stack.enter_context(parties.ending())
            contestant, twin = parties.come(reference)
            with findings.stage("audit"):
                conduct = self.auditor.conduct(findings, reference, bench.limits(guest.room))
            match = Match(reference, contestant, conduct)
            if not bench.room(guest).in_place:  # Else there may be no room for one more set of inputs.
                twin.rehearse = partial(rehearse_twin, match)
            is_twin_late = parties.comes_late
            self._play(match, twin, is_twin_late=is_twin_late)
            ask_turn = self._ask_turn if bench.timed is not None and guest.room == 0 else None
            can_silence = not parties.needs_twin
            Measurement(
                bench, guest, findings, parties.workshop, match, twin, is_twin_late, can_silence, ask_turn
            ).take()

    def _ask_turn(self) -> Turn:
        assert self.bench.timed is not None
        self.turn = self.bench.timed.ask()
        return self.turn

    def _end_turn(self) -> None:
        if self.turn is not None:
            self.turn.give_back()

    def _play(self, match: Match, twin: Twin, *, is_twin_late: bool) -> None:
        findings, protocol = self.findings, self.findings.protocol
        repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
        try:
            with findings.stage("correctness"):
                for number in range(protocol.num_rounds):
                    # An autotuner chooses at the first call, by times: it needs the device to itself.
                    alone = number == 0 and "autotune" in findings.candidate.source
                    with self.guest.window() if alone else contextlib.nullcontext():
                        match.play_round(number, repeat=number in repeats)
                    if match.seen.ran_own_kernel and not is_twin_late:
                        twin.advance()
                match.play_beyond(protocol.num_rounds)
                for distribution in match.conduct.probing:
                    match.probe(distribution)
        finally:
            findings.max_error = match.seen.max_error
            findings.precision_class = match.seen.precision_class
        findings.note_weights(keeps_own=match.keeps_own)
        findings.outputs_matched = True
        lacked = (checked(item.get("launcher")) for item in match.seen.specializations)
        self.bench.server.learn([types for types in lacked if types is not None])
