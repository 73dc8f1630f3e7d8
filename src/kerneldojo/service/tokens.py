"""Bearer tokens: who may ask, and under which name their work is queued.

A file has one token a line, `NAME:TOKEN` or just `TOKEN`; empty lines and lines that start with `#` are skipped. A
client sees its own tasks and nobody else's; one called `admin`, or one that is alone, sees all. Only hashes of tokens
are kept in memory, comparisons take the same time whatever is presented, and no token is ever logged.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from kerneldojo.schema import Frozen

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What a client may be called."""

ADMIN = "admin"
"""The client that sees every task: for dashboards, and for whoever has to clean up."""

MIN_LENGTH = 16
"""Shortest token that is taken: a shorter one can be guessed."""

ENVIRONMENT = "KERNELDOJO_TOKENS"
"""Environment variable that may hold the lines of a token file."""


class Token(Frozen):
    """One token, known by its hash."""

    client: str = Field(pattern=NAME.pattern)
    """Name under which the bearer's work is queued."""
    digest: bytes = Field(repr=False)
    """SHA-256 of the token."""


def parse_tokens(text: str) -> tuple[Token, ...]:
    """The tokens in the lines of `text`.

    Raises:
        ValueError: a line is not a token, or is too short (the line's number is named, never its content).
    """
    tokens: list[Token] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, secret = line.partition(":")
        if not colon:
            name, secret = "default", line
        if not NAME.fullmatch(name):
            raise ValueError(f"token line {number}: a name has letters, digits, dots, dashes and underscores")
        if len(secret) < MIN_LENGTH or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise ValueError(f"token line {number}: a token has at least {MIN_LENGTH} printable characters, no spaces")
        tokens.append(Token(client=name, digest=_digest(secret.encode())))
    return tuple(tokens)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens in a file.

    Raises:
        ValueError: it cannot be read, a line is not a token, or there is none.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"cannot read the token file {path}: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    tokens = parse_tokens(text)
    if not tokens:
        raise ValueError(f"the token file {path} holds no token")
    return tokens


def find_client(tokens: Iterable[Token], presented: bytes) -> str | None:
    """Name of the client whose token was presented; None if it is nobody's. Takes the same time for every answer."""
    digest = _digest(presented)
    found: str | None = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest) and found is None:
            found = token.client
    return found


def sees_all(tokens: Iterable[Token], client: str) -> bool:
    """Whether the tasks of every client are this one's to see: it is the administrator, or there is nobody else."""
    return client == ADMIN or all(token.client == client for token in tokens)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
