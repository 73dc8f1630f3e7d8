"""The workshop: a hosted process that compiles for a contestant and for its silent twin, and runs nothing of either.

Both would otherwise compile the same extension, which is most of what such a verdict costs. Neither may be given what
the other has made, for a contestant that made its twin's library would choose what is silenced. So a third process, in
a sandbox of its own, compiles what both ask for; in it no code of a candidate's ever runs. It takes texts and plain
options (`devices.cuda.flags`), so that what it answers follows from the order alone, whoever sent it and whatever was
sent before; and an order is built once, whoever sends it first. A library leaves it as a sealed file in memory, which
nobody can write to any more.

Whatever it does not take, and whatever goes wrong in it for want of something (a file, memory, a compiler that was
killed, the workshop itself), is built by who asked, in its own sandbox, as if there were no workshop: so nobody can
use it up to another's harm. A verdict has its own, which ends with it.

    judge ─ door ── workshop ─┬─ line ── contestant         an order out, a library or an error back, one at a time
                              └─ line ── silent twin

Lines are answered in a thread each: one that says nothing, half of something or nonsense keeps only itself waiting.
"""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import threading
import traceback
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneldojo.contestant.removal import remove_tree
from kerneldojo.contestant.wire import Channel, MalformedFrame, WireError
from kerneldojo.devices.cuda.compiler import Compiler, ExtensionError, Order, UnsupportedOnDevice

IDLE_SECONDS = 3600.0
"""A line, or the door, on which nothing is heard for so long is closed."""
SEND_SECONDS = 10.0
MAX_ORDERS = 16
"""Orders of one line. Who has more extensions than that builds the others itself."""
MAX_LIBRARY_BYTES = 64 << 20
"""Largest library that is handed out."""

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def main(door_fd: int, line_fds: list[int], scratch: Path, compiler: Compiler) -> None:
    """Serve the lines until the judge closes the door; it may ask how much was built meanwhile."""
    gc.enable()  # The fork server had it off; see there.
    os.chdir(scratch)
    workshop = Workshop(compiler, scratch / "orders")
    for descriptor in line_fds:
        line = Channel(socket.socket(fileno=descriptor), takes_descriptors=False)
        threading.Thread(target=workshop.serve, args=[line], daemon=True).start()
    door = Channel(socket.socket(fileno=door_fd))
    with suppress(WireError):
        while True:
            question = door.receive(IDLE_SECONDS)
            counts = {"num_built": workshop.num_built, "num_given": workshop.num_given}
            door.send({"number": question["number"], **counts})


@dataclass(frozen=True)
class Product:
    """What became of an order."""

    answer: dict[str, Any]
    library: tuple[int, ...] = ()
    """Descriptor of the sealed file, if there is one."""


@dataclass
class Workshop:
    """Orders that were built, or are being built."""

    compiler: Compiler
    folder: Path
    """Where they are built, each in a folder that is removed afterwards."""
    num_built: int = 0
    """Orders for which compilers were started."""
    num_given: int = 0
    """Libraries that were handed out, each as often as it was."""
    _orders: dict[str, Future[Product]] = field(default_factory=dict[str, Future[Product]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, line: Channel) -> None:
        """Answer one line, until it closes or has had its share. Body of a thread."""
        try:
            with suppress(WireError):
                for _ in range(MAX_ORDERS):
                    try:
                        product = self.product(Order.read(line.receive(IDLE_SECONDS)))
                    except (MalformedFrame, ValueError) as error:
                        line.send({"refused": str(error)}, timeout=SEND_SECONDS)
                        return
                    with self._lock:
                        self.num_given += len(product.library)
                    line.send(product.answer, product.library, timeout=SEND_SECONDS)
        finally:
            line.close()

    def product(self, order: Order) -> Product:
        """What becomes of an order; waits if somebody else has asked for it and it is not built yet."""
        if not order.is_plain:
            return Product({"refused": "it is not plain"})
        with self._lock:
            asked = self._orders.get(order.digest)
            mine = self._orders[order.digest] = asked or Future()
            if asked is None:
                self.num_built += 1
        if asked is None:
            try:
                mine.set_result(self._build(order))
            except Exception as error:  # No room, no process to be had: whoever waits must not wait for ever.
                traceback.print_exc()
                mine.set_result(Product({"refused": type(error).__name__}))
        return mine.result()

    def _build(self, order: Order) -> Product:
        folder = self.folder / order.digest
        folder.mkdir(parents=True)
        try:
            library = order.build(self.compiler, folder)
            if library.stat().st_size > MAX_LIBRARY_BYTES:
                return Product({"refused": "the library is too large"})
            return Product({"built": True}, (_sealed(library.read_bytes()),))
        except ExtensionError as error:
            return Product({"refused": "not here"} if error.is_here_only else {"error": str(error)})
        except UnsupportedOnDevice as error:
            return Product({"unsupported": str(error)})
        finally:
            remove_tree(folder)


def _sealed(content: bytes) -> int:
    """A file in memory that holds `content` for good."""
    descriptor = os.memfd_create("library", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


class Line:
    """The other end, in the process that orders. A candidate may do with it what it likes: it is its own."""

    def __init__(self, descriptor: int) -> None:
        self._channel = Channel(socket.socket(fileno=descriptor))
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False

    def __call__(self, order: Order) -> bytes | None:
        """Have an order built.

        Returns:
            the library; None if it is to be built here.

        Raises:
            ExtensionError, UnsupportedOnDevice: as `Compiler.build`.
        """
        if os.getpid() != self._owner:
            return None  # A fork shares the line, and would hear what is meant for its parent.
        with self._lock:
            answer, library = self._exchange(order)
        if "error" in answer:
            raise ExtensionError(str(answer["error"]))
        if "unsupported" in answer:
            raise UnsupportedOnDevice(str(answer["unsupported"]))
        return library

    def _exchange(self, order: Order) -> tuple[dict[str, Any], bytes | None]:
        if self._is_closed:
            return {}, None
        try:
            self._channel.send(order.as_json())
            answer = self._channel.receive(IDLE_SECONDS)
            return answer, self._received() if "built" in answer else None
        except ValueError:  # Too long for a frame: nothing was sent.
            return {}, None
        except WireError:
            self.close()
            return {}, None

    def _received(self) -> bytes:
        descriptor = self._channel.received_fds.pop()
        try:
            return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Order nothing more."""
        self._is_closed = True
        self._channel.close()
