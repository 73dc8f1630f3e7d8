"""A hosted source before it is a module: as a file holds it, and whether it is Python at all."""

from __future__ import annotations

import importlib.machinery
import time
from types import CodeType
from typing import Any

from kerneldojo.contestant.failure import describe


def parse(command: dict[str, Any], file: str) -> dict[str, Any]:
    """See whether a source is Python at all, exactly as importing it would, without running any of it."""
    started = time.perf_counter()
    result: dict[str, Any] = {}
    try:
        compiled(command["source"], file)
    except BaseException as error:
        result = {"failure": describe(error, file, "compile_error")}
    return {**result, "number": command["number"], "seconds": time.perf_counter() - started}


def compiled(source: str, file: str) -> CodeType:
    """A module's code, as importing it from a file would compile it; raises what that would."""
    return importlib.machinery.SourceFileLoader("candidate", file).source_to_code(as_bytes(source), file)


def as_bytes(source: str) -> bytes:
    """A source as its file holds it; what is no text stays what it was."""
    return source.encode("utf-8", errors="surrogatepass")
