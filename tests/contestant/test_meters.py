"""How often a keeper looks follows from how much is left of what it looks at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sandboxed import BARE

from kerneldojo.contestant.sandbox import Limits, Policy
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.meters import Meters

GIB = 1 << 30


@pytest.mark.parametrize(
    ("limits", "has_room"),
    [
        (Limits(), True),
        (Limits(scratch_bytes=2 * GIB), True),
        (Limits(scratch_bytes=GIB), False),
        (Limits(num_scratch_files=10_000), False),
        (Limits(num_scratch_files=40_100), False),  # Less is left than that: there are some already.
    ],
)
def test_there_is_room_while_much_is_left(scratch: Path, limits: Limits, has_room: bool) -> None:
    for number in range(101):
        (scratch / str(number)).touch()
    meters = Meters(Plan(Policy(scratch=scratch, readable=(), limits=limits), BARE, None), None, [])
    assert not meters.has_room, "nothing was looked at yet"
    assert meters.exceeded() is None
    assert meters.has_room is has_room


def test_room_is_lost_as_the_folder_fills(scratch: Path) -> None:
    limits = Limits(scratch_bytes=(3 << 29) + (1 << 20))
    meters = Meters(Plan(Policy(scratch=scratch, readable=(), limits=limits), BARE, None), None, [])
    assert meters.exceeded() is None
    assert meters.has_room
    (scratch / "file").write_bytes(os.urandom(2 << 20))
    meters._next_scratch = 0.0  # Or it would not be measured again so soon.
    assert meters.exceeded() is None
    assert not meters.has_room


def test_what_no_path_is_long_enough_for_is_too_much(scratch: Path) -> None:
    """Whoever could write where nobody looks could fill the disk."""
    meters = Meters(Plan(Policy(scratch=scratch, readable=()), BARE, None), None, [])
    assert meters.exceeded() is None
    inner = os.open(scratch, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=inner)
        deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)
    meters._next_scratch = 0.0
    assert meters.exceeded() == "scratch"
