"""`dojo serve`: the judge as a service that loses nothing."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kerneldojo.cli.arguments import BadUsage, device_name, named, require_judge
from kerneldojo.cli.streams import say

if TYPE_CHECKING:
    from kerneldojo.pool.executor import Executor
    from kerneldojo.service import ServiceConfig

DEFAULT_STORE = Path("dojo.sqlite")

Factory = Annotated[
    str,
    typer.Option(
        "--executor",
        help="local (the devices of this machine), ray (any number of machines), or MODULE:FUNCTION, a function of "
        "your own that takes the list of devices and returns a kerneldojo.pool.Executor.",
        metavar="local|ray|MODULE:FUNCTION",
    ),
]


def _device_names(values: list[str] | None) -> list[str]:
    return [device_name(value) for value in values or ["auto"]]


def serve_command(
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", help="auto, cpu, cuda:N or model:GPU; give it once for each device.", metavar="DEVICE"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.", min=0, max=65535)] = 8000,
    executor: Factory = "local",
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            help="SQLite file that keeps every task; made if missing, but not its folder.",
            metavar="FILE",
            parser=named,
        ),
    ] = DEFAULT_STORE,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File of tokens, NAME:TOKEN a line. Without it the environment's KERNELDOJO_TOKENS is read.",
        ),
    ] = None,
    max_queued: Annotated[int, typer.Option(help="Tasks that may wait; more are refused with 429.", min=1)] = 50_000,
    max_queued_mb: Annotated[int, typer.Option(help="Megabytes of waiting tasks.", min=1)] = 4096,
    grace: Annotated[float, typer.Option(help="Seconds that running tasks have after SIGTERM.", min=0)] = 60.0,
    keep_days: Annotated[
        float | None, typer.Option(help="Delete ended tasks that are older; all are kept by default.", min=0.001)
    ] = None,
    keep_mb: Annotated[
        int | None, typer.Option(help="Delete the oldest ended tasks above this size of the store.", min=1)
    ] = None,
    openenv: Annotated[
        Path | None,
        typer.Option(help="TOML file of the episodes under OpenEnv's wire: suites, [play], [play.reward]."),
    ] = None,
) -> None:
    """Serve the judge over HTTP: the /v1 API, and KernelGYM's, whose trainer can be pointed here as it is.

    Accepted work is on disk before it is acknowledged: after a crash or a restart the service goes on where it was. The
    first SIGTERM or Ctrl-C lets running tasks finish, the second ends at once.
    """
    _require_service()
    devices = _device_names(device)
    settings: dict[str, Any] = {
        "store": store,
        "host": host,
        "port": port,
        "max_queued": max_queued,
        "max_queued_bytes": max_queued_mb << 20,
        "grace_seconds": grace,
        "keep_seconds": None if keep_days is None else keep_days * 86_400,
        "keep_bytes": None if keep_mb is None else keep_mb << 20,
    }
    config = _config(settings, token_file)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from kerneldojo.integrations.openenv import openenv_router, read_config
    from kerneldojo.service import serve

    try:
        routers = (partial(openenv_router, config=read_config(openenv, devices)),)
        serve(config, open_executor(executor, devices), announce=lambda url: say(f"serving on {url}"), routers=routers)
    except ValueError as error:
        raise BadUsage(str(error)) from error


def _config(settings: dict[str, Any], token_file: Path | None) -> ServiceConfig:
    from pydantic import ValidationError

    from kerneldojo.service import ServiceConfig
    from kerneldojo.service.tokens import ENVIRONMENT, parse_tokens, read_tokens

    try:
        # Taken out of the environment, so that no process that judges inherits it.
        text = os.environ.pop(ENVIRONMENT, "")
        tokens = read_tokens(token_file) if token_file is not None else parse_tokens(text)
        return ServiceConfig(**settings, tokens=tokens)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadUsage(str(first["msg"]).removeprefix("Value error, ")) from None
    except ValueError as error:
        raise BadUsage(str(error)) from None


def open_executor(name: str, devices: list[str]) -> Executor:
    """The executor that `--executor` names.

    Raises:
        BadUsage: there is none of that name, or it has no such device.
    """
    module_name, colon, function_name = name.partition(":")
    try:
        if colon:
            return _made(getattr(importlib.import_module(module_name), function_name), devices)
        if name not in ("local", "ray"):
            raise BadUsage(f"{name!r} is none of local, ray, MODULE:FUNCTION")
        require_judge()
        from kerneldojo.pool import open_pool

        return open_pool(name, devices=devices)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise BadUsage(f"cannot open the executor {name}: {error}") from error


def _made(factory: Any, devices: list[str]) -> Executor:
    """What a function of the user's own makes of the devices; raises ValueError if it is no such function."""
    try:
        inspect.signature(factory).bind(devices)
    except TypeError as error:
        raise ValueError(f"it is no function of the list of devices: {error}") from None
    made = factory(devices)
    missing = [name for name in ("num_slots", "submit", "devices", "close") if not hasattr(made, name)]
    if missing:
        raise ValueError(f"what it made is no executor: {type(made).__name__} has no {missing[0]}")
    return cast("Executor", made)


def _require_service() -> None:
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise BadUsage(f"serving needs {package}, which is not installed: install kerneldojo[service]")
