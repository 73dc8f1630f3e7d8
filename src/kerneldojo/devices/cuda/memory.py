"""Device memory that two processes share: the judge creates and exports it, a contestant opens it.

CUDA's virtual memory management hands out a POSIX file descriptor for a piece of device memory. Unlike legacy IPC
handles such a descriptor crosses PID namespaces and user ids, names exactly one region rather than an allocator's
segment, and needs neither ptrace rights nor shared /dev/shm: it travels over a Unix socket (SCM_RIGHTS).

Offsets, shapes and strides that come from a contestant are checked against the region's size before a view is made;
`SharedRegion.tensor` and `span` raise `OutOfRegionError` otherwise.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from kerneldojo.devices.cuda.driver import bindings, call


def is_out_of_memory(error: BaseException) -> bool:
    """Whether device memory ended: torch's allocator says so, or the driver, where a kernel had no room to load."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, torch.AcceleratorError) and "out of memory" in str(error)
    )


class OutOfRegionError(ValueError):
    """A view was asked for that does not lie within its region, or is misaligned."""


def span(offset: int, shape: tuple[int, ...], stride: tuple[int, ...], item_bytes: int, region_bytes: int) -> int:
    """Bytes from `offset` to the end of a strided view; raises `OutOfRegionError` unless all of it is inside.

    `stride` counts elements and must be non-negative. Nothing here trusts its arguments: they may be hostile.
    """
    if len(shape) != len(stride) or len(shape) > 16:
        raise OutOfRegionError(f"{len(shape)} dimensions with {len(stride)} strides")
    if any(not 0 <= value < 1 << 48 for value in (offset, *shape, *stride)):
        raise OutOfRegionError("offset, shape or stride out of range")
    if offset % item_bytes:
        raise OutOfRegionError(f"offset {offset} is not a multiple of the item size {item_bytes}")
    if 0 in shape:
        length = 0
    else:
        length = (1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))) * item_bytes
    if offset + length > region_bytes:
        raise OutOfRegionError(f"view of {length} bytes at {offset} in a region of {region_bytes}")
    return length


class SharedRegion:
    """One exported or imported allocation of device memory, mapped into this process' address space.

    Use as a context manager or call `close()`. Tensors made by `tensor` are views: they must not be used after that.
    """

    def __init__(self, handle: Any, size: int, device: int, fd: int | None):
        """Map `handle`, `size` bytes; internal, see `create` and `open`. Takes `handle` and `fd` over."""
        self.device = device
        self.size = size
        self.fd = fd
        self._handle = handle
        self._address: Any = None
        self._whole: torch.Tensor | None = None
        """All of it, made once: asking the driver whose memory an address is takes longer than the rest of a view."""
        driver = bindings()
        address = call("cuMemAddressReserve", size, 0, 0, 0)
        try:
            call("cuMemMap", address, size, 0, handle, 0)
            try:
                access = driver.CUmemAccessDesc()
                access.location = self._properties(device).location
                access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                call("cuMemSetAccess", address, size, [access], 1)
            except BaseException:
                call("cuMemUnmap", address, size)
                raise
        except BaseException:
            call("cuMemAddressFree", address, size)
            raise
        self._address = address

    @staticmethod
    def _properties(device: int) -> Any:
        driver = bindings()
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = device
        properties.requestedHandleTypes = _POSIX_FD()
        return properties

    @classmethod
    def create(cls, size: int, device: int = 0) -> SharedRegion:
        """Allocate at least `size` bytes on `device` and export them; `fd` is the descriptor to pass on.

        Needs a current CUDA context. Raises `CudaError` (`CUDA_ERROR_OUT_OF_MEMORY` among others).
        """
        driver = bindings()
        properties = cls._properties(device)
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        granularity = call("cuMemGetAllocationGranularity", properties, minimum)
        size = max(1, -(-size // granularity)) * granularity
        handle = call("cuMemCreate", size, properties, 0)
        fd = None
        try:
            fd = int(call("cuMemExportToShareableHandle", handle, _POSIX_FD(), 0))
            return cls(handle, size, device, fd)
        except BaseException:
            if fd is not None:
                os.close(fd)
            call("cuMemRelease", handle)
            raise

    @classmethod
    def open(cls, fd: int, size: int, device: int = 0) -> SharedRegion:
        """Map the region behind `fd`, of exactly `size` bytes (the exporter's `size`). `fd` stays the caller's."""
        handle = call("cuMemImportFromShareableHandle", fd, _POSIX_FD())
        try:
            return cls(handle, size, device, None)
        except BaseException:
            call("cuMemRelease", handle)
            raise

    @property
    def address(self) -> int:
        """Virtual address of the region in this process."""
        if self._address is None:
            raise ValueError("the region is closed")
        return int(self._address)

    def tensor(self, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A view of the region: no copy. `offset` in bytes, `stride` in elements. Raises `OutOfRegionError`."""
        item_bytes = dtype.itemsize
        span(offset, shape, stride, item_bytes, self.size)
        if 0 in shape:
            return torch.empty(shape, dtype=dtype, device=f"cuda:{self.device}")
        address = self.address  # Raises once the region is closed.
        if self._whole is None:
            self._whole = torch.as_tensor(_Bytes(address, self.size), device=f"cuda:{self.device}")
        whole = self._whole.data  # With a count of changes of its own: views are not each other's business.
        usable = self.size // item_bytes * item_bytes
        return whole[:usable].view(dtype).as_strided(shape, stride, offset // item_bytes)

    def bytes(self) -> torch.Tensor:
        """The whole region as one uint8 tensor."""
        return self.tensor(0, (self.size,), (1,), torch.uint8)

    def close(self) -> None:
        """Unmap and release. The memory is freed when every process that mapped it has done so or died."""
        if self._address is None:
            return
        address, self._address, self._whole = self._address, None, None
        call("cuMemUnmap", address, self.size)
        call("cuMemAddressFree", address, self.size)
        call("cuMemRelease", self._handle)
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def __enter__(self) -> SharedRegion:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Bytes:
    """What torch needs to wrap foreign device memory without a copy."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def _POSIX_FD() -> Any:
    return bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
