"""The judge itself: chooses the device's way of judging, and turns whatever happens into an evaluation."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kerneldojo import devices
from kerneldojo.contestant.failure import describe
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.host import HostBench, judge_on_host
from kerneldojo.judging.protocol import Protocol, protocol
from kerneldojo.judging.ruling import Ruling, quoted
from kerneldojo.judging.servers import Begun
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language, language_of
from kerneldojo.problems import ProblemError, check_source
from kerneldojo.problems.audit import AuditReport
from kerneldojo.schema import MAX_SOURCE_BYTES, Candidate, Evaluation, Problem, Status
from kerneldojo.schema.pace import Pace
from kerneldojo.schema.parsing import parse_python

if TYPE_CHECKING:
    from kerneldojo.judging.gpu import CudaBench
    from kerneldojo.judging.guest import Guest

log = logging.getLogger(__name__)

Baseline = Literal["eager", "compile"]
Precision = Literal["ieee", "tf32"]


class Judge:
    """Keeps fork servers warm between verdicts; a context manager.

    Thread-safe: several threads may call `judge` at once, though on one CUDA device they take turns unless told
    otherwise.

    Args:
        num_verdicts: verdicts under way at once on one CUDA device; memory is divided among them, and what takes time
            has the device to itself (`judging.gate`).
        reuse_reference_times: on a CUDA device, take a problem's reference time from earlier verdicts and measure it
            again now and then (`judging.reference_times`).
        cores: those that no other judge uses; on a CUDA device, some are reserved for what is timed
            (`judging.cores`). By default the device's even share of those that this process may use.
        pace: how windows follow each other on a CUDA device.
        begun: fork servers that have been started already; closed with the judge.
    """

    def __init__(
        self,
        *,
        num_verdicts: int = 1,
        reuse_reference_times: bool = False,
        cores: Collection[int] = (),
        pace: Pace | None = None,
        begun: Begun | None = None,
    ) -> None:
        self._num_verdicts = num_verdicts
        self._pace = pace or Pace()
        self._cores = tuple(cores)
        self._reuse_reference_times = reuse_reference_times
        begun = begun or Begun()
        self._host = HostBench(begun.hosts)
        self._begun_gpu = begun.gpu
        """For whichever GPU is asked for first."""
        self._auditor = Auditor()
        self._lock = threading.Lock()
        self._gpus: dict[int, CudaBench] = {}

    def judge(
        self,
        problem: Problem,
        candidate: Candidate,
        *,
        device: str = "auto",
        protocol_name: str = "standard",
        baseline: Baseline = "eager",
        precision: Precision = "tf32",
        timeout: float | None = None,
        allow_degenerate: bool = False,
        on_stage: Callable[[str], None] = lambda _: None,
    ) -> Evaluation:
        """See `kerneldojo.judge`; `on_stage` is told each stage of judging as it begins."""
        chosen = devices.parse(device)
        settings = protocol(
            protocol_name,
            baseline=baseline,
            precision=precision,
            timeout=timeout,
            allow_degenerate=allow_degenerate,
        )
        language = language_of(candidate)
        findings = Findings(problem, candidate, settings, str(chosen), language=language.name, on_stage=on_stage)
        started = time.perf_counter()
        ruling: Ruling | None = None
        try:
            read(problem, candidate)
            if chosen.kind == "cuda":
                self._on_cuda(chosen.index, language, findings)
            else:
                judge_on_host(self._host, self._auditor, chosen, language, findings)
        except Ruling as early:
            # Without the frames that it has come through: they know what was compared, and this frame knows them.
            ruling = early.with_traceback(None)
            ruling.__context__ = None
        except (Infrastructure, HostedEnd) as fault:
            log.warning("infrastructure fault", exc_info=True)
            ruling = Ruling(Status.INFRASTRUCTURE_ERROR, f"our fault: {str(fault)[:300]}")
        except Exception as bug:
            log.exception("a bug in the judge")
            ruling = Ruling(Status.INFRASTRUCTURE_ERROR, f"our fault: {type(bug).__name__} in the judge")
        findings.stage_seconds["total"] = round(time.perf_counter() - started, 4)
        return findings.evaluation(ruling)

    def start(self, device: str) -> None:
        """Begin to warm up for a device without waiting.

        Raises:
            ValueError: an unknown device.
        """
        chosen = devices.parse(device)
        if chosen.kind == "cuda":
            self._gpu(chosen.index).server.start()
        else:
            self._host.start()

    def describe(self, device: str) -> str:
        """A CUDA device's name for people; empty for the others, whose name says all."""
        chosen = devices.parse(device)
        return self._gpu(chosen.index).name if chosen.kind == "cuda" else ""

    def is_broken(self, device: str) -> bool:
        """Whether our own context on a CUDA device is past use, so that nothing is judged in this process any more."""
        chosen = devices.parse(device)
        with self._lock:
            gpu = self._gpus.get(chosen.index) if chosen.kind == "cuda" else None
        return gpu is not None and gpu.is_broken()

    def num_deaths(self, device: str) -> int:
        """How many of its fork servers have ended by themselves so far, of those that a device needs."""
        chosen = devices.parse(device)
        if chosen.kind != "cuda":
            return self._host.interpreting.num_deaths + self._host.compiling.num_deaths
        with self._lock:
            gpu = self._gpus.get(chosen.index)
        return gpu.server.num_deaths if gpu is not None else 0

    def _gpu(self, index: int) -> CudaBench:
        from kerneldojo.judging.gpu import CudaBench

        with self._lock:
            if index not in self._gpus:
                begun, self._begun_gpu = self._begun_gpu, None
                self._gpus[index] = CudaBench(
                    index,
                    num_verdicts=self._num_verdicts,
                    reuse_reference_times=self._reuse_reference_times,
                    cores=self._cores,
                    pace=self._pace,
                    begun=begun,
                )
        return self._gpus[index]

    def _on_cuda(self, index: int, language: Language, findings: Findings) -> None:
        from kerneldojo.judging.cuda import judge_on_cuda

        judge_on_cuda(self._gpu(index), self._auditor, language, findings)

    def audit(
        self, problem: Problem, device: str = "cpu", *, fresh: bool = False, memory_bytes: int | None = None
    ) -> AuditReport:
        """Whether a problem can be judged, and how; remembered by content hash unless `fresh`.

        `memory_bytes` is what the reference runner may have of host memory, the protocol's own by default.

        Raises:
            ProblemError: the source is not in KernelBench's format, or the reference fails.
            ValueError: an unknown device.
        """
        check_source(problem.source)
        chosen = devices.parse(device)
        try:
            if chosen.kind != "cuda":
                default = Protocol()
                conditions = replace(default, host_memory_bytes=memory_bytes or default.host_memory_bytes)
                reference = self._host.reference(problem, conditions)
                with contextlib.closing(reference.hosted.session):
                    return self._auditor.audit(problem, reference, fresh=fresh)
            gpu = self._gpu(chosen.index)
            room = 0
            while True:
                with gpu.gate.admit(room) as guest:
                    report = self._audit_on_gpu(gpu, guest, problem, fresh=fresh)
                following = gpu.next_room(room, report.reason) if report.lacks == "memory" else None
                if following is None:
                    return report
                room = max(following, gpu.gate.first_alone)  # Larger shares have nothing for an audit.
        except Ruling as ruling:
            raise ProblemError(ruling.message) from None

    def _audit_on_gpu(self, gpu: CudaBench, guest: Guest, problem: Problem, *, fresh: bool) -> AuditReport:
        from kerneldojo.judging.cuda import audit_on_cuda

        gpu.enter()
        return audit_on_cuda(gpu, self._auditor, problem, Protocol(), guest, fresh=fresh)

    def close(self) -> None:
        """End all fork servers."""
        self._host.close()
        if self._begun_gpu is not None:
            self._begun_gpu.close()
        for gpu in self._gpus.values():
            gpu.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(problem: Problem, candidate: Candidate) -> None:
    """Refuse what need not be run to be refused.

    Raises:
        Ruling: `invalid_problem` or `compile_error`.
    """
    try:
        check_source(problem.source)
    except ProblemError as error:
        raise Ruling(Status.INVALID_PROBLEM, str(error)) from None
    size = len(candidate.source)
    if size > MAX_SOURCE_BYTES:
        raise Ruling(Status.COMPILE_ERROR, f"the source has {size} characters; {MAX_SOURCE_BYTES} are allowed")
    if "\0" in candidate.source:
        raise Ruling(Status.COMPILE_ERROR, "the source contains null bytes: it is not Python")
    if not candidate.source.strip():
        raise Ruling(Status.COMPILE_ERROR, "the source is empty")
    if candidate.entry_point not in candidate.source:
        missing = f"the source does not define {candidate.entry_point}"
        raise Ruling(Status.COMPILE_ERROR, _syntax_error(candidate.source) or missing)


def _syntax_error(source: str) -> str:
    """Why a source is not Python, with its line; empty if it is, or nobody can say."""
    try:
        parse_python(source)
    except SyntaxError as error:
        told = describe(error, error.filename or "", "compile_error")
        return f"import: {told['text']}{quoted(source, told['line'])}"
    except (ValueError, RecursionError, MemoryError):
        return ""
    return ""
