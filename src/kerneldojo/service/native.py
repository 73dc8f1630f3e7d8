"""The native API, `/v1`: submit, wait, stream, cancel, list, look."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kerneldojo.schema import Status
from kerneldojo.service.bodies import body_of, read_body
from kerneldojo.service.core import Service
from kerneldojo.service.metrics import Metrics
from kerneldojo.service.onlooker import Onlooker
from kerneldojo.service.records import (
    Acknowledgement,
    Acknowledgements,
    Batch,
    Collection,
    Overview,
    Problematic,
    Submission,
    TaskPage,
    TaskRecord,
    TaskState,
)
from kerneldojo.service.viewer import Viewer, no_such_task, viewer_of
from kerneldojo.service.views import record_json, summary_of

TASK_ID = r"^[A-Za-z0-9][A-Za-z0-9_.:@+=-]{0,199}$"
TaskIdPath = Annotated[str, Path(pattern=TASK_ID, max_length=200)]

MAX_WAIT = 60.0
"""Longest long poll, in seconds: ask again."""

MAX_ONLOOKERS = 64
"""Readers of `/v1/events` at once."""

PULSE_SECONDS = 15.0
"""Streams send something at least this often, so that both sides notice a dead connection."""

MAX_SEQUENCE = (1 << 63) - 1

BODIES: tuple[type[BaseModel], ...] = (Submission, Batch, Collection)
"""Models of the bodies that are read here."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problematic, "description": words}
    for code, words in {
        400: "not JSON",
        401: "no valid token",
        413: "too long",
        415: "not said to be JSON",
        422: "not valid",
        429: "the queue is full; see Retry-After",
        503: "draining, or the store cannot be written; see Retry-After",
    }.items()
}
"""What every route may answer beside its own."""

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problematic, "description": "no such task"}}
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problematic, "description": "the id is another task's"}}
LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/TaskRecord"}}}}
}
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def as_json(model: BaseModel, code: int = 200) -> Response:
    """A response that holds `model`."""
    return Response(model.model_dump_json(), code, media_type="application/json")


def native_router(service: Service, metrics: Metrics) -> APIRouter:
    """Routes of the native API."""
    router = APIRouter(prefix="/v1", tags=["native"], responses=REFUSALS)

    @router.post(
        "/tasks",
        status_code=202,
        responses={202: {"model": Acknowledgement}, 200: {"model": Acknowledgement}, **CONFLICT},
        openapi_extra=body_of(Submission),
    )
    async def submit(request: Request) -> Response:
        """Accept one task: 202 if it is new, 200 if the same was accepted before. It is on disk when this answers."""
        submission = await read_body(request, Submission)
        started = time.perf_counter()
        (found,) = await service.submit([submission], viewer_of(request))
        metrics.acknowledge.observe(time.perf_counter() - started)
        if found.error:
            raise HTTPException(409, f"the id {found.id} belongs to another task: one with another job, or not yours")
        return as_json(found, 202 if found.is_new else 200)

    @router.post(
        "/tasks/batch",
        status_code=202,
        responses={202: {"model": Acknowledgements}},
        openapi_extra=body_of(Batch),
    )
    async def submit_batch(request: Request) -> Response:
        """Accept many tasks in one write: all of them, or none where the queue is full. Conflicts are told apart."""
        batch = await read_body(request, Batch)
        started = time.perf_counter()
        found = await service.submit(batch.tasks, viewer_of(request))
        metrics.acknowledge.observe(time.perf_counter() - started)
        return as_json(Acknowledgements(tasks=tuple(found)), 202)

    @router.get("/tasks", response_model=TaskPage)
    async def list_tasks(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: Annotated[int | None, Query(ge=0, le=MAX_SEQUENCE)] = None,
        state: TaskState | None = None,
        status: Status | None = None,
        client: Annotated[str | None, Query(max_length=64)] = None,
    ) -> Response:
        """Your tasks, newest first; `next` of one page is `before` of the following."""
        viewer = viewer_of(request)
        if client is not None and not viewer.sees(client):
            return as_json(TaskPage(tasks=()))
        asked = {"state": state, "status": status, "client": client or viewer.only}
        filters = {column: str(value) for column, value in asked.items() if value is not None}
        rows = service.reader.page(limit, before, filters)
        tasks = tuple(summary_of(row) for row in rows)
        return as_json(TaskPage(tasks=tasks, next=tasks[-1].sequence if len(tasks) == limit else None))

    @router.get("/tasks/{task_id}", response_model=TaskRecord, responses=NOT_FOUND)
    async def get_task(
        request: Request,
        task_id: TaskIdPath,
        wait: Annotated[float, Query(ge=0, le=MAX_WAIT, allow_inf_nan=False)] = 0.0,
        include: Literal["job"] | None = None,
    ) -> Response:
        """One task; with `wait`, as soon as it has ended, or after that many seconds as it is then."""
        row = seen(task_id, viewer_of(request))
        if wait > 0 and not TaskState(row["state"]).is_terminal:
            await service.waiters.wait([task_id], wait, request.is_disconnected)
            row = seen(task_id, viewer_of(request))
        position = service.dispatcher.queue.position(task_id)
        text = record_json(service.reader, row, with_job=include == "job", position=position)
        return Response(text, media_type="application/json")

    @router.delete("/tasks/{task_id}", response_model=TaskRecord, responses=NOT_FOUND)
    async def cancel_task(request: Request, task_id: TaskIdPath, if_queued: bool = False) -> Response:
        """End a task without a verdict; one that has ended stays as it is. The answer is the task as it is now.

        One that is running already is not stopped: its verdict is not kept, and its device is busy until it ends or
        its time is up. With `if_queued` it goes on to its verdict as though nothing had been asked.
        """
        seen(task_id, viewer_of(request))
        await service.cancel(task_id, if_queued=if_queued)
        row = seen(task_id, viewer_of(request))
        return Response(record_json(service.reader, row, with_job=False), media_type="application/json")

    @router.post("/results", responses={**LINES, **NOT_FOUND}, openapi_extra=body_of(Collection))
    async def stream_results(request: Request) -> StreamingResponse:
        """The tasks asked for, one JSON object a line, each as it ends; empty lines mean that the stream lives.

        It ends when all have ended, or when the service drains: ask again for the rest.
        """
        collection = await read_body(request, Collection)
        ids = tuple(dict.fromkeys(collection.ids))
        known = service.reader.states(ids, viewer_of(request).only)
        if unknown := [one for one in ids if one not in known]:
            raise HTTPException(404, f"{len(unknown)} of these tasks do not exist, the first is {unknown[0]}")
        service.waiters.check()
        return StreamingResponse(_lines(service, ids), media_type="application/x-ndjson")

    @router.get("/events", responses=EVENTS)
    async def events(request: Request) -> StreamingResponse:
        """Server-sent events: `task` (a `TaskSummary` on each change), `overview` (each second), `missed`."""
        if len(service.onlookers) >= MAX_ONLOOKERS:
            raise HTTPException(429, "too many readers of events", {"Retry-After": "5"})
        return StreamingResponse(
            _events(service, viewer_of(request)),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    @router.get("/overview", response_model=Overview)
    async def overview(request: Request) -> Response:
        """Devices, queue, rate, what runs and what ended last."""
        return as_json(await service.lookout.overview(viewer_of(request)))

    def seen(task_id: str, viewer: Viewer) -> sqlite3.Row:
        row = service.reader.summary(task_id)
        if row is None or not viewer.sees(row["client"]):
            raise no_such_task()
        return row

    return router


async def _lines(service: Service, ids: tuple[str, ...]) -> AsyncGenerator[str]:
    async for task_id in service.waiters.follow(ids, pulse=PULSE_SECONDS):
        try:
            row = service.reader.summary(task_id) if task_id is not None else None
            line = "" if row is None else record_json(service.reader, row, with_job=False)
        except sqlite3.Error as error:
            # The others' results are not to be lost with it: whoever asks for this one alone is told what is wrong.
            service.lookout.note(error)
            line = ""
        yield line + "\n"


async def _events(service: Service, viewer: Viewer) -> AsyncGenerator[str]:
    onlooker = Onlooker(viewer)
    service.onlookers.add(onlooker)
    try:
        yield _event("overview", await service.lookout.overview(viewer))
        while not onlooker.is_dismissed:
            found = await onlooker.read(PULSE_SECONDS)
            yield "".join(_event(kind, data) for kind, data in found) or ": alive\n\n"
            # At most a few packets a second, however much happens.
            await asyncio.sleep(0.1)
    finally:
        service.onlookers.discard(onlooker)


def _event(kind: str, data: BaseModel) -> str:
    return f"event: {kind}\ndata: {data.model_dump_json()}\n\n"
