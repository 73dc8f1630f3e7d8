"""Where a command's verdicts come from: a pool on this machine, or a service elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerneldojo.cli.arguments import BadUsage, require_judge

if TYPE_CHECKING:
    from kerneldojo.pool import Executor

FIRST_CONTACT_SECONDS = 5.0
"""How long a service may be away when a run begins."""


def open_executor(
    url: str | None, token_file: Path | None, devices: Sequence[str], slots: int | None, cache: Path | None
) -> Executor:
    """A pool over `devices` of this machine, or the service at `url`; to be closed.

    Raises:
        BadUsage: it cannot be opened.
    """
    if url is not None:
        return _open_service(url, token_file)
    if token_file is not None:
        raise BadUsage("--token-file is for a service: name it with --url")
    require_judge()
    from kerneldojo.pool import PoolConfig, open_pool

    try:
        return open_pool("local", devices, num_slots=slots, config=PoolConfig(cache_folder=cache))
    except (ValueError, RuntimeError) as error:
        raise BadUsage(str(error)) from error


def _open_service(url: str, token_file: Path | None) -> Executor:
    try:
        from kerneldojo.client import Client, ClientError, ClientExecutor, Retries, Unauthorized
        from kerneldojo.client.connection import without_user
    except ImportError as error:
        raise BadUsage("a service needs the extra: pip install 'kerneldojo[client]'") from error
    token = os.environ.get("KERNELDOJO_TOKEN") or None
    if token_file is not None:
        try:
            lines = [line.strip() for line in token_file.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise BadUsage(f"cannot read {token_file}: {getattr(error, 'strerror', None) or 'not text'}") from error
        tokens = [line for line in lines if line and not line.startswith("#")]
        if len(tokens) != 1:
            raise BadUsage(f"{token_file}: holds {len(tokens)} tokens; one is needed")
        # The service's own file has NAME:TOKEN; a token may have colons of its own.
        token = tokens[0].partition(":")[2] or tokens[0]
    try:
        # A wrong address is said soon; a service that goes away later, when there is work to lose, is waited for.
        with Client(url, token=token, retries=Retries(give_up_seconds=FIRST_CONTACT_SECONDS)) as client:
            client.overview()
        return ClientExecutor(url, token=token)
    except Unauthorized as error:
        raise BadUsage(f"{without_user(url)}: {error} (--token-file FILE, or KERNELDOJO_TOKEN)") from error
    except (ClientError, ValueError) as error:
        raise BadUsage(f"{without_user(url)}: {error}") from error
