"""Parsing Python, one thread at a time.

Python 3.11 keeps the nesting depth of the tree that it builds in one place for all threads: two that parse at once
miscount each other, and one of them gets a `SystemError` for good source. So everything that may run beside another
thread parses here.
"""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse_python(source: str) -> ast.Module:
    """`ast.parse`, and what it raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)
