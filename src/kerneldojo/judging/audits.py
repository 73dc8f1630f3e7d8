"""Auditing problems through the sandboxed reference runner, once per content hash.

Reports are remembered on disk (`$XDG_CACHE_HOME/kerneldojo/audits`), named by everything that they depend on. A file
that cannot be read or is not a report is written anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import ValidationError

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.files import cache_folder, write_whole
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.rounds import Conduct
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.problems.audit import VERSION, AuditReport, audit
from kerneldojo.problems.distributions import has_negative_weights
from kerneldojo.problems.pieces import num_bytes
from kerneldojo.problems.reference import Outcome, ReferenceFailed, Variant
from kerneldojo.schema import Problem, Status, content_hash


@dataclass
class RunnerReference:
    """The judge's reference runner, as the audit wants it (`problems.reference.Reference`)."""

    reference: Reference

    def run(
        self,
        *,
        input_seed: int,
        init_seed: int,
        call_seed: int = 0,
        distribution: str = "own",
        variants: Sequence[Variant] = ("native",),
        training: bool = True,
        anew: bool = True,
    ) -> Outcome:
        """See `problems.reference.Reference.run`."""
        try:
            state = self._construct(init_seed, training, distribution) if anew else {}
            inputs, expected = self.reference.answer(
                "audit", input_seed, call_seed, tuple(variants), distribution, footprint=True
            )
        except Ruling as ruling:
            raise ReferenceFailed(ruling.message, ruling.lacks) from None
        if tree.holds_number(expected.values):
            raise ReferenceFailed("it returns a number beside its tensors, which nothing would compare: make it one")
        return Outcome(
            inputs=tree.tensors(inputs),
            outputs={variant: expected.outputs[variant] for variant in variants},
            buffers=expected.buffers,
            mutates_inputs=expected.mutates_inputs,
            state_bytes=num_bytes(state.values()),
            peak_bytes=expected.peak_bytes,
            used_bytes=expected.used_bytes,
            reduction_length=expected.reduction_length,
        )

    def needed_bytes(self, *, input_seed: int, init_seed: int, training: bool) -> Sequence[int]:
        """See `problems.reference.Reference.needed_bytes`."""
        try:
            self._construct(init_seed, training)
            inputs = self.reference.draw("get_inputs", input_seed)
            return self.reference.needed_bytes("audit", inputs, input_seed)
        except Ruling as ruling:
            raise ReferenceFailed(ruling.message, ruling.lacks) from None

    def _construct(self, init_seed: int, training: bool, distribution: str = "own") -> dict[str, torch.Tensor]:
        negative = has_negative_weights(distribution)
        return self.reference.begin("audit", init_seed, init_seed, training=training, negative=negative)[1]


JUDGES_SIDE = "too large for the judge's own side"
LACK_SECONDS = 600.0
"""For so long a problem is believed to lack memory or time: it may have been somebody else who had it."""


class Limits(NamedTuple):
    """What there is for a problem; see `problems.audit`."""

    memory: int | None = None
    """Bytes that one of its processes has; None if they are not counted."""
    results: int | None = None
    """Of these, for all but inputs."""
    may_be_cramped: bool = True
    """Whether a poorer oracle may do for want of memory: not if there is more at another time."""
    oracle: int | None = None
    """Of `memory`, what the reference has that runs in float64, where that is less."""


UNLIMITED = Limits()


class Auditor:
    """Audits, and remembers.

    Args:
        folder: where reports are kept; `cache_folder("audits")` by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder("audits")
        self._memory: dict[str, AuditReport] = {}
        self._lacking: dict[str, float] = {}
        """Until when what lacks something is remembered."""

    def audit(
        self,
        problem: Problem,
        reference: Reference,
        precision: str = "tf32",
        limits: Limits = UNLIMITED,
        *,
        fresh: bool = False,
    ) -> AuditReport:
        """Return the report on a problem, from memory unless `fresh`."""
        at = (problem, kind_of(reference.hosted.arena.device), precision, limits)
        report = None if fresh else self.known(*at)
        if report is not None:
            return report
        try:
            report = audit(
                problem,
                RunnerReference(reference),
                precision="ieee" if precision == "ieee" else "tf32",
                memory_limit=limits.memory,
                result_limit=limits.results,
                oracle_limit=limits.oracle,
                may_be_cramped=limits.may_be_cramped,
            )
        except RuntimeError as error:  # What the problem's own code lacks is no exception here.
            if not is_out_of_memory(error):
                raise
            reason = f"{JUDGES_SIDE}: {' '.join(str(error).split())[:160]}"
            report = AuditReport(problem_hash=problem.hash, status="invalid", reason=reason, lacks="memory")
        key = _key(*at)
        if report.lacks:  # Another time, or another machine, may have more of it.
            self._lacking[key] = time.monotonic() + LACK_SECONDS
        else:
            self._lacking.pop(key, None)
            self._write(key, report)
        self._memory[key] = report
        return report

    def known(self, problem: Problem, kind: str, precision: str, limits: Limits) -> AuditReport | None:
        """The report on a problem, if there is one: for whoever has no runner of it yet.

        Args:
            problem, precision, limits: as for `audit`.
            kind: of the device, as from `kind_of`.
        """
        key = _key(problem, kind, precision, limits)
        if self._lacking.get(key, math.inf) < time.monotonic():
            self._memory.pop(key, None)
            self._lacking.pop(key, None)
        report = self._memory.get(key) or self._read(key)
        if report is not None:
            self._memory[key] = report
        return report

    def forget_lacks(self, problem: Problem) -> None:
        """Audit a problem anew that lacked memory or time: it was somebody else who had it."""
        for key, report in list(self._memory.items()):
            if report.lacks and report.problem_hash == problem.hash:
                self._memory.pop(key, None)
                self._lacking.pop(key, None)

    def conduct(self, findings: Findings, reference: Reference, limits: Limits = UNLIMITED) -> Conduct:
        """How a problem is to be judged; raises `Ruling` if it is not to be, or not with so little memory.

        Args:
            findings: with the problem and the protocol; gets what was settled.
            reference: a runner of the problem.
            limits: what there is for it.
        """
        precision = findings.protocol.precision
        report = self.audit(findings.problem, reference, precision, limits)
        refuse(report, findings.protocol)
        if report.status == "degenerate":
            findings.notes.append(f"degenerate problem, judged on request: it {report.reason}")
        findings.oracle = report.oracle
        findings.mode = report.mode
        findings.compulsory_bytes = report.compulsory_bytes
        findings.notes.extend(report.notes)
        variants = ["native"]
        if report.oracle == "float64":
            variants.append("float64")
        if report.is_sensitive:
            variants.append("nudged")
        if precision == "tf32" and report.tells_tf32:
            variants.append("tf32")
        return Conduct(
            training=report.mode == "train",
            distributions=report.deciding,
            probing=report.probing,
            variants=tuple(variants),
            reduction_length=report.reduction_length,
        )

    def _read(self, key: str) -> AuditReport | None:
        try:
            return AuditReport.model_validate_json((self._folder / f"{key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def _write(self, key: str, report: AuditReport) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / f"{key}.json", report.model_dump_json().encode(), durable=False)
        except OSError:
            return  # Remembering is a convenience: a read-only home only makes the next process audit again.


def refuse(report: AuditReport, protocol: Protocol) -> None:
    """Raise `Ruling` if a problem is not to be judged, or not unless that is asked for."""
    if report.status == "invalid":
        raise Ruling(Status.INVALID_PROBLEM, f"the problem cannot be judged: {report.reason}", lacks=report.lacks)
    if report.status == "degenerate" and not protocol.allow_degenerate:
        reason = f"the problem is degenerate: it {report.reason} (--allow-degenerate judges)"
        raise Ruling(Status.INVALID_PROBLEM, reason)


def kind_of(device: torch.device) -> str:
    """What decides what an audit finds: the make of a GPU, not its number."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _key(problem: Problem, kind: str, precision: str, limits: Limits) -> str:
    oracle = "" if limits.oracle is None else f" of which {limits.oracle}"
    device = f"{kind} {limits.memory}{oracle}{'' if limits.may_be_cramped else ' roomy'}"
    return content_hash(VERSION, precision, torch.__version__, device, problem.hash)
