"""How both clients connect."""

from __future__ import annotations

import ipaddress
from typing import Any

import httpx

STREAM_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""A stream sends something every 15 seconds; silence for this long means that the other side is gone."""

LIMITS = httpx.Limits(max_connections=1024, max_keepalive_connections=128, keepalive_expiry=60.0)


def arguments(url: str, token: str | None, name: str | None) -> dict[str, Any]:
    """Arguments of `httpx.Client` and `httpx.AsyncClient`.

    Raises:
        ValueError: `url` is not one.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is not the address of a service (http://HOST:PORT)")
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if name is not None:
        headers["X-Dojo-Client"] = name
    return {
        "base_url": parsed,
        "headers": headers,
        "limits": LIMITS,
        "timeout": 60.0,
        # A proxy of the environment is not for what runs on this machine.
        "trust_env": not _is_local(parsed.host),
    }


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
