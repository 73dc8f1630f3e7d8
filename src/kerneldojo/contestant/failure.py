"""What may be said about an exception that hostile code raised.

The text reaches the candidate's author, who may be a policy that learns to read through it. So only this is passed on:
the type's name if it is a well-known one, the message if it was raised below the candidate's own code (by torch,
Triton, a compiler) and is short, and the candidate's own line, which its author knows. What the candidate itself put
into an exception at run time is not repeated: the source line says what an honest author needs.
"""

from __future__ import annotations

import builtins
import re
import traceback
from typing import Literal, TypedDict

import torch

MAX_TEXT = 800

Kind = Literal["compile_error", "runtime_error", "out_of_memory", "unsupported_on_device"]


class Failure(TypedDict):
    """How a stage failed, as it crosses to the judge."""

    kind: Kind
    text: str


KNOWN_PACKAGES = ("torch", "triton", "numpy", "builtins")


def describe(error: BaseException, candidate_file: str, stage: Kind) -> Failure:
    """Say what happened, without anything that the candidate could have smuggled in.

    Args:
        error: what was raised, with its traceback.
        candidate_file: path of the candidate's source.
        stage: the kind that applies when the exception itself does not tell.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == candidate_file]
    kind = _kind(error, stage)
    parts = [_type_name(error)]
    raised_by_candidate = bool(frames) and bool(own) and frames[-1].filename == candidate_file and not _is_c_call(error)
    if isinstance(error, SyntaxError) and error.filename == candidate_file:
        parts = [f"SyntaxError: {_clean(error.msg)} (line {error.lineno})"]
    elif not raised_by_candidate or _is_lookup(error):
        parts.append(f": {_clean(str(error))}")
    if own:
        line = (own[-1].line or "").strip()
        parts.append(f" (line {own[-1].lineno}: {_clean(line, 160)})")
    return {"kind": kind, "text": "".join(parts)[:MAX_TEXT]}


def _kind(error: BaseException, stage: Kind) -> Kind:
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "out_of_memory"
    if type(error).__name__ == "UnsupportedOnDevice" and type(error).__module__.startswith("kerneldojo."):
        return "unsupported_on_device"
    if isinstance(error, CompilationError | OutOfResources):
        return "compile_error"
    return stage


def _type_name(error: BaseException) -> str:
    kind = type(error)
    if getattr(builtins, kind.__name__, None) is kind or kind.__module__.split(".")[0] in KNOWN_PACKAGES:
        return kind.__name__
    return "an exception of the candidate's own"


def _is_lookup(error: BaseException) -> bool:
    """Errors whose message the interpreter wrote: a name or attribute that does not exist."""
    return type(error) in (NameError, AttributeError, ImportError, ModuleNotFoundError, UnboundLocalError)


def _is_c_call(error: BaseException) -> bool:
    """Whether a built-in function below the candidate's last line may have raised it, so that the text is not its own.

    A built-in leaves no frame of its own. Its messages are told from a `raise` statement by the source line.
    """
    frames = traceback.extract_tb(error.__traceback__)
    line = (frames[-1].line or "").strip() if frames else ""
    return not re.search(r"\braise\b|\bassert\b|exec|eval|throw", line)


def _clean(text: str, limit: int = 500) -> str:
    """Printable, short, on as few lines as it had."""
    text = "".join(char if char.isprintable() or char == "\n" else "?" for char in text[: 4 * limit])
    return text if len(text) <= limit else text[: limit // 2] + " [...] " + text[-limit // 2 :]
