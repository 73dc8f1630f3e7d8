"""What a GPU's judge finds out about a candidate that passed the rounds: its time, where that goes, and who causes it.

Only the series of windows needs the device alone. Whatever else there is lies before it (inputs, instances, a silent
twin's first call) or behind it (comparison, the profile, the cause), where others may be at work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.judging import confirmation, figures, preparation, profile, silence, timing
from kerneldojo.judging.cause import check_cause, no_own_kernel
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.processes import Session
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.turns import Turn
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import SLOW_HOST, Findings
from kerneldojo.judging.workshop import Workshop

QUICKER = 1.25
"""A second series was worth it if its cores were so many times as quick as those of the first."""


@dataclass
class Measurement:
    """Of one candidate.

    Args:
        bench, guest: where, and whose window it is.
        findings: what is filled in.
        workshop: closed once the twin is there; until then it stands still while time is taken.
        match: reference and contestant, the rounds passed.
        twin: the silent one, as far as it is.
        is_twin_late: whether the twin is asked only when all else is known, if it is: where silencing own kernels in
            the process that was timed proves nothing, or may not be done.
        can_silence: whether they may be; if the twin is to be asked in any case, they are not.
        ask_turn: asks for its turn to have memory for timing; None where it has that from the beginning.
    """

    bench: Bench
    guest: Guest
    findings: Findings
    workshop: Workshop
    match: Match
    twin: Twin
    is_twin_late: bool
    can_silence: bool = True
    ask_turn: Callable[[], Turn] | None = None
    _rows: profile.Rows | None = None
    """The profile, once there is one; empty if the candidate gave none that can be used."""
    _was_beside: bool = False
    """Whether it was tried while others might use the device."""
    _broken: list[Ruling] = field(default_factory=list[Ruling])
    """What ended the profile."""

    def take(self) -> None:
        """Time, profile, cause; and the reference's time once more, if it is in doubt.

        Raises:
            Ruling: the candidate does not pass.
        """
        has_own = self.match.seen.ran_own_kernel
        self._make_room()
        with self.findings.stage("prepare"):
            series, is_well = self._prepare(has_own=has_own)
        self._time(series)
        self._make_room()
        with self.findings.stage("cause"):
            self._find_cause(series, has_own=has_own, is_well=is_well)
        self._make_room()
        confirmation.confirm(self.bench, self.guest, self.findings, self.match, series, self._of_candidate)

    def _prepare(self, *, has_own: bool) -> tuple[Prepared, bool]:
        """What is timed, and whether there is a twin to compare with."""
        room, reference = self.bench.room(self.guest), self.match.reference
        needs_twin = has_own and not self.is_twin_late
        if self.ask_turn is not None:
            if needs_twin:
                self.twin.arrive()  # Whoever has such a turn keeps others from theirs.
            self.bench.prepare_timing(self.ask_turn(), self.guest, reference)
            self.bench.extend_arena(self.match.contestant, reference)
        drawn = preparation.draw(self.match, room.inputs_bytes, is_large=room.in_place)
        silent = self.twin.contestant if needs_twin and self.twin.arrive() and self._extend_twin() else None
        if needs_twin and silent is None:
            self.workshop.check()
        is_called = silent is not None and preparation.post_twin(self.match, silent, drawn)
        inputs = reference.hosted.arena.inputs
        series = preparation.prepare(self.match, drawn, inputs, self.findings)  # While the twin compiles.
        del drawn
        if silent is not None and is_called:
            preparation.add_twin(series, silent)
        if self.is_twin_late:
            self.workshop.stand_still()
        else:
            self.findings.num_built = self.workshop.close()
        return series, silent is not None

    def _extend_twin(self) -> bool:
        """Give the twin the memory that it is timed in; False if the candidate broke in it."""
        twin = self.twin.contestant
        if self.ask_turn is None or twin is None:
            return True
        try:
            self.bench.extend_arena(twin, self.match.reference)
        except Ruling:
            return False
        return True

    def _time(self, series: Prepared) -> None:
        """The series, once more where it should not stand alone (and where that then says little), and the profile."""
        bench, findings = self.bench, self.findings

        def measure() -> None:
            with findings.stage("timing"):
                timing.run(bench, series, self.match, findings, self.guest.renew_cores, self.guest.slowness)
            if not self._is_beside(series):
                self._take_profile(series)

        bench.measure_alone(self.guest, findings, measure, self._of_candidate)
        first = self.guest.slowness
        doubt = figures.doubt(bench, series, findings, first)
        slow = "" if doubt else self._slow_launches(series)
        if doubt or slow:
            findings.notes.append(f"timed twice: in the first series {doubt or slow}")
            bench.measure_alone(self.guest, findings, measure, self._of_candidate)
            if scatter := figures.scatter(bench, series, findings):
                findings.notes.append(f"timed a third time: in the second series {scatter}")
                bench.measure_alone(self.guest, findings, measure, self._of_candidate)
        slowness = self.guest.slowness  # Of these windows: the profile may have one of its own.
        if slow:
            bench.second_series.remember(was_worth_it=slowness <= max(SLOW_HOST, first / QUICKER))
        self._make_room()
        # There may be no room for what was drawn beside what is compared with now; placebos need one set of it.
        series.inputs.forget_bases(num_left=0 if bench.room(self.guest).in_place else 1)
        with findings.stage("timing"):
            figures.finish(bench, series, self.match, findings, slowness)
        if self._is_beside(series):
            self._take_profile_beside(series)
            if self._rows and findings.full_fit and not profile.fits_the_clock(self._rows, findings.full_fit):
                self._rows = None  # It was taken before the figure that counts.
        if self._rows is None and not self._broken:
            bench.measure_alone(self.guest, findings, lambda: self._take_profile(series), self._of_candidate)
        if self._broken:
            raise self._broken[0]
        profile.fill(self._rows or [], findings)
        findings.tell_slow_host(slowness)

    def _is_beside(self, series: Prepared) -> bool:
        """Whether its profile is taken while others may use the device, if that does not show.

        It always shows where calls take so long that few windows have been enough.
        """
        is_hopeless = series.result is not None and series.result.is_hopeless
        may_be = self.bench.pace.profile_beside and self.bench.gate.capacity > 1 and not self.guest.is_alone
        return may_be and not is_hopeless

    def _slow_launches(self, series: Prepared) -> str:
        """Why the series should not stand alone on slow cores, or nothing: where launches bind it, and one more was
        worth it lately. Its profile tells, so it is taken before that is settled."""
        at = (self.bench, series, self.findings, self.guest.slowness)
        if not figures.slow_launches(*at) or not self.bench.second_series.draw():
            return ""
        if self._is_beside(series):
            self._take_profile_beside(series)
        if self._broken:
            return ""  # It is not going to pass.
        return figures.slow_launches(*at, profile.device_us(self._rows) if self._rows else None)

    def _take_profile_beside(self, series: Prepared) -> None:
        """While others may use the device; once."""
        if self._was_beside:
            return
        self._was_beside = True
        self._profile(lambda: profile.take_beside(self.match, self.findings, _fit(series)))

    def _take_profile(self, series: Prepared) -> None:
        """In a window."""
        self._profile(lambda: profile.take(self.match, self.findings, _fit(series)))

    def _profile(self, take: Callable[[], profile.Rows | None]) -> None:
        """What the candidate does wrong in it is kept, for what was seen while it was timed comes first."""
        self._broken.clear()
        with self.findings.stage("profile"):
            try:
                self._rows = take()
            except Ruling as ruling:
                self._broken.append(ruling)

    def _find_cause(self, series: Prepared, *, has_own: bool, is_well: bool) -> None:
        findings = self.findings
        if not has_own or (findings.kernels and not any(kernel.own for kernel in findings.kernels)):
            raise no_own_kernel("the calls that were looked at", training=self.match.conduct.training)
        if self._is_mute_in_place(series):
            silent = self.match.contestant
        else:
            if not self.bench.room(self.guest).has_twin_beside:
                self.match.contestant.hosted.session.close()  # It has the memory that the twin needs.
            is_there = self._fetch_twin() if self.is_twin_late else is_well
            silent = self.twin.contestant
            if not is_there or silent is None or silent.hosted.session.ended is not None:
                return
            timeout = findings.protocol.cause_timeout
            findings.notes += check_cause(self.match.beside(silent), timeout, is_silent=True)
        if self.is_twin_late and self._rows and findings.coverage is not None and self._can_be_timed(silent, series):
            silence.bound_coverage(self.bench, self.guest, series, silent, self._rows, findings)

    def _fetch_twin(self) -> bool:
        """Have the twin come, and what it orders given to it; False if the candidate broke in it."""
        self.workshop.go_on()
        is_there = self.twin.arrive()
        self.findings.num_built = self.workshop.close()
        return is_there

    def _is_mute_in_place(self, series: Prepared) -> bool:
        if not self.is_twin_late or not self.can_silence:
            return False
        return silence.is_mute_in_place(self.bench, self.guest, self.match, series, self.findings)

    def _can_be_timed(self, silent: Contestant, series: Prepared) -> bool:
        """Whether it is ready for windows: a twin that was fetched late is not, yet."""
        if silent is self.match.contestant:
            return True
        try:
            if not self._extend_twin():
                return False
            silent.get_ready(series.arguments.of(silent.hosted), series.strides)
        except Ruling:  # It broke without its kernels: then its time says nothing.
            return False
        return True

    @property
    def _of_candidate(self) -> list[Session]:
        parties = (self.match.contestant, self.twin.contestant)
        return [party.hosted.session for party in parties if party is not None]

    def _make_room(self) -> None:
        """With all of the device for one large problem: what torch keeps for later, the driver has no room for then."""
        if self.bench.room(self.guest).in_place:
            self.bench.tidy(most_bytes=0)


def _fit(series: Prepared) -> Fit | None:
    """What the clock said of the contestant's calls, if it said anything."""
    return series.result.fitted.get("contestant") if series.result is not None else None
