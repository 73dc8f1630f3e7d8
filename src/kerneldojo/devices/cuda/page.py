"""One page of host memory through which judge and contestant signal without a system call.

The judge writes a word and spins on another; the contestant spins on the first. That costs under a microsecond, where
a socket costs tens and varies. x86 and Python order plain 8-byte loads and stores well enough for a flag that follows
its data; each word has one writer.

The page also tells a contestant at birth how large its memory is and whether its kernels are to be silent. Everything
that the contestant writes here is a claim: the judge bounds every number that it reads.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kerneldojo.devices.cuda import stamps

MAX_CALLS = 256
"""Most calls in one window."""
MAX_PLACES = 8192
"""Most outputs of one window, all its calls together: the page has a place for each. A line needs windows of two
calls, and no call may return as many as half of these (`contestant.tree.MAX_LEAVES`)."""

_LAST = 64 + MAX_PLACES + MAX_CALLS
_WORDS = _LAST + stamps.BLOCK_BYTES // 8
_BYTES = -(-8 * _WORDS // mmap.PAGESIZE) * mmap.PAGESIZE
_MAGIC = 0x6F6A6F646B65726E
_GO, _LENGTH, _FLAGS, _LAST_AT, _LAST_BYTES, _PLACEBOS = 8, 9, 10, 11, 12, 13
_DONE, _STATE, _COUNT, _TAKEN = 16, 17, 18, 19
_OFFSETS, _SPANS = 64, 64 + MAX_PLACES

WITH_EVENTS = 1
"""Flag of a window: the contestant also times each call with CUDA events."""
RELEASE = 2
"""Flag of a window of no calls: outputs of the last one may be freed, and the series goes on."""
PRIME = 4
"""Flag of a window of no calls: bring the contestant's context onto the device, and the series goes on."""
WAKE = 8
"""Flag of a window of no calls: wait closely from now on, for a window is about to start."""
WARM = 16
"""Flag beside `PRIME`: make one call too, on the last argument set, which no window uses."""
PLACEBOS = 32
"""Flag of a window: in the calls that `Page.put_placebos` named, the contestant's own kernels are no-ops."""
POISONED = 64
"""Flag beside `PLACEBOS`: what its calls allocate and do not write is NaN."""
MAX_PLACEBOS = 63
"""Most calls in a window with placebos."""
NAP_SECONDS = 50e-6
"""How long a contestant sleeps between looks where no window is about to start: one that spins takes the execution
units of the core's other thread, and that thread's launches may be what is timed."""

WANTS_DEVICE = 77
"""Exit code of a process that has no page, and so no memory of the device's, when something in it begins to use it."""

OK, FAILED, NOT_PLAIN = 0, 1, 2
"""How a window ended, as the contestant says: an exception, an output that is no plain tensor."""


def most_calls(num_outputs: int) -> int:
    """How many calls a window may have whose calls return so many tensors each."""
    return min(MAX_CALLS, MAX_PLACES // max(1, num_outputs))


class Late(Exception):
    """The other side did not answer in time."""

    side = ""
    """Which side of several it was, where somebody noted it."""


class Page:
    """The page, from either side. `Page.create()` for the judge, `Page.open(fd)` for the contestant."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._words = (ctypes.c_int64 * _WORDS).from_buffer(self._map)  # a load or store of one word is one instruction
        self._array: npt.NDArray[np.int64] = np.frombuffer(self._map, dtype=np.int64, count=_WORDS)
        self._last: npt.NDArray[np.uint8] = self._array[_LAST:].view(np.uint8)
        self._sent = self._seen = int(self._words[_GO])

    @classmethod
    def create(cls, region_bytes: tuple[int, ...], *, silent: bool = False) -> Page:
        """A page that tells of regions of these sizes (at most 5)."""
        fd = os.memfd_create("dojo-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        page = cls(fd)
        page._words[0], page._words[1], page._words[2] = _MAGIC, int(silent), len(region_bytes)
        for index, size in enumerate(region_bytes):
            page._words[3 + index] = size
        return page

    @classmethod
    def open(cls, fd: int) -> Page:
        """The page behind a descriptor that came from the judge."""
        page = cls(fd)
        if page._words[0] != _MAGIC:
            raise ValueError("not a page of the judge's")
        return page

    @property
    def silent(self) -> bool:
        """Whether the contestant's own kernels are to be no-ops."""
        return bool(self._words[1])

    @silent.setter
    def silent(self, silent: bool) -> None:
        """By the judge, before anything hosted runs: it is read for the last time when a source is loaded."""
        self._words[1] = int(silent)

    @property
    def region_bytes(self) -> tuple[int, ...]:
        """Sizes of the regions of device memory that came with the page."""
        return tuple(self._words[3 + index] for index in range(self._words[2]))

    # The judge's side

    def put_last(self, at: int, content: npt.NDArray[np.uint8]) -> None:
        """Say what is to be written to the inputs at the beginning of the next window, `at` bytes from their first."""
        self._last[: len(content)] = content
        self._words[_LAST_AT], self._words[_LAST_BYTES] = at, len(content)

    def put_placebos(self, placebos: Sequence[bool]) -> None:
        """Say which calls of the next window that is flagged `PLACEBOS` are some, the first ones of it."""
        self._words[_PLACEBOS] = sum(1 << call for call, is_placebo in enumerate(placebos) if is_placebo)

    def go(self, length: int, flags: int = 0) -> None:
        """Start a window of `length` calls; 0 ends the series, unless flagged `RELEASE`, `PRIME` or `WAKE`."""
        words = self._words
        words[_LENGTH], words[_FLAGS] = length, flags
        self._sent += 1  # counted here: the word itself could be changed by the other side
        words[_GO] = self._sent

    def wait_done(self, deadline: float, check: Callable[[], None]) -> int:
        """Spin until the window is over; how it ended, as the contestant says.

        Args:
            deadline: on `time.monotonic`'s clock.
            check: called every 20 ms; raises if there is nobody to wait for.

        Raises:
            Late: the deadline passed.
        """
        self._wait(_DONE, deadline, check)
        return self.state

    @property
    def is_done(self) -> bool:
        """Whether what was told last is over, for whoever waits in another way than `wait_done`."""
        return self._words[_DONE] == self._sent

    @property
    def state(self) -> int:
        """How it ended, as the contestant says."""
        return self._words[_STATE]

    def wait_taken(self, deadline: float, check: Callable[[], None]) -> None:
        """Spin until the window's calls begin, as the contestant says, or it is over; the rest as for `wait_done`."""
        self._wait(_TAKEN, deadline, check)

    def _wait(self, word: int, deadline: float, check: Callable[[], None]) -> None:
        words, target = self._words, self._sent
        next_check = time.monotonic() + 0.02
        while True:
            for _ in range(1000):
                if words[word] == target or words[_DONE] == target:
                    return
            now = time.monotonic()
            if now > deadline:
                raise Late("a window did not end in time")
            if now > next_check:
                check()
                next_check = now + 0.02

    def offsets(self, length: int) -> npt.NDArray[np.int64]:
        """Where each call's outputs lie, as the contestant says: (length, outputs a call), a copy, unchecked."""
        count = max(0, min(self._words[_COUNT], MAX_PLACES // max(1, length)))
        return self._array[_OFFSETS : _OFFSETS + length * count].reshape(length, count).copy()

    def spans_us(self, length: int) -> list[float]:
        """Each call's time between CUDA events, as the contestant says, in microseconds."""
        return [value / 1000.0 for value in self._words[_SPANS : _SPANS + length]]

    # The contestant's side

    def wait_go(self, patience_seconds: float, *, is_imminent: bool = False) -> tuple[int, int]:
        """Wait until the judge starts a window: its length and flags.

        Args:
            patience_seconds: give up after so long.
            is_imminent: spin rather than nap between looks.

        Raises:
            Late: it is gone.
        """
        words, start = self._words, time.monotonic()
        looks = 2000 if is_imminent else 1
        while True:
            for _ in range(looks):
                if words[_GO] != self._seen:
                    self._seen = words[_GO]
                    return words[_LENGTH], words[_FLAGS]
            if not is_imminent:
                time.sleep(NAP_SECONDS)
            if time.monotonic() - start > patience_seconds:
                raise Late("the judge is gone")

    def last_place(self) -> tuple[int, int]:
        """Where what the judge's `put_last` said belongs, and how many bytes it is."""
        return self._words[_LAST_AT], self._words[_LAST_BYTES]

    def last(self, length: int) -> npt.NDArray[np.uint8]:
        """The content of `put_last`: a view of the page, which tells of later ones, too."""
        return self._last[:length]

    def is_placebo(self, call: int) -> bool:
        """Whether a call of a window that is flagged `PLACEBOS` is one."""
        return bool(self._words[_PLACEBOS] >> call & 1)

    def taken(self) -> None:
        """Say that what came with the signal is where it belongs, so that the window's calls begin."""
        self._words[_TAKEN] = self._seen

    def put_offset(self, index: int, offset: int) -> None:
        """Say where output `index` (call * outputs a call + output) lies."""
        self._words[_OFFSETS + index] = offset

    def put_span(self, call: int, nanoseconds: int) -> None:
        """Say how long a call took on the device."""
        self._words[_SPANS + call] = nanoseconds

    def done(self, state: int, num_outputs: int) -> None:
        """End the window."""
        words = self._words
        words[_STATE], words[_COUNT] = state, num_outputs
        words[_DONE] = self._seen

    def close(self) -> None:
        """Close the descriptor; the mapping goes with the object."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
