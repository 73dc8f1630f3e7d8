"""Auditing many problems: what is kept, what is tried again, and processes that hang or die on the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kerneldojo.judging.audit_file import Audited, AuditFile, Finding, Limits, Verdict
from kerneldojo.judging.audit_runs import AuditProcess, audit_all
from kerneldojo.schema import Problem

PROBLEM = Problem(name="p", source="x")


def audited(verdict: Verdict, **limits: float) -> Audited:
    found = Finding(verdict=verdict, reason=f"it is {verdict}")
    return Audited(problem=PROBLEM.hash, name="p", device="cpu", limits=Limits(**limits), finding=found)


def test_findings_survive_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audits.jsonl"
    file = AuditFile(path)
    file.add(audited("too slow", seconds=1))
    file.add(audited("degenerate"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 3])
    again = AuditFile(path)
    assert again.known == {PROBLEM.hash: audited("degenerate")}, "the last finding on a problem counts"
    again.add(audited("admitted"))
    assert path.read_bytes().startswith(whole)
    assert AuditFile(path).known == {PROBLEM.hash: audited("admitted")}, "what was torn is gone"
    path.write_text("something else\n")
    with pytest.raises(ValueError, match="no file of audits"):
        AuditFile(path)


@pytest.mark.parametrize(
    ("then", "now", "stands"),
    [
        (audited("admitted"), {}, True),
        (audited("invalid", seconds=1), {"seconds": 9}, True),
        (audited("too slow", seconds=5), {"seconds": 5}, True),
        (audited("too slow", seconds=5), {"seconds": 6}, False),
        (audited("too slow", seconds=5), {}, False),
        (audited("too large", memory_gb=4), {"seconds": 9, "memory_gb": 3}, True),
        (audited("too large", memory_gb=4), {}, False),
        (audited("failed"), {}, False),
    ],
)
def test_what_lacked_something_is_tried_again_with_more_of_it(
    then: Audited, now: dict[str, float], stands: bool
) -> None:
    assert then.stands(PROBLEM, "cpu", Limits(**now)) is stands
    assert not then.stands(PROBLEM, "cuda:0", Limits(**now))
    assert not then.stands(PROBLEM.model_copy(update={"source": "y"}), "cpu", Limits(**now))


@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        ("import time; time.sleep(60)", "too slow", "not done in 0.5 s"),
        ("import os; os.kill(os.getpid(), 9)", "too large", "killed"),
        ("import sys; sys.exit(3)", "failed", "status 3"),
    ],
)
def test_a_process_that_hangs_or_dies_costs_its_own_finding(code: str, verdict: str, reason: str) -> None:
    process = AuditProcess("cpu", Limits(seconds=0.5 if verdict == "too slow" else None))
    process._command = [sys.executable, "-c", code]
    first = process.ask(PROBLEM)
    assert (first.verdict, reason in first.reason) == (verdict, True)
    answer = Finding(verdict="admitted", seconds=1).model_dump_json()
    process._seconds = None
    process._command = [sys.executable, "-c", f"input(); print({answer!r}, flush=True); input()"]
    assert process.ask(PROBLEM).verdict == "admitted", "another one takes its place"
    process.kill()


ANSWERS = """
import json, pathlib, sys, time
for line in sys.stdin:
    name = json.loads(line)["name"]
    if name == "endless":
        time.sleep(60)
    if name.startswith("meets"):  # Done only if the other is under way at the same time.
        here, other = (pathlib.Path(FOLDER, one) for one in (name, "meets a" if name == "meets b" else "meets b"))
        here.touch()
        while not other.exists():
            time.sleep(0.01)
    print(json.dumps({"verdict": "admitted", "reason": name}), flush=True)
"""


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit processes that say who was there."""
    begin = AuditProcess.__init__

    def begin_with_answers(self: AuditProcess, device: str, limits: Limits) -> None:
        begin(self, device, limits)
        self._command = [sys.executable, "-c", ANSWERS.replace("FOLDER", repr(str(tmp_path)))]

    monkeypatch.setattr(AuditProcess, "__init__", begin_with_answers)


def named(*names: str) -> list[Problem]:
    return [Problem(name=name, source=name) for name in names]


@pytest.mark.usefixtures("answering")
def test_problems_are_audited_side_by_side_and_told_in_their_order(tmp_path: Path) -> None:
    problems = named("meets a", "meets b", "c", "d")
    file = AuditFile(tmp_path / "audits.jsonl")
    found = audit_all(problems, "cpu", Limits(seconds=30), file, lambda _: None, num_processes=2)
    assert [(problem, finding.reason) for problem, finding in found] == [(one, one.name) for one in problems]
    assert AuditFile(tmp_path / "audits.jsonl").known.keys() == {one.hash for one in problems}


@pytest.mark.usefixtures("answering")
def test_who_is_interrupted_keeps_what_is_done_and_no_more(tmp_path: Path) -> None:
    problems = named("a", "b", "endless", "c", "never")
    file = AuditFile(tmp_path / "audits.jsonl")

    def interrupt(problem: Problem) -> None:
        if problem.name == "never":
            raise KeyboardInterrupt

    found = audit_all(problems, "cpu", Limits(), file, interrupt, num_processes=2)
    done = named("a", "b", "c")
    assert [problem for problem, _ in found] == done
    assert AuditFile(tmp_path / "audits.jsonl").known.keys() == {one.hash for one in done}
