"""The dashboard: a page that looks at the service through the same API as everyone else.

Only fixed files are served, each under a path of its own that is listed here, so no path of a request ever reaches the
file system. They hold no data: whoever may not ask the API sees an empty page that asks for a token. The browser is
told to run, load and connect to nothing but this service, so that even a text of a candidate that slipped through the
page as markup could do nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request, Response

WEB = Path(__file__).parents[1] / "web"
"""Pages' files, some of them shared with reports."""

FILES = {
    "/": "dashboard/index.html",
    "/dashboard/icon.svg": "dashboard/icon.svg",
    "/dashboard/dojo.css": "dojo.css",
    "/dashboard/report.css": "report.css",
    "/dashboard/dashboard.css": "dashboard/dashboard.css",
    "/dashboard/text.js": "text.js",
    "/dashboard/charts.js": "charts.js",
    "/dashboard/live.js": "dashboard/live.js",
    "/dashboard/parts.js": "dashboard/parts.js",
    "/dashboard/home.js": "dashboard/home.js",
    "/dashboard/task.js": "dashboard/task.js",
    "/dashboard/main.js": "dashboard/main.js",
}
"""Paths and the files behind them."""

PATHS = frozenset(FILES)
"""Answered without a token: a browser cannot send one before it has the page that asks for it."""

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Sent with every file. Trusted types forbid the page's own scripts to turn any text into markup."""


def dashboard_router() -> APIRouter:
    """Routes of the page and its files; they are read once, here.

    Raises:
        FileNotFoundError: the package was installed without them.
    """
    router = APIRouter(include_in_schema=False)
    for path, name in FILES.items():
        _add_file(router, path, WEB / name)
    return router


def _add_file(router: APIRouter, path: str, file: Path) -> None:
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = HEADERS | {"ETag": tag}

    async def send(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA[file.suffix])

    router.add_api_route(path, send, methods=["GET", "HEAD"])
