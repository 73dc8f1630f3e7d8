"""What the emulated device says when it cannot do something that a real one can."""

from __future__ import annotations


class UnsupportedOnDevice(RuntimeError):
    """A kernel or host code needs what only a GPU has, such as inline assembly. Never scored."""
