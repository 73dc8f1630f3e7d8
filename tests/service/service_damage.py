"""Damage to a store, as a bad disk does it."""

from __future__ import annotations

from pathlib import Path

PAGE_BYTES = 4096


def damage(file: Path, place: int) -> None:
    """Overwrite the page that holds the byte at `place`."""
    with file.open("r+b") as opened:
        opened.seek(place - place % PAGE_BYTES)
        opened.write(b"\xa5" * PAGE_BYTES)


def damage_where(file: Path, text: bytes) -> None:
    """Overwrite the pages that hold `text`."""
    data = file.read_bytes()
    place = data.find(text)
    assert place >= 0
    while place >= 0:
        damage(file, place)
        place = data.find(text, place + 1)
