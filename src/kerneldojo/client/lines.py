"""Lines of a stream that arrives in pieces."""

from __future__ import annotations


class Lines:
    """Cuts a stream of bytes into lines at newlines only (text may hold other characters that end lines)."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, empty ones left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]
