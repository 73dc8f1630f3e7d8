"""What goes into the judge: a problem, and a candidate that claims to solve it faster."""

from __future__ import annotations

from typing import Literal

from kerneldojo.schema.base import Frozen, content_hash

SourceLanguage = Literal["triton", "cuda"]
"""Languages that a candidate can be written in; each is one module of `kerneldojo.languages`."""

MAX_SOURCE_BYTES = 1 << 20
"""Longest candidate source that is looked at; a longer one is a `compile_error`."""


class Problem(Frozen):
    """A PyTorch module to be made faster, in KernelBench's format.

    `source` defines `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`.
    """

    name: str
    """Unique within its suite, for example `softmax_rows`."""
    source: str
    """Python source in KernelBench's format."""
    suite: str = "request"
    """Where it comes from: `katas`, `kernelbench`, `graphs`, or `request` for one that came with a request."""
    level: int | None = None
    """KernelBench's level: 1 single operations, 2 fusions, 3 blocks, 4 whole models."""
    size: Literal["small", "full"] | None = None
    """Katas come in a small size (for `cpu` and `model:`) and a full one (for a GPU)."""
    irreducible: bool = False
    """Whether the FLOPs of the reference cannot be avoided, so that they bound the time from below."""
    notes: str = ""
    """What a reader should know; never shown to a candidate's author unless the prompt asks for it."""

    @property
    def hash(self) -> str:
        """Content hash of what is judged: the source alone."""
        return content_hash("problem", self.source)


class Candidate(Frozen):
    """An answer: a Python source that defines `class ModelNew`."""

    source: str
    """The whole source, imports and kernels included."""
    language: Literal["auto", "triton", "cuda"] = "auto"
    """`auto` reads the language off the source."""
    entry_point: str = "ModelNew"
    """Name of the class that answers the problem's `Model`."""

    @property
    def hash(self) -> str:
        """Content hash of everything that influences the verdict."""
        return content_hash("candidate", self.source, self.language, self.entry_point)
