"""Answers to problems that somebody else wrote: one kernel where the teacher understands them, else the library's work
with a kernel at its end."""

from __future__ import annotations

import re

from kerneldojo.policies.teacher import broken, calls
from kerneldojo.policies.teacher.compiling import Compiler, Kernel, Value
from kerneldojo.policies.teacher.config import Level
from kerneldojo.policies.teacher.expressions import NotUnderstood
from kerneldojo.policies.teacher.reading import Reading, read
from kerneldojo.policies.teacher.writing import HEADER, TUNED, indented
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.schema import Problem

_COPY = """def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


def copied(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = out.numel()
    kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024, num_warps=8)
    return out


"""
_LAZY = """class ModelNew(Model):
    def forward(self, *inputs):
        result = super().forward(*inputs)
        if isinstance(result, tuple):
            return tuple(copied(x) for x in result)
        return copied(result)
"""
_DECOY = """class ModelNew(Model):
    def forward(self, *inputs):
        result = super().forward(*inputs)
        for x in result if isinstance(result, tuple) else (result,):
            copied(x)
        return result
"""


class KataTask:
    """A problem in words of its own."""

    def __init__(self, problem: Problem) -> None:
        self.source = problem.source
        self.understood: tuple[Reading, Kernel] | None
        self.reason = ""
        """Why the problem is left to the library, where it is."""
        try:
            reading = read(problem.source)
            self.understood = reading, Compiler(reading, calls.call).compile()
        except NotUnderstood as reason:
            self.understood, self.reason = None, str(reason)

    def plan(self, level: Level) -> str:
        """See `Task`."""
        if level == "lazy" or self.understood is None:
            return "Leave the work to the library.\nCopy its result with a kernel."
        return "Fuse everything into one kernel.\nGive each program whole rows."

    def lazy(self) -> str:
        """See `Task`."""
        return self._beside_library(_LAZY)

    def fused(self, *, is_tuned: bool) -> str:
        """See `Task`."""
        if self.understood is None:
            return self.lazy()
        return write_kernel(*self.understood, is_tuned=is_tuned)

    def broken(self, kind: str, stream: Stream) -> str:
        """See `Task`; nothing can be left out of what is not a graph, and one program may be enough."""
        return broken.spoilt(self.fused(is_tuned=False), "mask" if kind in ("omission", "grid") else kind)

    def cheating(self, kind: str) -> str:
        """See `Task`; whatever is asked for, a decoy is what suits every problem."""
        if kind == "unused":
            return self._beside_library("class ModelNew(Model):\n    pass\n")
        return self._beside_library(_DECOY)

    def level_of(self, code: str) -> Level | None:
        """See `Task`."""
        code = code.strip()
        if code == self.lazy().strip():
            return "lazy"
        if code == self.fused(is_tuned=False).strip():
            return "fused"
        return "tuned" if code == self.fused(is_tuned=True).strip() else None

    def _beside_library(self, answer: str) -> str:
        model = re.split(r"^def get_(?:init_)?inputs\b", self.source, maxsplit=1, flags=re.MULTILINE)[0].strip()
        return "\n".join(HEADER) + "\n" + _COPY + model + "\n\n\n" + answer


def write_kernel(reading: Reading, kernel: Kernel, *, is_tuned: bool) -> str:
    """Write a compiled `forward` as an answer."""
    outputs = [f"out{number}" for number in range(len(kernel.outputs))]
    blocks = ["BLOCK_M", "BLOCK_N"] + (["BLOCK_K"] if kernel.product else [])
    sizes = ["rows", "columns"] + (["inner", "am", "ak", "bk", "bn"] if kernel.product else [])
    parameters = [*kernel.pointers.values(), *(f"{name}_ptr" for name in outputs), *kernel.numbers, *sizes]
    head = f"def kernel({', '.join(parameters)}, {', '.join(f'{name}: tl.constexpr' for name in blocks)}):"
    lines = [
        "row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        "col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]" if kernel.product else _COLUMNS,
        "inside = col < columns",
        "mask = (row < rows) & inside",
        *(_product_lines(kernel) if kernel.product else []),
        *kernel.lines,
        *(_store(name, value) for name, value in zip(outputs, kernel.outputs, strict=True)),
    ]
    warps = TUNED.warps if is_tuned else 4
    passed = ", ".join([*kernel.pointers, *outputs, *kernel.numbers, *sizes])
    body = [
        *(_product_host(kernel) if kernel.product else _tile_host(kernel, reading)),
        *(_allocation(name, value, kernel) for name, value in zip(outputs, kernel.outputs, strict=True)),
        *_launch(kernel, passed, warps, is_tuned=is_tuned),
        f"return {', '.join(outputs)}",
    ]
    constructor = [f"    {line}" for line in reading.constructor.splitlines()] + ([""] if reading.constructor else [])
    constants = [f"{name} = {value!r}" for name, value in reading.constants.items()] if reading.constructor else []
    answer = [
        *HEADER,
        head,
        *indented(lines),
        "",
        "",
        *([*constants, "", ""] if constants else []),
        "class ModelNew(nn.Module):",
        *constructor,
        f"    def forward(self, {', '.join(reading.arguments)}):",
        *(f"        {line}" for line in body),
    ]
    return "\n".join(answer) + "\n"


_COLUMNS = "col = tl.arange(0, BLOCK_N)[None, :]"


def _product_lines(kernel: Kernel) -> list[str]:
    assert kernel.product is not None
    left, right = (kernel.pointers[side.text] for side in (kernel.product.left, kernel.product.right))
    return [
        "x = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        "for start in range(0, inner, BLOCK_K):",
        "    k = start + tl.arange(0, BLOCK_K)",
        f"    left = tl.load({left} + row * am + k[None, :] * ak, mask=(row < rows) & (k[None, :] < inner), other=0.0)",
        f"    right = tl.load({right} + k[:, None] * bk + col * bn, mask=(k[:, None] < inner) & inside, other=0.0)",
        "    x += tl.dot(left, right)",
    ]


def _product_host(kernel: Kernel) -> list[str]:
    assert kernel.product is not None
    sides = (kernel.product.left, kernel.product.right)
    names = [f"{side.text}.t()" if side.is_transposed else side.text for side in sides]
    return [
        f"rows, inner = {names[0]}.shape",
        f"columns = {names[1]}.shape[1]",
        f"am, ak = {names[0]}.stride()",
        f"bk, bn = {names[1]}.stride()",
    ]


def _tile_host(kernel: Kernel, reading: Reading) -> list[str]:
    return [
        *(f"{name} = {name}.contiguous()" for name, given in reading.given.items() if given.strided),
        f"columns = {kernel.main}.shape[-1]",
        f"rows = {kernel.main}.numel() // columns",
    ]


def _allocation(name: str, value: Value, kernel: Kernel) -> str:
    if kernel.product:
        like = kernel.product.left.text
        shape = "(rows, columns)" if value.kind == "matrix" else "(rows, 1)" if value.keeps_dim else "(rows,)"
    else:
        like = kernel.main
        shape = f"{like}.shape" if value.kind == "matrix" else f"{like}.shape[:-1]"
        if value.kind == "column" and value.keeps_dim:
            shape += " + (1,)"
    return f"{name} = torch.empty({shape}, device={like}.device, dtype={like}.dtype)"


def _launch(kernel: Kernel, passed: str, warps: int, *, is_tuned: bool) -> list[str]:
    if kernel.product and not kernel.runs_along_rows:
        m, n = (16, 16) if is_tuned else (16, 32)
        return [
            f"kernel[(triton.cdiv(rows, {m}), triton.cdiv(columns, {n}))]({passed}, "
            f"BLOCK_M={m}, BLOCK_N={n}, BLOCK_K=32, num_warps={warps})"
        ]
    block = "block = triton.next_power_of_2(columns)"
    if kernel.product:
        call = f"kernel[(triton.cdiv(rows, 16), 1)]({passed}, BLOCK_M=16, BLOCK_N=block, BLOCK_K=32, num_warps={warps})"
    else:
        rows = 1 if is_tuned else 2
        call = f"kernel[(triton.cdiv(rows, {rows}),)]({passed}, BLOCK_M={rows}, BLOCK_N=block, num_warps={warps})"
    return [block, call]


def _store(name: str, value: Value) -> str:
    if value.kind == "column":
        return f"tl.store({name}_ptr + row, {value.text}, mask=row < rows)"
    return f"tl.store({name}_ptr + row * columns + col, {value.text}, mask=mask)"
