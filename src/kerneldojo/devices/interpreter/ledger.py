"""What counted work left in memory, so that bytes which something else wrote are told from it.

A model prices what is counted. NumPy, ctypes, a thread, or torch with its dispatch modes switched off do not pass by
the meter, but what they compute has to reach a kernel, or the caller, through memory. So a checksum of each buffer is
kept from when counted work last wrote it, and taken again before counted work reads it: bytes that are neither those,
nor what was there when the call began, came from outside. On a GPU they would have crossed the bus.

What is the same in every call (a table made of Python numbers) says nothing about the inputs: it is from outside in
the first call that meets it, and accounted for in later ones. So is a table of addresses of accounted buffers.
"""

from __future__ import annotations

import ctypes
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from kerneldojo.devices.interpreter.library import buffer_range

Content = tuple[int, int]
"""Number of bytes, and their checksum."""
MAX_TABLE_BYTES = 1 << 16
"""A larger tensor of integers is not looked at as a table of addresses."""
NUMBER_BYTES = 8
"""A buffer of one number is no more than what a kernel is given as an argument, which is free."""
SMALL_BYTES = 1 << 16
"""Buffers up to this size are summed byte by byte, at 3 GB/s; others at five times the rate."""
FOLDS = (512, 509)
"""Words in a row, where a buffer is folded."""


@dataclass(slots=True)
class Entry:
    """A buffer with what counted work, or the beginning of a call, left in it."""

    storage: StorageWeakRef
    base: int
    """First address of the storage."""
    start: int
    stop: int
    content: Content

    def is_there(self) -> bool:
        """Whether the memory is still what it was; only then may it be read."""
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)  # pyright: ignore
        return storage is not None and storage.data_ptr() == self.base and self.stop <= self.base + storage.nbytes()

    def is_as_left(self) -> bool:
        """Whether nothing else has written to it since."""
        return self.is_there() and _content(self.start, self.stop) == self.content


class Ledger:
    """Buffers of one process by the storage that they lie in; lives as long as the process."""

    def __init__(self) -> None:
        self._entries: dict[int, list[Entry]] = {}
        self._met: set[Content] = set()
        """Contents that came from outside in earlier calls."""
        self._new: set[Content] = set()

    def open(self, tensors: Iterable[torch.Tensor]) -> None:
        """A call begins: what its arguments and its instance hold is accounted for."""
        self._met |= self._new
        self._new.clear()
        kept = {base: [entry for entry in entries if entry.is_there()] for base, entries in self._entries.items()}
        self._entries = {base: entries for base, entries in kept.items() if entries}
        for tensor in tensors:
            self.note(tensor)

    def note(self, tensor: torch.Tensor) -> None:
        """Counted work wrote what a tensor's buffer holds."""
        if _has_memory(tensor):
            storage: Any = tensor.untyped_storage()
            start, stop = buffer_range(tensor)
            entry = Entry(StorageWeakRef(storage), storage.data_ptr(), start, stop, _content(start, stop))
            others = self._entries.get(entry.base, [])
            self._entries[entry.base] = [*(e for e in others if e.stop <= start or stop <= e.start), entry]

    def is_outside(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's buffer holds what came from outside."""
        if not _has_memory(tensor):
            return False
        start, stop = buffer_range(tensor)
        if stop - start <= NUMBER_BYTES:
            return False
        entries = self._entries.get(tensor.untyped_storage().data_ptr(), ())
        known = next((entry for entry in entries if entry.start <= start and stop <= entry.stop), None)
        if known is not None and known.is_as_left():
            return False
        content = _content(start, stop)
        self._new.add(content)
        return content not in self._met and not self._is_table_of_addresses(tensor)

    def outside_bytes(self, read: set[int], written: set[int]) -> int:
        """Of addresses that a launch touched without being given a tensor there, how many bytes read are from outside.

        Args:
            read: addresses of elements read.
            written: addresses of elements written; what lies there is accounted for from now on.
        """
        entries = self._sorted()
        starts = [entry.start for entry in entries]
        changed = {id(entry): entry for entry in (_at(entries, starts, a) for a in written) if entry}
        for entry in changed.values():
            entry.content = _content(entry.start, entry.stop)
        sound: dict[int, bool] = {}
        count = 0
        for address in read:
            entry = _at(entries, starts, address)
            if entry is not None and id(entry) not in sound:
                sound[id(entry)] = entry.is_as_left()
            count += entry is None or not sound[id(entry)]
        return 4 * count

    def _sorted(self) -> list[Entry]:
        entries = (entry for kept in self._entries.values() for entry in kept if entry.is_there())
        return sorted(entries, key=lambda entry: entry.start)

    def _is_table_of_addresses(self, tensor: torch.Tensor) -> bool:
        if tensor.dtype != torch.int64 or not 0 < tensor.numel() * 8 <= MAX_TABLE_BYTES:
            return False
        entries = self._sorted()
        starts = [entry.start for entry in entries]
        addresses: list[Any] = tensor.flatten().tolist()
        return all(_at(entries, starts, address) is not None for address in addresses)


def _has_memory(tensor: torch.Tensor) -> bool:
    is_plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided and not tensor.is_meta
    return is_plain and tensor.numel() > 0 and tensor.untyped_storage().data_ptr() != 0


def _content(start: int, stop: int) -> Content:
    return stop - start, checksum((ctypes.c_char * (stop - start)).from_address(start))


def checksum(raw: Any) -> int:
    """Of a buffer; a large one is folded first, in two widths, so that elements which change places show."""
    view = memoryview(raw).cast("B")
    if len(view) <= SMALL_BYTES:
        return zlib.crc32(view)
    words, value = np.frombuffer(view, dtype=np.uint64, count=len(view) // 8), 0
    for width in FOLDS:
        rows = len(words) // width
        value = zlib.crc32(words[: rows * width].reshape(rows, width).sum(axis=0).tobytes(), value)
        value = zlib.crc32(view[rows * width * 8 :], value)
    return value


def _at(entries: list[Entry], starts: list[int], address: int) -> Entry | None:
    """The entry that an address lies in; of several that overlap, the one that starts last."""
    place = bisect_right(starts, address) - 1
    return entries[place] if place >= 0 and address < entries[place].stop else None
