"""A policy as several commands take it: a name, and fields of its settings by `--policy-option KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneldojo.cli.arguments import mendable

if TYPE_CHECKING:
    from kerneldojo.policies import Policy

PolicyOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-option",
        help="A field of the policy's settings, for example input_price=0.15, streaming=true, concurrency=16 or "
        "tokenizer=FOLDER; may be repeated.",
        metavar="KEY=VALUE",
    ),
]


def opened(spec: str, options: Sequence[str] | None) -> Policy:
    """The policy that `spec` names, with its settings.

    Raises:
        BadUsage: there is no such policy or setting.
    """
    from kerneldojo.policies.registry import open_policy

    with mendable(ValueError):
        return open_policy(spec, **_settings(options))


def opened_as(spec: str, options: Sequence[str] | None) -> dict[str, str]:
    """What of `spec` and its settings decides the answers beside the policy's name: a run goes on under equal ones."""
    from kerneldojo.policies.registry import deciding

    with mendable(ValueError):
        return deciding(spec, _settings(options))


def _settings(options: Sequence[str] | None) -> dict[str, Any]:
    from kerneldojo.training.settings import apply_override

    settings: dict[str, Any] = {}
    for option in options or ():
        apply_override(settings, option, "--policy-option")
    return settings
