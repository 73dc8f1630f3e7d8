"""A policy as several commands take it: a name, and fields of its settings by `--policy-option KEY=VALUE`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneldojo.cli.arguments import BadUsage, mendable

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
        return open_policy(spec, **settings_of(options or ()))


def settings_of(options: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` pairs as nested settings: a dot in a key leads into a table, a value is JSON or else plain text.

    Raises:
        BadUsage: one of them is no pair, or leads into what is no table.
    """
    found: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        *tables, last = key.split(".")
        if not equals or not all((*tables, last)):
            raise BadUsage(f"--policy-option {option!r} is not KEY=VALUE")
        place = found
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise BadUsage(f"--policy-option {option!r}: {table} has a value already")
        place[last] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
