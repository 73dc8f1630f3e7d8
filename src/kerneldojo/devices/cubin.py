"""What a compiled kernel needs, read from its cubin: an ELF file in which NVIDIA records registers and stack.

Read here rather than asked of a driver, because there may be none. The layout is that of ELF64; the section `.nv.info`
is a list of attributes, among them the registers (`EIATTR_REGCOUNT`) and the stack (`EIATTR_FRAME_SIZE`) of each
function, which `cuobjdump --dump-resource-usage` shows as REG and STACK.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

REGISTER_COUNT = 0x2F
FRAME_SIZE = 0x11
SIZED = 0x04
"""Format of `.nv.info` entries that carry a size and that many bytes."""


class Resources(NamedTuple):
    """Per thread; None where the cubin does not say."""

    registers: int | None
    stack_bytes: int | None


def resources(cubin: bytes) -> Resources:
    """Registers and stack of the kernel in a cubin; the largest if there are several.

    Args:
        cubin: an ELF64 file of ours: made by the `ptxas` that Triton brings.
    """
    if cubin[:4] != b"\x7fELF" or len(cubin) < 64:
        return Resources(None, None)
    offset, entry_size, count, names_index = _header(cubin)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * entry_size) for i in range(count)]
    names = sections[names_index][4]
    for section in sections:
        start = names + section[0]
        if cubin[start : cubin.index(b"\0", start)] == b".nv.info":
            found = _attributes(cubin[section[4] : section[4] + section[5]])
            return Resources(found.get(REGISTER_COUNT), found.get(FRAME_SIZE, 0))
    return Resources(None, None)


def _header(cubin: bytes) -> tuple[int, int, int, int]:
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    return offset, entry_size, count, names_index


def _attributes(info: bytes) -> dict[int, int]:
    """The largest value of each attribute that holds a function's symbol and a number."""
    found: dict[int, int] = {}
    position = 0
    while position + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, position)
        position += 4
        if kind == SIZED:
            if size == 8:
                value = struct.unpack_from("<II", info, position)[1]
                found[attribute] = max(found.get(attribute, 0), value)
            position += size
    return found
