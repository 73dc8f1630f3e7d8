"""What is written when a task is accepted, and when it ends."""

from __future__ import annotations

import pytest

from kerneldojo.schema import Candidate, Evaluation, Job, Problem, ProtocolRecord, Roofline, Status, Timing
from kerneldojo.service import endings
from kerneldojo.service.acceptance import new_task
from kerneldojo.service.records import Submission
from kerneldojo.service.viewer import Viewer

JOB = Job(problem=Problem(name="p", source="x"), candidate=Candidate(source="y"))
RECORD = ProtocolRecord(
    version="1", name="standard", num_rounds=5, num_trials=100, baseline="compile", precision="tf32"
)


@pytest.mark.parametrize(("seconds", "deadline_at"), [(None, None), (60.0, 1060.0)])
def test_a_deadline_is_so_many_seconds_after_a_task_was_accepted(
    seconds: float | None, deadline_at: float | None
) -> None:
    task = new_task(Submission(job=JOB, deadline_seconds=seconds), Viewer(client="a", sees_all=False), 1000.0)
    assert (task.submitted_at, task.deadline_at) == (1000.0, deadline_at)


def test_a_verdict_is_kept_whole_and_what_lists_show_of_it_beside() -> None:
    verdict = Evaluation(
        status=Status.PASSED,
        correct=True,
        speedup=2.0,
        coverage=0.75,
        kernel_ms=0.5,
        reference_ms=1.0,
        device="cuda:0",
        timing=Timing(source="measured", median_ms=0.5),
        roofline=Roofline(limit_ms=0.4, fraction=0.8, bound="memory", compulsory_bytes=1000),
        protocol=RECORD,
    )
    ending = endings.ending_of("t", verdict)
    assert Evaluation.model_validate_json(ending.body) == verdict
    assert ending.columns == {
        "status": "passed",
        "speedup": 2.0,
        "coverage": 0.75,
        "kernel_ms": 0.5,
        "reference_ms": 1.0,
        "baseline": "compile",
        "roofline_fraction": 0.8,
        "timing_source": "measured",
        "judged_on": "cuda:0",
        "expired": 0,
    }
    wrong = endings.ending_of("t", Evaluation(status=Status.INCORRECT, message="wrong", protocol=RECORD)).columns
    assert (wrong["baseline"], wrong["roofline_fraction"], wrong["speedup"]) == (None, None, None)


def test_what_no_encoding_has_keeps_no_verdict_from_being_stored() -> None:
    """A message is made of what can be written; notes, and the keys and values of settings, may hold anything."""
    odd, plain = "half a \ud83d character", "half a ? character"
    record = RECORD.model_copy(update={"settings": {odd: [odd, 1]}})
    verdict = Evaluation(status=Status.INCORRECT, message=odd, notes=(odd, "well"), protocol=record, max_error=3.5)
    told = Evaluation.model_validate_json(endings.ending_of("t", verdict).body)
    assert (told.message, told.notes, told.max_error) == (verdict.message, (plain, "well"), 3.5)
    assert told.message.encode()
    assert told.protocol is not None and told.protocol.settings == {plain: [plain, 1]}
    well = Evaluation(status=Status.INCORRECT, message="wrong")
    assert endings.readable(well) is well


def test_what_ends_without_a_verdict_is_told_as_what_it_is() -> None:
    told = {
        endings.expired: (Status.INFRASTRUCTURE_ERROR, 1),
        endings.refused: (Status.UNSUPPORTED_ON_DEVICE, 0),
        endings.failed: (Status.INFRASTRUCTURE_ERROR, 0),
    }
    for end, (status, expired) in told.items():
        ending = endings.expired("t") if end is endings.expired else end("t", "the reason")  # type: ignore[call-arg]
        assert (ending.columns["status"], ending.columns["expired"]) == (str(status), expired)
    assert "our fault: the reason" in endings.failed("t", "the reason").body
