"""The application: routes, the gate before them, and what every failure looks like from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kerneldojo.pool.executor import Executor
from kerneldojo.service import kernelgym, native
from kerneldojo.service.acceptance import Busy, Draining, Oversized
from kerneldojo.service.bodies import describe, validation_line
from kerneldojo.service.config import ServiceConfig
from kerneldojo.service.core import Service
from kerneldojo.service.dashboard import dashboard_router
from kerneldojo.service.gate import Gate
from kerneldojo.service.journal import StoreError
from kerneldojo.service.kernelgym import kernelgym_router
from kerneldojo.service.metrics import Metrics
from kerneldojo.service.native import as_json, native_router
from kerneldojo.service.records import Acknowledgement, Health, Problematic, TaskRecord
from kerneldojo.service.viewer import viewer_of

DESCRIPTION = """Judges generated GPU kernels. Submit tasks under ids of your own: the same id with the same job is the
same task, so every request may be repeated. Refused work is answered with 429 or 503 and Retry-After."""


def create_app(
    config: ServiceConfig, executor: Executor, routers: Sequence[Callable[[Service], APIRouter]] = ()
) -> FastAPI:
    """A service as an ASGI application. Its lifespan opens the store and ends by closing the executor.

    `app.state.service` is the running `Service`. `routers` make further routes of it, for example those of OpenEnv's
    wire (`kerneldojo.integrations.openenv`).
    """
    service = Service(config, executor)
    metrics = Metrics(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="Kernel Dojo",
        version=version("kerneldojo"),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    app.include_router(native_router(service, metrics))
    app.include_router(kernelgym_router(service))
    app.include_router(dashboard_router())
    for make in routers:
        app.include_router(make(service))
    _add_own_routes(app, service, metrics)
    _add_refusals(app, service)
    app.add_middleware(Gate, config=config, requests=metrics.requests)
    describe(app, (*native.BODIES, *kernelgym.BODIES, Acknowledgement, Problematic, TaskRecord))
    return app


def _add_own_routes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.head("/health", include_in_schema=False)  # So whoever balances load asks.
    @app.get("/health", response_model=Health, responses={503: {"model": Health}}, tags=["operations"])
    async def health() -> Response:
        """Whether devices are well, the store can be written and the queue moves; 503 where work cannot be done."""
        found = await service.lookout.health()
        return as_json(found, 200 if found.status == "healthy" else 503)

    @app.get(
        "/metrics",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        tags=["operations"],
        response_class=Response,
    )
    async def prometheus(request: Request) -> Response:
        """Figures for Prometheus; of single clients those that the one who asks may see."""
        await service.lookout.devices()
        return Response(metrics.render(viewer_of(request)), media_type=CONTENT_TYPE_LATEST)


def _add_refusals(app: FastAPI, service: Service) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        # Starlette names the methods of the first route with this path, which may have several.
        headers = {"Allow": _allowed(app, request)} if error.status_code == 405 else error.headers
        return _problem(error.status_code, str(error.detail), headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return _problem(422, validation_line(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> Response:
        return _problem(429, str(error), {"Retry-After": str(error.retry_after)})

    @app.exception_handler(Oversized)
    async def oversized(_: Request, error: Oversized) -> Response:
        return _problem(413, str(error))

    @app.exception_handler(Draining)
    async def draining(_: Request, error: Draining) -> Response:
        return _problem(503, "the service is about to stop; its store keeps what was accepted", {"Retry-After": "5"})

    @app.exception_handler(StoreError)
    async def store_error(_: Request, error: StoreError) -> Response:
        return _problem(503, "the store cannot be written now; nothing was accepted", {"Retry-After": "2"})

    @app.exception_handler(sqlite3.OperationalError)
    async def unreadable(_: Request, error: sqlite3.OperationalError) -> Response:
        return _problem(503, service.lookout.note(error), {"Retry-After": "2"})

    @app.exception_handler(sqlite3.DatabaseError)
    async def damaged(_: Request, error: sqlite3.DatabaseError) -> Response:
        if type(error) is not sqlite3.DatabaseError:
            raise error  # A wrong statement, and no wrong file.
        return _problem(500, service.lookout.note(error))


def _allowed(app: FastAPI, request: Request) -> str:
    """The methods that a path has, as a header says them."""
    asked = ({**request.scope, "method": method} for method in ("DELETE", "GET", "HEAD", "POST"))
    return ", ".join(
        scope["method"] for scope in asked if any(route.matches(scope)[0] is Match.FULL for route in app.routes)
    )


def _problem(code: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    response = as_json(Problematic(detail=detail), code)
    response.headers.update(headers or {})
    return response
