"""Which headers a source is compiled against: bare ones, brief ones, slim ones, or torch's own.

torch's umbrella headers are what an extension's build time goes to, and few sources need a tenth of what they declare.
So `include` has others of the same names, that come before them in the search path: *slim* ones, which include less of
torch's own, and for the CUDA half *brief* ones, in which a tensor is declared and no more (`brief`), and *bare* ones
under these, which know nothing of its elements either (`bare`). A source that needs more than one has does not compile
against it, and is compiled against the next; only what torch's own headers have to say is a verdict. Where a source
says beforehand what it needs, it does not come to that.
"""

from __future__ import annotations

import re
from pathlib import Path

from kerneldojo.devices.cuda.brief import FUNCTIONS

HEADERS = Path(__file__).with_name("include")
SLIM, BRIEF, BARE = HEADERS / "slim", HEADERS / "brief", HEADERS / "bare"

BINDS = "-DDOJO_BINDS"
_SAID = {
    BINDS: re.compile(r"\bpy::|pybind|PYBIND|\bPy[A-Z_]|THP[A-Z]"),
    "-DDOJO_LISTS": re.compile(r"\b(?:cat|stack|concat|I?TensorList\w*)\b"),
    "-DDOJO_INDEXES": re.compile(r"\.index(?:_put_)?\s*\(|\bindexing::"),
}
"""What a source says that wants more of the slim headers: it binds to Python, takes lists of tensors, or indexes."""

_INCLUDES = re.compile(r'^\s*#\s*include\s*[<"]((?:torch|ATen|c10|caffe2|pybind11)/[^>"]*|Python\.h)[>"]', re.MULTILINE)
_BESIDE_BRIEF = frozenset(
    {
        *("ATen/AccumulateType.h", "ATen/Dispatch.h", "ATen/OpMathType.h", "c10/core/ScalarType.h"),
        *("c10/cuda/CUDAException.h", "c10/cuda/CUDAMathCompat.h", "c10/macros/Macros.h", "c10/util/ArrayRef.h"),
        *("c10/util/BFloat16.h", "c10/util/Exception.h", "c10/util/Half.h", "c10/util/Optional.h"),
    }
)
"""torch's own headers that know no tensor, and so get on with the brief ones."""

_BINDS_FUNCTIONS = re.compile(r"PYBIND11_MODULE|\bwrap_pybind_function\b")
_QUALIFIED = re.compile(r"\b(?:torch|at|c10)::(?:cuda::)?(\w+)")
_WITHIN_BARE = frozenset(
    {
        *("ArrayRef", "Device", "DeviceIndex", "DeviceType", "IntArrayRef", "Layout", "MemoryFormat", "ScalarType"),
        *("Tensor", "TensorOptions", "nullopt", "optional"),
        *("device", "dtype", "layout", "requires_grad"),
        *({*FUNCTIONS} - {"full", "full_like"}),  # These take scalars.
        *("CUDAGuard", "CUDAStream", "OptionalCUDAGuard", "getCurrentCUDAStream", "getDefaultCUDAStream"),
        *("getStreamFromPool", "setCurrentCUDAStream"),
        *("kBool", "kByte", "kCPU", "kCUDA", "kChar", "kDouble", "kFloat", "kFloat16", "kFloat32", "kFloat64", "kHalf"),
        *("kInt", "kInt16", "kInt32", "kInt64", "kInt8", "kLong", "kShort", "kStrided", "kUInt8", "kBFloat16"),
    }
)
"""What the bare headers have of torch's namespaces."""
_BEYOND_BARE = re.compile(
    r"\bAT_(?!CUDA_CHECK\()|\bTORCH_(?!CHECK\(|EXTENSION_NAME)|\bC10_(?!CUDA_CHECK\(|CUDA_KERNEL_LAUNCH_CHECK)"
    r"|accessor\w*\s*<|\b(?:fill_|item)\s*[(<]"
)
"""Macros, templates and members that the bare headers leave out."""


def read(source: Path) -> str:
    """The text of a source; empty if there is none, for the compiler will say so."""
    return source.read_text("utf-8", "replace") if source.is_file() else ""


def wants(text: str) -> list[str]:
    """What tells the slim headers how much of torch a source needs."""
    return [flag for flag, words in _SAID.items() if words.search(text)]


def binds_bare(text: str) -> bool:
    """Whether a C++ source seems to bind functions as most do, and no more."""
    return suits_bare(_BINDS_FUNCTIONS.sub("", text))


def suits_bare(text: str) -> bool:
    """Whether even the bare headers may be enough for it."""
    return (
        suits_brief(text)
        and _WITHIN_BARE.issuperset(_QUALIFIED.findall(text))
        and not _BEYOND_BARE.search(text)
        and all((BARE / header).is_file() or (BRIEF / header).is_file() for header in _INCLUDES.findall(text))
    )


def suits_brief(text: str) -> bool:
    """Whether the brief headers may well be enough for a CUDA source."""
    return not wants(text) and all(
        (BRIEF / header).is_file() or header in _BESIDE_BRIEF for header in _INCLUDES.findall(text)
    )
