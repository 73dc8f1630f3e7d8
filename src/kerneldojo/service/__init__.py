"""The service: thousands of candidates judged over HTTP, and nothing that was accepted is ever lost.

    from kerneldojo.service import ServiceConfig, create_app

    app = create_app(ServiceConfig(store=Path("dojo.sqlite")), executor)

Accepted work is on disk before it is acknowledged; results are on disk before anyone is told of them. What lies in
memory is only an index of what is still to be done. `records` and `config` are light (the client reads them); the
application needs FastAPI and is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerneldojo.service.config import ServiceConfig

if TYPE_CHECKING:
    from kerneldojo.service.app import create_app
    from kerneldojo.service.server import serve

__all__ = ["ServiceConfig", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from kerneldojo.service.app import create_app

        return create_app
    if name == "serve":
        from kerneldojo.service.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
