"""Configurations: a TOML file, changed key by key on the command line, checked as a whole before anything starts.

    dojo train rl recipes/laptop-rl.toml --set steps=5 --set sampling.temperature=0.8 --set learning.prs=none

The word `none` (in the file too, as a string) stands for "off", since TOML has no null. A mistake is told in one line
that names its key: a run that would fail after an hour for a misspelt key fails in the first second.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from kerneldojo.schema import Frozen

Config = TypeVar("Config", bound=Frozen)


TYPE = re.compile(r"[\[(]|^(?:str|int|float|bool)$|Config$")
"""What is no key in the place of a mistake: `function-after[...]`, `str-enum[Status]`, `NewModelConfig`."""
IN_TOML = (
    (re.compile(r"dictionary or (?:object to extract fields from|instance of \w+)"), "table"),
    (re.compile(r"valid tuple"), "valid list"),
    (re.compile(r"^Tuple"), "List"),
    (
        re.compile(r"Unable to extract tag using discriminator '(\w+)'"),
        r"\1 is missing, which says what the others mean",
    ),
    (re.compile(r"Input tag ('.*') found using '(\w+)' does not match any of the expected tags:"), r"\2 \1 is none of"),
)
"""What the library says, and what it is called in a file."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the text is one line that names the key."""


def load_config(kind: type[Config], path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read `path`, apply `overrides` (each `dotted.key=value`) and check everything.

    Raises:
        ConfigError: an unreadable file, bad TOML, a bad override, an unknown key or a bad value, in one line.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from error
    for override in overrides:
        apply_override(table, override)
    try:
        return kind.model_validate(_without_none(table))
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_error(error, table)}") from error


def first_error(error: ValidationError, table: Any) -> str:
    """The first mistake that pydantic found in `table`, as `key: what is wrong`, and how many more there are."""
    mistakes = error.errors(include_url=False)
    mistake = mistakes[0]
    # Beside keys the place has names of Python's types, one for each that was tried: they share one mistake.
    keys = [".".join(part for part in _keys(one["loc"], table) if not TYPE.search(part)) for one in mistakes]
    key, found = keys[0], set(keys)
    others = [one for one in found - {key} if not any(other.startswith(f"{one}.") for other in found)]
    words = "unknown key" if mistake["type"] == "extra_forbidden" else mistake["msg"].removeprefix("Value error, ")
    for pattern, word in IN_TOML:
        words = pattern.sub(word, words)
    shown = repr(mistake["input"])
    given = f" (given: {shown})" if mistake["type"] != "missing" and len(shown) <= 60 else ""
    more = f"; and {len(others)} more" if others else ""
    return " ".join(f"{key + ': ' if key else ''}{words}{given}{more}".split())


def _keys(place: Iterable[int | str], table: Any) -> list[str]:
    """A place without the word that a table's `type` has for it: of `learning.advantage.grpo.std` the file has no
    `grpo`."""
    found: list[str] = []
    for part in place:
        inner = cast("dict[Any, Any]", table) if isinstance(table, dict) else {}
        if part not in inner and inner.get("type") == part:
            continue
        found.append(str(part))
        table = inner.get(part)
    return found


def apply_override(table: dict[str, Any], override: str, option: str = "--set") -> None:
    """Set one `dotted.key=value` in `table`; the value is TOML where it can be read as such, else a string.

    Raises:
        ConfigError: it is no such pair, or leads into a value; one line that names the `option` it came by.
    """
    key, equals, text = override.partition("=")
    parts: Sequence[str] = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{option} {override}: expected dotted.key=value")
    for depth, part in enumerate(parts[:-1]):
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{option} {override}: {'.'.join(parts[: depth + 1])} is a value, not a table")
        table = cast("dict[str, Any]", inner)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table[parts[-1]] = value


def _without_none(value: Any) -> Any:
    """`value` with every string `none` replaced by None."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_without_none(item) for item in cast("list[Any]", value)]
    return None if value == "none" else value
