"""How a service behaves: where it keeps its work, whom it serves, how much it takes."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from kerneldojo.schema import Frozen
from kerneldojo.service.tokens import Token


class ServiceConfig(Frozen):
    """Settings of one service; the defaults are the vetted ones."""

    store: Path
    """The SQLite file; made if it is not there. One service at a time may have it open."""
    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 for any that is free."""
    tokens: tuple[Token, ...] = ()
    """Who may ask. None: everyone who reaches the address, which is then loopback."""
    max_queued: int = Field(default=50_000, ge=1)
    """Tasks that may wait; beyond it a submission is refused with 429."""
    max_queued_bytes: int = Field(default=4 << 30, ge=1)
    """Bytes of waiting jobs, on disk; beyond it a submission is refused with 429."""
    max_body_bytes: int = Field(default=32 << 20, ge=1)
    """Longest request body; a longer one is refused with 413, and nothing of it is kept."""
    max_bodies_bytes: int = Field(default=256 << 20, ge=1)
    """Bytes of all request bodies that are in hand at once; beyond it 429."""
    max_waiting: int = Field(default=4096, ge=1)
    """Requests that may wait for results at once (long polls and streams); beyond it 429."""
    max_attempts: int = Field(default=10, ge=1)
    """How often a task is started again because the service died while it ran, before it ends unscored."""
    grace_seconds: float = Field(default=60.0, ge=0)
    """After SIGTERM: how long running tasks may take to finish; what does not is judged after the next start."""
    stalled_seconds: float = Field(default=900.0, gt=0)
    """Full slots, waiting tasks and no result for this long: `/health` says that the queue does not move."""
    keep_seconds: float | None = Field(default=None, gt=0)
    """Delete ended tasks that are older; None keeps them for ever."""
    keep_bytes: int | None = Field(default=None, ge=1)
    """Delete the oldest ended tasks while the store is larger than this; None keeps them for ever."""

    @field_validator("host")
    @classmethod
    def _host_is_named(cls, host: str) -> str:
        if not host.strip():  # to a socket it would mean every address of this machine
            raise ValueError("the host to listen on is empty: name one, 127.0.0.1 for this machine alone")
        return host

    @model_validator(mode="after")
    def _others_need_a_token(self) -> Self:
        if not self.tokens and not is_loopback(self.host):
            raise ValueError(f"refusing to listen on {self.host} without a token: give one, or listen on 127.0.0.1")
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; a name other than `localhost` is taken to be reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
