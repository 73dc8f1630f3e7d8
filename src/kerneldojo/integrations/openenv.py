"""OpenEnv's wire on the service: its clients play episodes here as they are, without a package of theirs on our side.

The web socket `/ws` is one session: `reset`, `step`, `state`, `close`, one answer each, an error frame of one line
where something is wrong (the session goes on). Over HTTP, `/reset` answers with a session id, in the header
`X-Session-Id`, in a cookie and in `metadata`, and `/step` and `/state` are sent with the header or the cookie. Episodes
live in memory: a service that is restarted has forgotten them, but every verdict is in its store.
"""

from __future__ import annotations

import asyncio
import logging
import time
import tomllib
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message

from kerneldojo.episodes import PlayConfig
from kerneldojo.integrations.openenv_session import Session, Sessions
from kerneldojo.integrations.openenv_wire import (
    Action,
    EpisodeState,
    Frame,
    OpenEnvConfig,
    Refusal,
    Reply,
    ResetRequest,
    StepRequest,
    as_text,
    error_text,
    frame_text,
    schemas,
)
from kerneldojo.schema import Frozen
from kerneldojo.service.acceptance import Busy, Draining
from kerneldojo.service.bodies import MAX_VALUES, has_too_many_values, is_json, mistakes, one_line, read_body
from kerneldojo.service.core import Service
from kerneldojo.service.journal import StoreError
from kerneldojo.service.native import REFUSALS
from kerneldojo.service.records import Problematic

log = logging.getLogger(__name__)

__all__ = ["OpenEnvConfig", "openenv_router", "read_config"]

SESSION_HEADER = "X-Session-Id"
COOKIE = "dojo_session"

DESCRIPTION = (
    "Write GPU kernels (Triton or CUDA) that compute what a PyTorch module computes, faster. Each turn is judged for "
    "correctness, cheating and speed, and the feedback is the next observation."
)

GONE: dict[int | str, dict[str, Any]] = {
    404: {"model": Problematic, "description": "no such session"},
    409: {"model": Problematic, "description": "a step is under way, or the episode has ended"},
}

STATUSES = {"VALIDATION_ERROR": 422, "CAPACITY_REACHED": 429}
"""HTTP status by what went wrong; 409 for all else."""

TRY_LATER = 1013
SILENT = 1000
"""Codes of closing a web socket."""


def read_config(path: Path | None, devices: Sequence[str] = ()) -> OpenEnvConfig:
    """The configuration in a TOML file; without one the defaults, with the device if a service has only one.

    Raises:
        ValueError: it cannot be read, or a setting is wrong (one line).
    """
    if path is None:
        return OpenEnvConfig(play=PlayConfig(device=devices[0])) if len(devices) == 1 else OpenEnvConfig()
    try:
        return OpenEnvConfig.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {one_line(error.errors())}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def openenv_router(service: Service, config: OpenEnvConfig | None = None) -> APIRouter:
    """The routes of OpenEnv's wire (`/health` is the service's own).

    Raises:
        ProblemError: the configuration names a suite that does not exist.
    """
    sessions = Sessions(service, config or OpenEnvConfig())
    router = APIRouter(tags=["openenv"])

    @router.websocket("/ws")
    async def play(socket: WebSocket) -> None:
        """One session."""
        await socket.accept()
        try:
            session = sessions.open(socket.scope["dojo.client"])
        except Refusal as refusal:
            await socket.send_text(error_text(refusal))
            await socket.close(TRY_LATER)
            return
        try:
            await _serve(socket, session, sessions.config)
        finally:
            sessions.close(session)

    @router.post("/reset", response_model=Reply, responses=REFUSALS | GONE, openapi_extra=_body(ResetRequest))
    async def reset(request: Request) -> Response:
        """Begin an episode, in a new session unless the request names one."""
        asked = await read_body(request, ResetRequest)
        client = request.scope["dojo.client"]
        found = sessions.find(_session_id(request), client)
        try:
            session = found or sessions.open(client)
        except Refusal as refusal:
            raise _refused(refusal) from None
        try:
            async with _alone(session):
                reply = await session.reset(asked)
        except Refusal as refusal:
            if found is None:
                sessions.close(session)
            raise _refused(refusal) from None
        response = _json(reply.model_copy(update={"metadata": {"session_id": session.id}}))
        response.headers[SESSION_HEADER] = session.id
        response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict")
        return response

    @router.post("/step", response_model=Reply, responses=REFUSALS | GONE, openapi_extra=_body(StepRequest))
    async def step(request: Request) -> Response:
        """Play one turn of the session that the header or the cookie names."""
        asked = await read_body(request, StepRequest)
        session = known(request)
        async with _alone(session):
            if asked.request_id is not None and session.last is not None and session.last[0] == asked.request_id:
                return _json(session.last[1])
            try:
                reply = await session.step(asked.action.text, asked.timeout_s or float("inf"))
            except Refusal as refusal:
                raise _refused(refusal) from None
            session.last = None if asked.request_id is None else (asked.request_id, reply)
        return _json(reply)

    @router.get("/state", response_model=EpisodeState, responses=REFUSALS | GONE)
    async def state(request: Request) -> Response:
        """Where the episode of that session is."""
        return _json(known(request).state())

    @router.get("/schema")
    async def schema() -> dict[str, Any]:
        """JSON schemas of actions, observations and the state."""
        return schemas()

    @router.get("/metadata")
    async def metadata() -> dict[str, str]:
        """What this environment is."""
        return {"name": "kerneldojo", "description": DESCRIPTION, "version": version("kerneldojo")}

    def known(request: Request) -> Session:
        session = sessions.find(_session_id(request), request.scope["dojo.client"])
        if session is None:
            raise HTTPException(404, f"there is no such session: POST /reset, and send its {SESSION_HEADER}")
        return session

    return router


async def _serve(socket: WebSocket, session: Session, config: OpenEnvConfig) -> None:
    """Answer frames until the client leaves, or is silent for too long."""
    # Read one frame ahead: a client that leaves is noticed while its step is judged, which then nobody waits for.
    heard = asyncio.create_task(socket.receive())
    try:
        while True:
            done, _ = await asyncio.wait({heard}, timeout=config.idle_seconds)
            if not done:
                silence = f"nothing was heard for {config.idle_seconds:g} seconds"
                await socket.send_text(error_text(Refusal("SESSION_ERROR", silence)))
                await socket.close(SILENT)
                return
            message = heard.result()
            if message["type"] == "websocket.disconnect":
                return
            heard = asyncio.create_task(socket.receive())
            reply = await _unless_gone(_answer(session, message.get("text") or ""), heard)
            if reply is None:
                await socket.close()
                return
            await socket.send_text(reply)
    except WebSocketDisconnect:
        return
    finally:
        heard.cancel()


async def _unless_gone(answer: Coroutine[None, None, str | None], heard: asyncio.Task[Message]) -> str | None:
    """The answer, cancelled if the client leaves before it is there.

    Raises:
        WebSocketDisconnect: it left.
    """
    work = asyncio.create_task(answer)
    try:
        await asyncio.wait({work, heard}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() or heard.result()["type"] != "websocket.disconnect":
            return await work
        raise WebSocketDisconnect
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _answer(session: Session, text: str) -> str | None:
    """The frame that answers a frame; None for `close`."""
    try:
        async with _alone(session):
            return await _dispatched(session, _frame(text))
    except Refusal as refusal:
        return error_text(refusal)
    except ValidationError as error:
        return error_text(Refusal("VALIDATION_ERROR", mistakes(error)))
    except Busy as error:
        return error_text(Refusal("EXECUTION_ERROR", f"{error}; try again in {error.retry_after} s"))
    except Draining:
        return error_text(Refusal("EXECUTION_ERROR", "the service is about to stop"))
    except StoreError:
        return error_text(Refusal("EXECUTION_ERROR", "the store cannot be written now; the turn was not played"))
    except Exception:
        log.exception("session %s failed", session.id)
        return error_text(Refusal("EXECUTION_ERROR", f"a fault of ours; the log has more under {session.id}"))


async def _dispatched(session: Session, frame: Frame) -> str | None:
    match frame.type:
        case "reset":
            return frame_text("observation", await session.reset(ResetRequest.model_validate(frame.data)))
        case "step":
            return frame_text("observation", await session.step(Action.model_validate(frame.data).text))
        case "state":
            return frame_text("state", session.state())
        case "close":
            return None
        case _:
            raise Refusal("UNKNOWN_TYPE", "type: one of reset, step, state, close")


def _frame(text: str) -> Frame:
    if has_too_many_values(text.encode("utf-8", "replace")):
        raise Refusal("VALIDATION_ERROR", f"a frame holds at most {MAX_VALUES} values")
    try:
        return Frame.model_validate_json(text)
    except ValidationError as error:
        raise Refusal("VALIDATION_ERROR" if is_json(error) else "INVALID_JSON", mistakes(error)) from None


@asynccontextmanager
async def _alone(session: Session) -> AsyncGenerator[None]:
    if session.lock.locked():
        raise HTTPException(409, "a request of this session is under way")
    async with session.lock:
        session.used_at = time.monotonic()
        try:
            yield
        finally:
            session.used_at = time.monotonic()


def _session_id(request: Request) -> str | None:
    return request.headers.get(SESSION_HEADER) or request.cookies.get(COOKIE)


def _refused(refusal: Refusal) -> HTTPException:
    return HTTPException(STATUSES.get(refusal.code, 409), str(refusal))


def _json(value: Frozen) -> Response:
    return Response(as_text(value), media_type="application/json")


def _body(model: type[Frozen]) -> dict[str, Any]:
    """`openapi_extra` of a route that reads a `model`, whose parts are written out."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})
    for name, field in schema["properties"].items():
        if "$ref" in field:
            schema["properties"][name] = parts[field["$ref"].rpartition("/")[2]]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
