"""What may be said about an exception that hostile code raised.

The text reaches the candidate's author, who may be a policy that learns to read through it. So only this is passed on:
the type's name if it is a well-known one, the message if it was raised below the candidate's own code (by torch,
Triton, a compiler) and is short, and the number of the candidate's own line. What the candidate itself put into an
exception at run time is not repeated: its source line, which its author knows, says what an honest author needs.
"""

from __future__ import annotations

import dis
import re
import sys
import traceback
from pathlib import Path

import torch

from kerneldojo.contestant.kinds import Failure, Kind

MAX_TEXT = 800
_ARGUMENTS = re.compile(r"\s*\n+Invoked with:.*", re.DOTALL)
"""What a function of an extension was called with: thousands of numbers, and whatever else the candidate chose."""
_FOLDERS = re.compile(r"/(?:[^\s/:'\"]+/)*dojo-[^\s:'\"]*/")
"""Folders of a verdict: their names are drawn, and say nothing."""

TOLD_PACKAGES = ("torch", "triton", "numpy", "kerneldojo")
"""Packages whose own messages are passed on."""


def describe(error: BaseException, candidate_file: str, stage: Kind) -> Failure:
    """Say what happened, without anything that the candidate could have smuggled in.

    Args:
        error: what was raised, with its traceback.
        candidate_file: path of the candidate's source.
        stage: the kind that applies when the exception itself does not tell.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == candidate_file]
    is_told = _is_told(error, frames, candidate_file)
    parts = [_type_name(error)]
    if isinstance(error, SyntaxError) and error.filename == candidate_file:
        parts = [f"SyntaxError: {_clean(error.msg)}"]
    elif is_told:
        parts.append(f": {_clean(str(error))}")
    at = own[-1].lineno if own else getattr(error, "lineno", None)
    kind = _kind(error, stage, is_told=is_told)
    return {"kind": kind, "text": "".join(parts)[:MAX_TEXT], "line": at if isinstance(at, int) else 0}


def _is_told(error: BaseException, frames: traceback.StackSummary, candidate_file: str) -> bool:
    """Whether the message was written by a library or the interpreter rather than by the candidate."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return False
    if not frames:
        return True
    innermost = frames[-1]
    if innermost.filename == candidate_file:
        # A built-in function leaves no frame of its own: what it says is told from a `raise` by the instruction.
        return not _raised_by_statement(error)
    if type(error) in LOOKUPS and innermost.filename.startswith("<frozen importlib"):
        return True
    parts = Path(innermost.filename).parts
    return any(package in parts for package in TOLD_PACKAGES)


def _raised_by_statement(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


LOOKUPS = (NameError, AttributeError, ImportError, ModuleNotFoundError, UnboundLocalError)
"""Errors whose message the interpreter wrote: a name or attribute that does not exist."""


OUT_OF_DEVICE_MEMORY = ("CUDA out of memory", "CUDA error: out of memory", "Triton Error [CUDA]: out of memory")
"""How the device's allocators begin to say it: ours (`heap.cpp`) and torch's, the runtime through torch, Triton."""


def _kind(error: BaseException, stage: Kind, *, is_told: bool) -> Kind:
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    if isinstance(error, torch.OutOfMemoryError):
        return "out_of_device_memory"
    if is_told and isinstance(error, RuntimeError) and str(error).startswith(OUT_OF_DEVICE_MEMORY):
        return "out_of_device_memory"
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if type(error) is RuntimeError and "can't allocate memory" in str(error)[:200]:  # torch's host allocator
        return "out_of_memory"
    if is_told and type(error).__name__ == "UnsupportedOnDevice" and type(error).__module__.startswith("kerneldojo."):
        return "unsupported_on_device"
    if isinstance(error, CompilationError | OutOfResources):
        return "compile_error"
    return stage


def _type_name(error: BaseException) -> str:
    kind = type(error)
    home = sys.modules.get(str(kind.__module__))
    told = str(kind.__module__).partition(".")[0] in (*TOLD_PACKAGES, "builtins")
    if told and getattr(home, kind.__name__, None) is kind:  # A class can lie about its module.
        return kind.__name__
    return "an exception of the candidate's own"


def _clean(text: str, limit: int = 500) -> str:
    """Printable, short, on as few lines as it had, and without what differs from call to call."""
    text = _FOLDERS.sub("", _ARGUMENTS.sub("", text))
    text = "".join(char if char.isprintable() or char == "\n" else "?" for char in text[: 4 * limit])
    return text if len(text) <= limit else text[: limit // 2] + " [...] " + text[-limit // 2 :]
