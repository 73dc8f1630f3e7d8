"""What a test left open is told from what others closed meanwhile."""

from __future__ import annotations

import os

from descriptors import open_files


def test_what_is_left_open_is_named_though_others_close_more() -> None:
    theirs = os.pipe()
    before = open_files()
    mine = os.open(os.devnull, os.O_RDONLY)
    for descriptor in theirs:
        os.close(descriptor)
    assert open_files() - before == {(str(mine), "/dev/null")}
    os.close(mine)
    assert open_files() - before == set()
