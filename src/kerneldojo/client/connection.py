"""How both clients connect."""

from __future__ import annotations

import ipaddress
import logging
import re
from typing import Any

import httpx

from kerneldojo.service.tokens import NAME

log = logging.getLogger(__name__)

STREAM_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""A stream sends something every 15 seconds; silence for this long means that the other side is gone."""

TOKEN = re.compile("[!-~]+")
"""What a token may be, so that a header can hold it."""

LIMITS = httpx.Limits(max_connections=1024, max_keepalive_connections=128, keepalive_expiry=60.0)


class Absence:
    """Says once that a service is gone and is waited for: who waits for ten minutes in silence looks as if it hung."""

    def __init__(self, url: str, give_up_seconds: float) -> None:
        self._url, self._seconds = without_user(url).rstrip("/"), give_up_seconds
        self._is_said = False

    def begins(self, error: httpx.RequestError) -> None:
        """The service could not be reached, and will be tried again."""
        if not self._is_said:
            self._is_said = True
            words = f"{type(error).__name__}: {error}".rstrip(": ")
            told = "%s: the service cannot be reached: %s; trying again for up to %.0f s"
            log.warning(told, self._url, words, self._seconds)

    def ends(self) -> None:
        """It answered."""
        self._is_said = False


def without_user(url: str) -> str:
    """`url` as it may be shown: a token can stand before its `@`, also where it is no address that could be parsed."""
    user, at, host = url.rpartition("@")
    scheme = re.match("https?://", user)
    return (scheme[0] if scheme else "") + host if at else url


def arguments(url: str, token: str | None, name: str | None) -> dict[str, Any]:
    """Arguments of `httpx.Client` and `httpx.AsyncClient`.

    Raises:
        ValueError: `url` is not one, or no token or client is ever called that. The token itself is never told.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise ValueError(f"{without_user(url)!r} is not the address of a service (http://HOST:PORT)")
    # Sent as they are they would fail at each request, as though the service were gone, and the log would quote them.
    if token is not None and not TOKEN.fullmatch(token):
        raise ValueError("the token is empty or has what no token has: a space, a line break at its end, an accent")
    if name is not None and not NAME.fullmatch(name):
        raise ValueError(f"a client's name has letters, digits, dots, dashes and underscores, at most 64: not {name!r}")
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if name is not None:
        headers["X-Dojo-Client"] = name
    return {
        # httpx logs each address that it asks, with the user in it.
        "base_url": parsed.copy_with(userinfo=b""),
        "auth": httpx.BasicAuth(parsed.username, parsed.password) if parsed.userinfo else None,
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
