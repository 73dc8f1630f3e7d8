"""What every noun shares: frozen, validated, and cheap to import; and the hash by which content is known."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator


class Frozen(BaseModel):
    """Base of every noun: immutable, unknown fields refused, attribute docstrings kept as field descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="null")


class Settings(Frozen):
    """Base of what people write down for a run: a number is finite, and `true` is none, though pydantic takes it for 1.

    A rate that is infinite, or steps that are `true`, would be found out hours later, if at all.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, values: Any) -> Any:
        """Truth values as words, which a truth value may be given as, and a number may not."""
        if not isinstance(values, dict):
            return values
        given = cast("dict[Any, Any]", values)
        return {key: str(value).lower() if isinstance(value, bool) else value for key, value in given.items()}


def writable(text: str) -> str:
    """`text` as UTF-8 can hold it: halves of a character (surrogates) that belong together are joined, others replaced.

    An endpoint that streams may cut an emoji in two, JSON can spell half of one, and so may a candidate in what it
    raises. No file takes that.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


WrittenText = Annotated[str, AfterValidator(writable)]
"""Text from outside: of an endpoint, or of code under test."""


def at_home(path: str) -> str:
    """`path` with a `~` at its beginning replaced by a home; raises ValueError where that is nobody's."""
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        raise ValueError(f"{path}: there is no such home") from None


def _placed(told: Any) -> Any:
    # Empty it would be the folder one stands in: `--set output=$FOLDER` where there is no $FOLDER.
    if isinstance(told, str) and not told.strip():
        raise ValueError("is empty")
    return at_home(str(told)) if isinstance(told, str | Path) else told


NamedPath = Annotated[Path, BeforeValidator(_placed)]
"""A path in what people write down for a run. It is not empty, and begins at home where it begins with `~`: no shell
has seen it."""


def content_hash(*parts: str) -> str:
    """SHA-256 over `parts`, each length-prefixed so that no two lists of parts collide; 64 hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
