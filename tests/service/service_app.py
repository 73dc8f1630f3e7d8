"""A service inside the test's process: the real application over ASGI, without sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from service_executors import TextExecutor

from kerneldojo.pool.executor import Executor
from kerneldojo.service import ServiceConfig, create_app
from kerneldojo.service.core import Service


class Running:
    """The application, its service, and a client for each test to use."""

    def __init__(self, app: Any, http: httpx.AsyncClient, executor: Any) -> None:
        self.app = app
        self.http = http
        self.executor = executor
        self.service: Service = app.state.service


@asynccontextmanager
async def running(
    folder: Path, executor: Executor | None = None, *, headers: dict[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Running]:
    executor = executor or TextExecutor()
    app = create_app(ServiceConfig(store=folder / "store.db", **settings), executor)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=30) as http,
    ):
        yield Running(app, http, executor)


def drive(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def order(source: str = "passed 1", *, id: str | None = None, **rest: Any) -> dict[str, Any]:
    problem = rest.pop("problem", {"name": "p", "source": "x"})
    job: dict[str, Any] = {"problem": problem, "candidate": {"source": source}}
    job |= {key: rest.pop(key) for key in ("device", "protocol") if key in rest}
    return {"job": job, **({} if id is None else {"id": id}), **rest}


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)
