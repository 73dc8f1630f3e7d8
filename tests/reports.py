"""What a worker of pytest-xdist sends of a failed test, fit to be sent.

Reports travel as UTF-8. A failed comparison of texts quotes them as they are, and one with half a character, which
candidates and models may well write, cannot be sent: the worker would die of it, and the test's name with it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    return spelled_out((yield))


def spelled_out(value: Any) -> Any:
    """`value` with halves of characters as Python writes them (`\\ud800`), at any depth."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {spelled_out(key): spelled_out(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(spelled_out, value))
    return value
