"""KernelGYM's HTTP API: its trainer can be pointed here as it is.

Its client posts to `/evaluate`, then polls `/status/{id}` until the task has ended and reads `/results/{id}`. It gives
up a post after a time of its own and posts the same task again, which here is the same task; a post is answered before
that time with the status `processing` if there is no verdict yet, so that a long queue never reads as a failure. It
cannot send a header of ours: a token goes into its URL as a password (`http://trainer:TOKEN@host:port`).

What it cannot bear is a connection that breaks amid a post, and a queue that is full for ten seconds: both are a reward
of a failure for a kernel that nobody has judged. So what it posts is answered soon, and a post waits for room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kerneldojo.schema import Evaluation
from kerneldojo.service.acceptance import Busy
from kerneldojo.service.bodies import body_of, read_body
from kerneldojo.service.core import Service
from kerneldojo.service.kernelgym_wire import (
    BatchEvaluationRequest,
    BatchEvaluationResponse,
    EvaluationRequest,
    EvaluationResponse,
    GymStatus,
    TaskStatusResponse,
    WorkflowRequest,
    WorkflowResponse,
    evaluation_response,
    gym_status,
    moment,
    task_status,
)
from kerneldojo.service.native import CONFLICT, NOT_FOUND, REFUSALS, TASK_ID
from kerneldojo.service.records import Acknowledgement, Submission, TaskState, TaskSummary
from kerneldojo.service.viewer import Viewer, no_such_task, viewer_of
from kerneldojo.service.views import summary_of

BODIES: tuple[type[BaseModel], ...] = (EvaluationRequest, BatchEvaluationRequest, WorkflowRequest)

HOLD_SHARE = 0.8
"""Share of a task's timeout after which a post is answered without a verdict: its client waits about that timeout."""

MAX_HOLD_SECONDS = 300.0

POLLED_HOLD_SECONDS = 0.1
"""How long a post of its reward client is held: that polls anyway, and takes one that breaks off for a failure."""

ROOM_SECONDS = 0.25
"""How often a post looks whether the full queue has room again."""

MOST_AT_THE_DOOR = 512
"""Posts that may wait for room at once; with more the queue is full for them at once."""

TaskIdPath = Annotated[str, Path(pattern=TASK_ID, max_length=200)]


def kernelgym_router(service: Service) -> APIRouter:
    """Routes of KernelGYM's API that its trainer and its tools call."""
    router = APIRouter(tags=["kernelgym"], responses=REFUSALS)
    at_the_door: set[object] = set()

    @router.post(
        "/evaluate",
        response_model=EvaluationResponse,
        responses=CONFLICT,
        openapi_extra=body_of(EvaluationRequest),
    )
    async def evaluate(request: Request) -> EvaluationResponse:
        """Judge one kernel; answers when it is judged, or with `processing` shortly before the client would give up."""
        return await _evaluate(await read_body(request, EvaluationRequest), request)

    async def _evaluate(asked: EvaluationRequest, request: Request) -> EvaluationResponse:
        _refuse_unserved(asked)
        viewer = viewer_of(request)
        held_until = time.monotonic() + _hold_seconds(asked.timeout)
        (accepted,) = await _accept([asked.submission()], request, held_until)
        if accepted.error:
            raise HTTPException(409, f"the task {accepted.id} has other code, or is not yours")
        left = max(0.0, held_until - time.monotonic())
        await service.waiters.wait(
            [accepted.id], min(left, POLLED_HOLD_SECONDS) if asked.is_polled else left, request.is_disconnected
        )
        return _response(accepted.id, viewer)

    async def _accept(submissions: Sequence[Submission], request: Request, until: float) -> list[Acknowledgement]:
        """Submit, and wait for room until a moment of the monotonic clock; `Busy` if there is none by then."""
        place = object()
        try:
            while True:
                try:
                    return await service.submit(submissions, viewer_of(request))
                except Busy:
                    at_the_door.add(place)
                    is_crowded = len(at_the_door) > MOST_AT_THE_DOOR
                    if is_crowded or time.monotonic() >= until or await request.is_disconnected():
                        raise
                await asyncio.sleep(ROOM_SECONDS)
        finally:
            at_the_door.discard(place)

    @router.post(
        "/evaluate/batch",
        response_model=BatchEvaluationResponse,
        responses=CONFLICT,
        openapi_extra=body_of(BatchEvaluationRequest),
    )
    async def evaluate_batch(request: Request) -> BatchEvaluationResponse:
        """Judge many; waits as long as for the one with the longest timeout."""
        asked = await read_body(request, BatchEvaluationRequest)
        for number, task in enumerate(asked.tasks):
            _refuse_unserved(task, f"tasks.{number}.")
        viewer = viewer_of(request)
        started = time.time()
        longest = max(task.timeout for task in asked.tasks)
        held_until = time.monotonic() + _hold_seconds(longest)
        found = await _accept([task.submission() for task in asked.tasks], request, held_until)
        conflicts = [task.id for task in found if task.error]
        if conflicts:
            raise HTTPException(
                409, f"{len(conflicts)} tasks have other code or are not yours, the first is {conflicts[0]}"
            )
        left = max(0.0, held_until - time.monotonic())
        await service.waiters.wait([task.id for task in found], left, request.is_disconnected)
        results = [_response(task.id, viewer) for task in found]
        failed = sum(result.status in (GymStatus.FAILED, GymStatus.TIMEOUT, GymStatus.CANCELLED) for result in results)
        completed = sum(result.status is GymStatus.COMPLETED for result in results)
        return BatchEvaluationResponse(
            batch_id=asked.batch_id,
            total_tasks=len(results),
            completed_tasks=completed,
            failed_tasks=failed,
            results=results,
            batch_status=GymStatus.COMPLETED if completed + failed == len(results) else GymStatus.PROCESSING,
            submitted_at=moment(started),
            completed_at=moment(time.time()),
        )

    @router.post(
        "/workflow/submit",
        response_model=WorkflowResponse,
        responses=CONFLICT,
        openapi_extra=body_of(WorkflowRequest),
    )
    async def submit_workflow(request: Request) -> WorkflowResponse:
        """The same as `/evaluate`, in an envelope; the only workflow is `kernelbench`."""
        asked = await read_body(request, WorkflowRequest)
        return _enveloped(await _evaluate(asked.evaluation(), request))

    @router.get("/workflow/results/{task_id}", response_model=WorkflowResponse, responses=NOT_FOUND)
    async def workflow_results(request: Request, task_id: TaskIdPath) -> WorkflowResponse:
        """The verdict on one task; 404 until there is one."""
        return _enveloped(_ended(task_id, viewer_of(request)))

    @router.get("/status/{task_id}", response_model=TaskStatusResponse, responses=NOT_FOUND)
    async def get_status(request: Request, task_id: TaskIdPath) -> TaskStatusResponse:
        """Where one task is."""
        viewer = viewer_of(request)
        task = _task(task_id, viewer)
        message = _response(task_id, viewer).error_message if task.state.is_terminal else None
        # One that waits no more in memory is on its way to a device.
        position = (service.dispatcher.queue.position(task_id) or 0) if task.state is TaskState.QUEUED else None
        return task_status(task, message, position)

    @router.get("/results/{task_id}", response_model=EvaluationResponse, responses=NOT_FOUND)
    async def get_results(request: Request, task_id: TaskIdPath) -> EvaluationResponse:
        """The verdict on one task; 404 until there is one."""
        return _ended(task_id, viewer_of(request))

    @router.delete("/tasks/{task_id}", responses=NOT_FOUND)
    async def cancel_task(request: Request, task_id: TaskIdPath) -> dict[str, str]:
        """End a task without a verdict; 404 for one that is unknown or has ended."""
        _task(task_id, viewer_of(request))
        if not await service.cancel(task_id):
            raise HTTPException(404, "there is no such task, or it has ended")
        return {"message": f"task {task_id} cancelled"}

    @router.get("/workers/status")
    async def workers_status(request: Request) -> dict[str, dict[str, Any]]:
        """One worker a device."""
        return {
            device.name: {
                "worker_id": device.name,
                "device": device.name,
                "device_name": device.description,
                "online": device.is_healthy,
                "status": "online" if device.is_healthy else "offline",
                "current_tasks": list(device.running),
                "tasks_processed": device.num_done,
                "error": device.reason,
            }
            for device in await service.lookout.devices_for(viewer_of(request))
        }

    @router.get("/queue/status")
    async def queue_status() -> dict[str, int]:
        """How much waits, runs and has ended."""
        queue = service.lookout.queue_state()
        return {
            "pending": queue.queued,
            "processing": queue.running,
            "completed": service.states[TaskState.DONE],
            "cancelled": service.states[TaskState.CANCELLED],
        }

    def _refuse_unserved(asked: EvaluationRequest, place: str = "") -> None:
        """Its trainer would take a task that no device can serve for a failed candidate: it is not accepted."""
        if why := service.dispatcher.refusal(asked.device_preference or "auto"):
            raise HTTPException(422, f"{place}device_preference: {why}".encode("ascii", "backslashreplace").decode())

    def _task(task_id: str, viewer: Viewer) -> TaskSummary:
        row = service.reader.summary(task_id)
        if row is None or not viewer.sees(row["client"]):
            raise no_such_task()
        return summary_of(row)

    def _response(task_id: str, viewer: Viewer) -> EvaluationResponse:
        task = _task(task_id, viewer)
        text = service.reader.evaluation(task.sequence) if task.state is TaskState.DONE else None
        return evaluation_response(task, Evaluation.model_validate_json(text) if text else None)

    def _ended(task_id: str, viewer: Viewer) -> EvaluationResponse:
        if gym_status(_task(task_id, viewer)) in (GymStatus.PENDING, GymStatus.PROCESSING):
            raise HTTPException(404, "the task has not ended")
        return _response(task_id, viewer)

    return router


def _hold_seconds(timeout: float) -> float:
    return min(HOLD_SHARE * timeout, MAX_HOLD_SECONDS)


def _enveloped(response: EvaluationResponse) -> WorkflowResponse:
    is_ended = response.completed_at is not None
    return WorkflowResponse(
        task_id=response.task_id,
        status=response.status,
        result=response.model_dump(mode="json", exclude={"status"}) if is_ended else None,
        error_message=response.error_message,
        error_code=response.error_code,
        submitted_at=response.submitted_at,
        completed_at=response.completed_at,
    )
