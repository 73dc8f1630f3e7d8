"""Several things at once, where the first failure is everybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def all_of(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all of them; what the first one to fail raises is raised as it is, and the others are cancelled for it."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in coroutines:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
