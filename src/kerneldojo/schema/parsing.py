"""Parsing Python, one thread at a time.

Python 3.11 keeps the nesting depth of the tree that it builds in one place for everybody: two threads that parse at
once miscount each other, and so does a finaliser that parses in the middle of it (a traceback that is formatted does,
where a garbage collection happens to log one). The loser gets a `SystemError` for good source. So everything that may
run beside another thread parses here.
"""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
_NUM_TRIES = 3


def parse_python(source: str) -> ast.Module:
    """`ast.parse`, and what it raises."""
    with _ONE_AT_A_TIME:
        for _ in range(_NUM_TRIES - 1):
            try:
                return ast.parse(source)
            except SystemError:
                continue  # Somebody else's count: never the source's fault.
        return ast.parse(source)
