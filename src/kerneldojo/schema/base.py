"""What every noun shares: frozen, validated, and cheap to import; and the hash by which content is known."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of every noun: immutable, unknown fields refused, attribute docstrings kept as field descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="null")


def content_hash(*parts: str) -> str:
    """SHA-256 over `parts`, each length-prefixed so that no two lists of parts collide; 64 hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
