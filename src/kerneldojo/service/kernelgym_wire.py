"""KernelGYM's requests and answers, and how our verdicts read in them.

On that wire a task is `completed` when there is a verdict on the candidate, whatever it is; times are milliseconds;
-1 is a time that was not taken and a speedup of 0 is none. Its coverage is a ratio of two figures in `metadata`: they
are given so that their ratio is our coverage, and left out where coverage is unknown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from kerneldojo.schema import Candidate, Evaluation, Job, Problem, Status
from kerneldojo.service.records import MAX_BATCH, Priority, Submission, TaskId, TaskState, TaskSummary

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]

COMPILED = {Status.PASSED, Status.INCORRECT, Status.EXPLOIT, Status.RUNTIME_ERROR, Status.OUT_OF_MEMORY}
"""Verdicts on candidates that could at least be built."""

ERROR_CODES = {
    Status.INCORRECT: "CORRECTNESS_ERROR",
    Status.EXPLOIT: "VALIDATION_ERROR",
    Status.COMPILE_ERROR: "COMPILATION_ERROR",
    Status.RUNTIME_ERROR: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT_ERROR",
    Status.OUT_OF_MEMORY: "RESOURCE_ERROR",
    Status.UNSUPPORTED_ON_DEVICE: "RESOURCE_ERROR",
    Status.INVALID_PROBLEM: "VALIDATION_ERROR",
    Status.INFRASTRUCTURE_ERROR: "SYSTEM_ERROR",
}


class GymStatus(StrEnum):
    """What became of a task, in KernelGYM's words."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Wire(BaseModel):
    """Base of its requests: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


class EvaluationRequest(Wire):
    """`POST /evaluate`."""

    task_id: TaskId
    reference_code: str = Field(min_length=1)
    kernel_code: str
    entry_point: Identifier = "Model"
    """Class of the reference; the candidate's is the same with `New` behind it."""
    backend: Literal["triton", "cuda"] = "triton"
    num_correct_trials: int = Field(default=5, ge=1, le=1000)
    """Fewer than 5 rounds are judged as `quick`, 10 and more as `strict`."""
    num_perf_trials: int = Field(default=100, ge=1, le=100_000)
    """Taken for compatibility; how many trials are needed is the judge's to find."""
    timeout: float = Field(default=300, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds that the candidate has."""
    priority: Priority = "normal"
    reference_backend: str | None = None
    """`torch_compile` measures the speedup against the compiled reference."""
    device_preference: str | None = Field(default=None, max_length=100)
    force_refresh: bool = False
    """Judge it although an equal job has a verdict. The same task id still means the same task."""
    verbose_errors: bool | None = None
    detect_decoy_kernel: Any = None
    """Exploits are always looked for, whatever it says. Only the reward client sends it, and that takes nothing from
    the answer to its post: it polls."""
    workflow: Literal["kernelbench"] | None = "kernelbench"

    @property
    def is_polled(self) -> bool:
        """Whether its client asks for the verdict later, whatever the answer to this is."""
        return "detect_decoy_kernel" in self.model_fields_set

    def submission(self) -> Submission:
        """The same as one of our orders."""
        source = self.reference_code
        if self.entry_point != "Model":
            source = f"{source}\n\n\nclass Model({self.entry_point}):\n    pass\n"
        trials = self.num_correct_trials
        job = Job(
            problem=Problem(name=self.entry_point, source=source),
            candidate=Candidate(source=self.kernel_code, language=self.backend, entry_point=f"{self.entry_point}New"),
            device=self.device_preference or "auto",
            protocol="quick" if trials < 5 else "standard" if trials < 10 else "strict",
            baseline="compile" if "compile" in (self.reference_backend or "") else "eager",
            timeout=self.timeout,
            fresh=self.force_refresh,
        )
        return Submission(id=self.task_id, job=job, priority=self.priority)


class BatchEvaluationRequest(Wire):
    """`POST /evaluate/batch`."""

    batch_id: str = Field(min_length=1, max_length=200)
    tasks: Annotated[tuple[EvaluationRequest, ...], Field(min_length=1, max_length=MAX_BATCH)]


class WorkflowRequest(Wire):
    """`POST /workflow/submit`: an evaluation in an envelope."""

    workflow: Literal["kernelbench"] = "kernelbench"
    task_id: TaskId | None = None
    """Overrides the payload's."""
    force_refresh: bool = False
    payload: dict[str, Any]

    @model_validator(mode="after")
    def _payload_is_an_evaluation(self) -> WorkflowRequest:
        self.evaluation()
        return self

    def evaluation(self) -> EvaluationRequest:
        """What is in the envelope."""
        overrides: dict[str, Any] = {} if self.task_id is None else {"task_id": self.task_id}
        if self.force_refresh:
            overrides["force_refresh"] = True
        return EvaluationRequest.model_validate({**self.payload, **overrides})


class EvaluationResponse(BaseModel):
    """What `/evaluate` and `/results/{id}` answer."""

    task_id: str
    status: GymStatus
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    reference_runtime: float | None = None
    kernel_runtime: float | None = None
    speedup: float | None = None
    metadata: dict[str, Any] | None = None
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None
    processing_time: float | None = None


class BatchEvaluationResponse(BaseModel):
    """What `/evaluate/batch` answers."""

    batch_id: str
    total_tasks: int
    completed_tasks: int
    failed_tasks: int
    results: list[EvaluationResponse]
    batch_status: GymStatus
    submitted_at: str | None = None
    completed_at: str | None = None


class TaskStatusResponse(BaseModel):
    """What `/status/{id}` answers."""

    task_id: str
    status: GymStatus
    progress: float | None = None
    estimated_completion: str | None = None
    queue_position: int | None = None
    """Tasks of this client that go before it; null once it runs."""
    assigned_device: str | None = None
    submitted_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error_message: str | None = None


class WorkflowResponse(BaseModel):
    """What `/workflow/submit` and `/workflow/results/{id}` answer."""

    task_id: str
    status: GymStatus
    result: dict[str, Any] | None = None
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None


def gym_status(task: TaskSummary) -> GymStatus:
    """The task's state in KernelGYM's words."""
    if task.state is TaskState.CANCELLED:
        return GymStatus.CANCELLED
    if task.state is TaskState.QUEUED:
        return GymStatus.PENDING
    if task.state is TaskState.RUNNING or task.status is None:
        return GymStatus.PROCESSING
    if task.expired or task.status is Status.TIMEOUT:
        return GymStatus.TIMEOUT
    return GymStatus.COMPLETED if task.status.is_about_candidate else GymStatus.FAILED


def task_status(task: TaskSummary, message: str | None, position: int | None) -> TaskStatusResponse:
    """Answer of `/status/{id}`."""
    return TaskStatusResponse(
        task_id=task.id,
        status=gym_status(task),
        progress=100.0 if task.state.is_terminal else None,
        queue_position=position,
        assigned_device=task.judged_on or None,
        submitted_at=moment(task.submitted_at),
        started_at=moment(task.started_at),
        completed_at=moment(task.finished_at),
        error_message=message,
    )


def evaluation_response(task: TaskSummary, evaluation: Evaluation | None) -> EvaluationResponse:
    """A task, and its verdict if it has one, as KernelGYM would answer."""
    started, finished = task.started_at or task.submitted_at, task.finished_at
    response = EvaluationResponse(
        task_id=task.id,
        status=gym_status(task),
        submitted_at=moment(task.submitted_at),
        completed_at=moment(finished),
        processing_time=None if finished is None else round(max(0.0, finished - started), 6),
    )
    if evaluation is None:
        message = "the task was cancelled" if task.state is TaskState.CANCELLED else None
        return response.model_copy(update={"error_message": message})
    passed = evaluation.status is Status.PASSED
    return response.model_copy(
        update={
            "compiled": evaluation.status in COMPILED,
            "correctness": evaluation.correct,
            "decoy_kernel": bool(evaluation.exploits),
            "reference_runtime": -1.0 if evaluation.reference_ms is None else evaluation.reference_ms,
            "kernel_runtime": -1.0 if evaluation.kernel_ms is None else evaluation.kernel_ms,
            "speedup": evaluation.speedup or 0.0,
            "metadata": metadata_of(evaluation),
            "error_message": None if passed else evaluation.message or str(evaluation.status),
            "error_code": None if passed else ERROR_CODES[evaluation.status],
        }
    )


def metadata_of(evaluation: Evaluation) -> dict[str, Any]:
    """What else KernelGYM's trainer reads: coverage by number and by time, and what the verdict was."""
    found: dict[str, Any] = {
        "dojo_status": str(evaluation.status),
        "device": evaluation.device,
        "gpu_name": evaluation.device,
        "backend": evaluation.language,
        "timing_source": evaluation.timing.source,
        "exploits": [exploit.name for exploit in evaluation.exploits],
    }
    if evaluation.coverage is None or not evaluation.kernels:
        return found
    total_us = 1000 * sum(kernel.device_ms for kernel in evaluation.kernels)
    return found | {
        "num_custom_kernels": round(sum(kernel.num_launches for kernel in evaluation.kernels if kernel.own)),
        "num_total_kernels": round(sum(kernel.num_launches for kernel in evaluation.kernels)),
        # The judge may have cut a claim: the ratio is what it believes, not what the profile sums up to.
        "custom_kernel_cuda_time_in_profiling_us": evaluation.coverage * total_us,
        "total_kernel_run_time_in_profiling_us": total_us,
    }


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
