"""Ids of many tasks: chosen by the caller, counted up behind a prefix, or nobody else's."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

PREFIX = re.compile("[A-Za-z0-9][A-Za-z0-9_.:@+=-]{0,179}")
"""A task's id without its last 20 characters, which are left for a dash and the number of the job."""


def new_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex


def checked(prefix: str | None) -> str | None:
    """The prefix that was given.

    Raises:
        ValueError: no id begins with it; said now, not at the first job whose number is too long, when others have been
            submitted.
    """
    if prefix and not PREFIX.fullmatch(prefix):
        told = repr(prefix[:40]) + ("..." if len(prefix) > 40 else "")
        raise ValueError(f"a prefix has letters, digits and _.:@+=-, at most 180, the first no mark: not {told}")
    return prefix


def ids_of(number: int, ids: Sequence[str] | None, prefix: str | None) -> list[str]:
    """Ids for so many jobs: those given, `PREFIX-0`, `PREFIX-1`, ..., or new ones.

    Raises:
        ValueError: there are others than jobs, one is there twice, both were given, or no id begins with the prefix.
    """
    if ids is None:
        named = checked(prefix)
        return [f"{named}-{index}" if named else new_id() for index in range(number)]
    if prefix is not None:
        raise ValueError("give the tasks' ids or a prefix of them, not both")
    if isinstance(ids, str) or len(ids) != number:
        raise ValueError(f"{number} jobs need as many ids: not {'a text' if isinstance(ids, str) else len(ids)}")
    if len(set(ids)) < number:
        raise ValueError("an id is there twice, and each names one task")
    return list(ids)
