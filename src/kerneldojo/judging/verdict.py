"""Writing the verdict: what was seen becomes one `Evaluation`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kerneldojo.judging.protocol import VERSION, Protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.submission import Submission
from kerneldojo.schema import (
    Candidate,
    Evaluation,
    KernelTime,
    Problem,
    ProtocolRecord,
    Roofline,
    SourceLanguage,
    Status,
    Timing,
    Unverified,
)
from kerneldojo.schema.figures import times

MAX_KERNELS = 64
"""Kernels that a verdict lists: a call may launch thousands, and a verdict is sent on and kept."""
MAX_NAME = 200
"""Characters of their names."""
SLOW_HOST = 1.25
"""From here on a host is told to have been slow: a kernel bound by launches took 1.8 times as long on slow cores."""


@dataclass
class Findings:
    """Everything that may go into a verdict, filled in as judging proceeds."""

    problem: Problem
    candidate: Candidate
    protocol: Protocol
    device: str
    language: SourceLanguage | None = None
    outputs_matched: bool | None = None
    """Whether the rounds were passed; None while they were not finished."""
    max_error: float | None = None
    precision_class: str | None = None
    coverage: float | None = None
    timing: Timing = field(default_factory=Timing)
    reference_timing: Timing = field(default_factory=Timing)
    kernels: tuple[KernelTime, ...] = ()
    roofline: Roofline | None = None
    naive_speedup: float | None = None
    """What a clock around the calls alone would have credited."""
    oracle: str | None = None
    mode: str | None = None
    compulsory_bytes: int = 0
    """Traffic that no kernel can avoid, as the audit found it."""
    timed_sets: list[Any] = field(default_factory=list)
    """Argument trees of timed calls, which the profile uses again."""
    full_fit: Any = None
    """The judge's clock on the candidate (`devices.cuda.fits.Fit`)."""
    slowness: float = 1.0
    """Of the cores in those windows: how many times as long as at their quickest they took."""
    silenced_us: tuple[float, float] | None = None
    """What a call takes with its own kernels silent, by the same clock, and half the 95 % interval of that."""
    num_built: tuple[int, int] | None = None
    """Extensions that a workshop has built, and libraries it has given to contestant and twin, if there was one."""
    is_tried: bool = False
    """Whether the source was imported without the device already."""
    isolation: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    on_stage: Callable[[str], None] = field(default=lambda _: None)
    """Told each stage as it begins."""

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Account the time of a stage of judging."""
        self.on_stage(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.stage_seconds[name] = round(self.stage_seconds.get(name, 0.0) + spent, 4)

    @property
    def submission(self) -> Submission:
        """What contestants are given."""
        return Submission(self.candidate, self.problem)

    def note_weights(self, *, keeps_own: bool) -> None:
        """Say that the candidate's weights are its own, if they are."""
        if keeps_own:
            self.notes.append("its weights are those that its constructor made, for it is wrong with the reference's")

    def note_borrowed(self, names: str) -> None:
        """Say which names the candidate's source has of the reference's, if it has any."""
        if names:
            self.notes.append(f"uses what only the reference's source defines, as KernelBench lets it: {names}")

    @property
    def speedup(self) -> float | None:
        """Reference time over kernel time, where both were taken."""
        mine, theirs = self.timing.median_ms, self.reference_timing.median_ms
        return theirs / mine if mine and theirs else None

    def tell_slow_host(self, slowness: float) -> None:
        """Say of a figure that launches bind, as its profile told, that the host was slow when it was taken.

        Args:
            slowness: of the cores in its window; see `seats.Reserved`.
        """
        if slowness > SLOW_HOST and self.timing.host_bound:
            self.notes.append(
                f"bound by launches, on a slow host: its cores took {slowness:.1f} times as long as at their quickest"
            )

    def _largest_error(self, ruling: Ruling | None) -> float | None:
        """Of the rounds that were right and the one that was not; None where no error has a size."""
        decided = ruling.max_error if ruling else None
        if decided is None:
            return self.max_error if ruling is None or ruling.status is not Status.INCORRECT else None
        return max(decided, self.max_error or 0.0) if math.isfinite(decided) else None

    def evaluation(self, ruling: Ruling | None) -> Evaluation:
        """The verdict: passed, unless a ruling says otherwise."""
        status = Status.PASSED if ruling is None else ruling.status
        passed = status is Status.PASSED
        return Evaluation(
            status=status,
            correct=passed,
            speedup=self.speedup if passed else None,
            coverage=self.coverage if passed else None,
            kernel_ms=self.timing.median_ms if passed else None,
            reference_ms=self.reference_timing.median_ms,
            exploits=ruling.exploits if ruling else (),
            message=ruling.message if ruling else self._praise(),
            device=self.device,
            language=self.language,
            precision_class=self.precision_class,  # type: ignore[arg-type]
            max_error=self._largest_error(ruling),
            timing=self.timing,
            reference_timing=self.reference_timing,
            kernels=self.kernels,
            unverified=self._unverified() if status is Status.EXPLOIT else None,
            roofline=self.roofline if passed else None,
            protocol=self._record(),
            notes=tuple(dict.fromkeys(self.notes)),
            stage_seconds=self.stage_seconds,
            problem_hash=self.problem.hash,
            candidate_hash=self.candidate.hash,
        )

    def _praise(self) -> str:
        if self.speedup is None:
            return "correct in every round; this device has no clock"
        how = "modelled" if self.timing.source == "modeled" else "measured"
        return f"correct in every round; {times(self.speedup)}x the speed of the reference ({how})"

    def _unverified(self) -> Unverified:
        return Unverified(outputs_matched=self.outputs_matched, speedup=self.naive_speedup or self.speedup)

    def _record(self) -> ProtocolRecord:
        settings: dict[str, Any] = self.protocol.record()
        return ProtocolRecord(
            version=VERSION,
            name=self.protocol.name,
            num_rounds=self.protocol.num_rounds,
            num_trials=self.protocol.num_trials,
            baseline=self.protocol.baseline,
            precision=self.protocol.precision,
            oracle=self.oracle,  # type: ignore[arg-type]
            mode=self.mode,  # type: ignore[arg-type]
            isolation=self.isolation,
            settings=settings,
        )
