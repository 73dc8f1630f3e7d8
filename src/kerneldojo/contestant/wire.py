"""Frames between the judge and the processes it does not trust.

One frame is a four-byte little-endian length and that many bytes of JSON: an object, never anything that could be
unpickled. Lengths are capped before a byte is read, every read has a deadline, and descriptors travel beside a frame
only from the judge outwards, and from a workshop to who ordered from it. What arrives malformed is a `MalformedFrame`:
the runner of ours on the other side never sends one, so the code that it hosts has interfered.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_FRAME_BYTES = 8 << 20
"""Longest frame that is accepted; a source of one MiB in JSON escapes fits."""

MAX_FDS = 8
LOWEST_TAKEN = 200
"""Number from which on descriptors that came are kept."""


class WireError(Exception):
    """Base of everything that can go wrong on a channel."""


class ChannelClosed(WireError):
    """The other side is gone."""


class DeadlinePassed(WireError):
    """Nothing complete arrived in time."""


class MalformedFrame(WireError):
    """The other side does not keep to the protocol."""


class Channel:
    """One end of a stream socket that carries JSON objects.

    Args:
        sock: a connected stream socket; the channel owns it from now on.
        takes_descriptors: whether those that the other side sends are kept; else the kernel drops them.
    """

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool = True) -> None:
        self._socket = sock
        self._room_for_fds = socket.CMSG_SPACE(4 * MAX_FDS) if takes_descriptors else 0
        self._socket.setblocking(False)
        self._pending = bytearray()
        self.received_fds: list[int] = []

    def fileno(self) -> int:
        """Descriptor to poll for readability."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = (), timeout: float = 30.0) -> None:
        """Send one object, and copies of `fds` beside it.

        Raises:
            ChannelClosed: the other side is gone.
            DeadlinePassed: it did not read for `timeout` seconds.
        """
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(data)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
        view = memoryview(struct.pack("<I", len(data)) + data)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        deadline = time.monotonic() + timeout
        while view:
            self._wait(write=True, deadline=deadline)
            try:
                sent = self._socket.sendmsg([view], rights)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            rights = []
            view = view[sent:]

    def receive(self, timeout: float) -> dict[str, Any]:
        """Return the next object; raises `ChannelClosed`, `DeadlinePassed` or `MalformedFrame`."""
        length = self._fill_frame(time.monotonic() + timeout)
        body = bytes(self._pending[4 : 4 + length])
        del self._pending[: 4 + length]
        try:
            message: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise MalformedFrame(f"a frame is not JSON: {type(error).__name__}") from None
        if not isinstance(message, dict):
            raise MalformedFrame("a frame is not a JSON object")
        return message

    def has_frame(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a whole object; whether `receive` would return, or raise, at once.

        Half an object does not count: whoever sends one and then nothing keeps nobody waiting beyond `timeout`.
        """
        try:
            self._fill_frame(time.monotonic() + timeout)
        except DeadlinePassed:
            return False
        except WireError:  # It is closed or malformed, and will be for `receive`.
            return True
        return True

    def has_unread(self) -> bool:
        """Whether bytes have arrived that nobody asked for."""
        return bool(self._pending) or self._is_ready(select.POLLIN, 0.0)

    def is_closed(self) -> bool:
        """Whether the other side has closed the channel and everything that it sent was read."""
        if self._pending:
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def take_descriptors(self) -> list[int]:
        """The descriptors that came so far, moved to high numbers; whoever takes them closes them.

        A process that was forked may hold libraries that remember low numbers from its parent, where those were open.
        """
        taken, self.received_fds = self.received_fds, []
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_TAKEN) for fd in taken]
        for fd in taken:
            os.close(fd)
        return moved

    def close(self) -> None:
        """Close the socket and any descriptor that was received and not taken."""
        self._socket.close()
        for fd in self.received_fds:
            socket.close(fd)
        self.received_fds.clear()

    def _fill_frame(self, deadline: float) -> int:
        """Have the next frame whole, and leave it there: a late one can still be read later. Its body's length."""
        self._fill(4, deadline)
        (length,) = struct.unpack("<I", self._pending[:4])
        if length > MAX_FRAME_BYTES:
            raise MalformedFrame(f"a frame of {length} bytes was announced")
        self._fill(4 + length, deadline)
        return int(length)

    def _fill(self, count: int, deadline: float) -> None:
        while len(self._pending) < count:
            self._wait(write=False, deadline=deadline)
            try:
                data, ancillary, _, _ = self._socket.recvmsg(1 << 16, self._room_for_fds)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(payload[: len(payload) - len(payload) % 4])
                    self.received_fds.extend(received)
            if not data:
                raise ChannelClosed("the other side closed the channel")
            self._pending += data

    def _wait(self, *, write: bool, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not self._is_ready(select.POLLOUT if write else select.POLLIN, remaining):
            raise DeadlinePassed("no answer in time")

    def _is_ready(self, event: int, seconds: float) -> bool:
        """Whether the socket is, or becomes, ready. Polled: `select` cannot name descriptors from 1024 on."""
        if self._socket.fileno() < 0:
            raise ChannelClosed("closed on this side")
        poller = select.poll()
        poller.register(self._socket, event)
        return bool(poller.poll(seconds * 1000))


def channel_pair() -> tuple[Channel, socket.socket]:
    """Return the judge's end as a channel that takes no descriptors, and the other end as a socket to be passed on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours, takes_descriptors=False), theirs
