"""What one call made a device do: the launches and library operations that a modelled device prices.

A `Work` is counted inside the process that runs hostile code, so it is a *claim*. It crosses to the judge as plain
JSON and is validated there: every number finite, non-negative and bounded, every list short. Nothing here imports
torch or triton.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kerneldojo.schema import Frozen, content_hash

Precision = Literal["fp64", "fp32", "tf32", "fp16", "fp8", "int8"]
"""Classes of arithmetic with a peak rate of their own; `fp16` stands for bfloat16 too."""

Pattern = Literal["elementwise", "reduction", "product", "convolution", "attention", "other", "outside"]
"""How an operation touches its data, which decides how well a library does it and what a compiler can fuse. `outside`
is no operation: bytes that counted work read, or the caller got, and that no counted work had written."""

Count = Annotated[int, Field(ge=0, le=1 << 62)]
Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=200)]

MAX_WORKS = 20_000
"""A call with more launches than this is not priced: 100 times what any problem of ours needs."""


SECTOR_BYTES = 32
"""What the L2 and DRAM deal in: less is never moved."""


class Traffic(Frozen):
    """Bytes of one storage that one work moves. Storages are numbered in the order in which they were first seen."""

    storage: Count
    num_bytes: Count

    @property
    def sector_bytes(self) -> int:
        """The same in whole sectors, all of them in one piece."""
        return -(-self.num_bytes // SECTOR_BYTES) * SECTOR_BYTES


class Flops(Frozen):
    """Floating-point operations in one class of arithmetic, on the matrix units (or as fused multiply-adds)."""

    precision: Precision
    flops: Amount


class Work(Frozen):
    """One kernel launch of the candidate's own, or one operation of the library."""

    own: bool
    """Whether it was launched through Triton (by the kernel object), not dispatched by torch."""
    name: Name
    """For display only; nothing is decided by it."""
    identity: Count = 0
    """Own kernels: which kernel object, numbered by first launch. Two kernels of one name have two identities."""
    specialization: Name = ""
    """Own kernels: key of the `Specialization` it was launched with."""
    pattern: Pattern = "other"
    grid: tuple[Count, Count, Count] = (1, 1, 1)
    num_programs: Count = 1
    """Program instances (blocks) of the launch."""
    num_warps: Count = 4
    num_launches: Count = 1
    """Kernels that a GPU would launch for it."""
    reads: tuple[Traffic, ...] = Field(default=(), max_length=4096)
    """Distinct bytes read, by storage."""
    writes: tuple[Traffic, ...] = Field(default=(), max_length=4096)
    """Distinct bytes written, by storage."""
    accessed_bytes: Count = 0
    """All bytes moved between the multiprocessors and the L2, re-reads included, in whole 32-byte sectors."""
    products: tuple[Flops, ...] = Field(default=(), max_length=8)
    """Multiplications of matrices (`tl.dot`, products, convolutions), 2 FLOPs a multiply-add."""
    operand_bytes: Count = 0
    """Own kernels: bytes of the operands of every `tl.dot`, which pass through shared memory."""
    arithmetic: Amount = 0
    """Other floating-point operations, one each."""
    special: Amount = 0
    """Of these, transcendental ones (exponentials, roots, divisions), which a special unit does at a lower rate."""

    @property
    def read_bytes(self) -> int:
        """Distinct bytes read."""
        return sum(item.num_bytes for item in self.reads)

    @property
    def written_bytes(self) -> int:
        """Distinct bytes written."""
        return sum(item.num_bytes for item in self.writes)

    @property
    def product_flops(self) -> float:
        """FLOPs of all classes."""
        return math.fsum(item.flops for item in self.products)


class Constant(Frozen):
    """A compile-time argument, tagged so that it survives JSON and is rebuilt without evaluating anything."""

    kind: Literal["int", "float", "bool", "str", "none", "dtype", "function", "tuple"]
    text: Annotated[str, Field(max_length=2000)] = ""
    """Decimal digits, `float.hex()`, `true`/`false`, the string, a dtype's Triton name, or `module:qualname:line`."""
    items: tuple[Constant, ...] = Field(default=(), max_length=64)


class Argument(Frozen):
    """One parameter of a kernel under a specialization."""

    name: Name
    type: Annotated[str, Field(max_length=400, pattern=r"^[\w*<>\[\],.()\s:-]*$")]
    """Triton's type, such as `*fp32`, `i32`, `constexpr` or `tensordesc<fp16[64,64]>`."""
    constant: Constant | None = None
    """Its value where `type` is `constexpr`."""
    aligned: bool = False
    """Whether it is a multiple of 16, which the compiler may use."""
    items: tuple[Argument, ...] = Field(default=(), max_length=64)
    """Of a tuple, where `type` is `tuple`."""


class KernelName(Frozen):
    """Where a kernel is defined: enough to find it again in another process that imported the same source."""

    module: Name
    qualname: Name
    line: Count


class Configuration(Frozen):
    """One choice of an autotuner: compile-time arguments and launch options."""

    constants: dict[Name, Constant] = Field(default_factory=dict, max_length=64)
    options: dict[Name, int | bool | None] = Field(default_factory=dict, max_length=16)
    """`num_warps`, `num_stages`, `num_ctas`, `maxnreg`."""


class Specialization(Frozen):
    """Everything that the compiler needs to build one kernel as it was launched."""

    kernel: KernelName
    arguments: tuple[Argument, ...] = Field(max_length=512)
    options: dict[Name, int | bool | None] = Field(default_factory=dict, max_length=16)
    alternatives: tuple[Configuration, ...] = Field(default=(), max_length=512)
    """All configurations of an autotuned kernel; empty for others. A kernel builds if one of them does."""

    @property
    def key(self) -> str:
        """Short content hash that a `Work` refers to."""
        return content_hash("specialization", json.dumps(self.model_dump(mode="json"), sort_keys=True))[:24]


class Compiled(Frozen):
    """What became of a specialization when it was compiled for a target."""

    specialization: Name
    kernel: Name
    error: Annotated[str, Field(max_length=4000)] | None = None
    """Why no configuration could be built, in a few lines that name the candidate's source line; None if one could."""
    is_found: bool = True
    """False for a kernel that only running the candidate defines (inside a function, say): it was not compiled."""
    registers: Count | None = None
    """Registers of a thread."""
    spilled_bytes: Count | None = None
    """Stack of a thread in bytes; zero unless registers spilled."""
    shared_bytes: Count | None = None
    """Shared memory of a block in bytes."""
    num_warps: Count | None = None
    cubin_sha256: Name = ""
    num_failed: Count = 0
    """Configurations of the autotuner that were tried and could not be built."""

    @model_validator(mode="after")
    def _error_or_result(self) -> Compiled:
        if (self.error is None and self.is_found) != bool(self.cubin_sha256):
            raise ValueError("a kernel that was found has either an error or a cubin")
        return self


def parse_works(claims: list[dict[str, Any]]) -> list[Work]:
    """Validate what a contestant says it did.

    Raises:
        ValueError: too many, or one that is not a `Work` (pydantic's `ValidationError` is a `ValueError`).
    """
    if len(claims) > MAX_WORKS:
        raise ValueError(f"{len(claims)} launches in one call; at most {MAX_WORKS} are priced")
    return [Work.model_validate_json(json.dumps(claim)) for claim in claims]
