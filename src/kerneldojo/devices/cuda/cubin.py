"""Machine code of kernels: which a binary holds, and how to make them do nothing.

A cubin is an ELF file for the GPU; each kernel's instructions are a section `.text.<name>`. Writing the instruction
EXIT over the first one turns the kernel into a no-op that still launches, captures and profiles like the original:
registers, shared memory, cluster and cooperative attributes live elsewhere in the file. This holds whatever launches
it, from Triton, a C++ extension or a captured graph, which no hook on a launch function could promise.

A shared library that nvcc built carries its cubins in a section `.nv_fatbin`, findable as long as they were not
compressed (`--no-compress`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

EXIT = struct.pack("<QQ", 0x000000000000794D, 0x000FEA0003800000)
"""`EXIT` as encoded from Volta to Blackwell (compute capability 7.0 and newer): 16 bytes, predicate always true."""

_EM_CUDA = 190
_SHT_PROGBITS = 1
_SHT_SYMTAB = 2
_STO_CUDA_ENTRY = 0x10
_ELF_MAGIC = b"\x7fELF\x02\x01"


class CubinError(ValueError):
    """The bytes are not a device binary that this module understands."""


class Section(NamedTuple):
    """A section of an ELF file; offsets and sizes in bytes."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


def sections(image: bytes | bytearray | memoryview, start: int = 0) -> list[Section]:
    """The sections of the 64-bit ELF file that begins at `start`. Offsets are relative to `image`.

    Raises:
        CubinError: it is no such file, or it points outside of `image`.
    """
    if bytes(image[start : start + 6]) != _ELF_MAGIC:
        raise CubinError("not a 64-bit little-endian ELF file")
    try:
        table = start + struct.unpack_from("<Q", image, start + 0x28)[0]
        entry_bytes, count, names_index = struct.unpack_from("<HHH", image, start + 0x3A)
        raw = [struct.unpack_from("<IIQQQQIIQQ", image, table + index * entry_bytes) for index in range(count)]
        names = raw[names_index]
    except (struct.error, IndexError, OverflowError):
        raise CubinError("truncated section table") from None
    found: list[Section] = []
    for name, kind, _, _, offset, size, link, info, *_ in raw:
        if kind == _SHT_PROGBITS and start + offset + size > len(image):
            raise CubinError("a section lies outside of the file")
        found.append(Section(_text(image, start + names[4] + name), kind, start + offset, size, link, info))
    return found


def kernel_names(cubin: bytes | bytearray) -> list[str]:
    """Names of the kernels in a cubin, as the profiler reports them (mangled)."""
    return [section.name.removeprefix(".text.") for section in _kernel_sections(cubin, 0)]


def silenced(cubin: bytes) -> bytes:
    """A copy of `cubin` in which every kernel returns at once."""
    image = bytearray(cubin)
    _silence(image, 0)
    return bytes(image)


def cubins_of_library(image: bytes | bytearray) -> list[int]:
    """Offsets of the cubins that a shared library holds uncompressed."""
    starts: list[int] = []
    for section in sections(image):
        if section.name != ".nv_fatbin":
            continue
        position = image.find(_ELF_MAGIC, section.offset, section.offset + section.size)
        while position >= 0:
            if struct.unpack_from("<H", image, position + 18)[0] == _EM_CUDA:
                starts.append(position)
            position = image.find(_ELF_MAGIC, position + 1, section.offset + section.size)
    return starts


def library_kernel_names(path: Path) -> list[str]:
    """Names of all kernels in a shared library."""
    image = path.read_bytes()
    return [
        section.name.removeprefix(".text.")
        for start in cubins_of_library(image)
        for section in _kernel_sections(image, start)
    ]


def silence_library(path: Path) -> int:
    """Rewrite a shared library so that its kernels return at once; the number of kernels.

    Raises:
        CubinError: it was built with device code that cannot be found (compressed, or only as PTX).
    """
    image = bytearray(path.read_bytes())
    count = sum(_silence(image, start) for start in cubins_of_library(image))
    if not count and any(section.name == ".nv_fatbin" for section in sections(image)):
        raise CubinError("the library holds device code, but none that can be silenced")
    path.write_bytes(image)
    return count


def _kernel_sections(image: bytes | bytearray, start: int) -> Iterator[Section]:
    """Code sections of entry points; device functions that were not inlined have sections of their own."""
    all_sections = sections(image, start)
    entries = _entry_sections(image, all_sections)
    for index, section in enumerate(all_sections):
        if section.name.startswith(".text.") and section.size >= len(EXIT) and index in entries:
            yield section


def _entry_sections(image: bytes | bytearray, all_sections: list[Section]) -> set[int]:
    """Indices of the sections that symbols marked as kernel entries point to."""
    entries: set[int] = set()
    for section in all_sections:
        if section.kind != _SHT_SYMTAB:
            continue
        for position in range(section.offset, section.offset + section.size, 24):
            _, _, other, index, _, _ = struct.unpack_from("<IBBHQQ", image, position)
            if other & _STO_CUDA_ENTRY:
                entries.add(index)
    return entries


def _silence(image: bytearray, start: int) -> int:
    count = 0
    for section in list(_kernel_sections(image, start)):
        image[section.offset : section.offset + len(EXIT)] = EXIT
        count += 1
    return count


def _text(image: bytes | bytearray | memoryview, position: int) -> str:
    end = bytes(image[position : position + 4096]).find(b"\0")
    if end < 0:
        raise CubinError("an unterminated name")
    return bytes(image[position : position + end]).decode("utf-8", "replace")
