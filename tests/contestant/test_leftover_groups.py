"""A control group that a killed keeper left behind does not stop the next keeper with the same process id."""

from __future__ import annotations

import os
import signal
import time

import pytest

from kerneldojo.contestant.sandbox import probe
from kerneldojo.contestant.sandbox.cgroups import Group


def test_an_empty_group_that_was_left_is_made_anew_and_one_in_use_is_not() -> None:
    features = probe()
    if not (features.cgroup_v2 or features.cgroup_v1):
        pytest.skip("no control groups here")
    name = f"dojo-left-{os.getpid()}"
    Group(name, features.cgroup_v2, features.cgroup_v1)
    again = Group(name, features.cgroup_v2, features.cgroup_v1)
    inside = os.fork()
    if inside == 0:
        try:
            again.enter()
            time.sleep(60)
        finally:
            os._exit(0)
    until = time.monotonic() + 10
    while inside not in again.processes() and time.monotonic() < until:
        time.sleep(0.01)
    try:
        with pytest.raises(OSError, match="busy"):
            Group(name, features.cgroup_v2, features.cgroup_v1)
    finally:
        os.kill(inside, signal.SIGKILL)
        os.waitpid(inside, 0)
        again.remove()
    assert not any(folder.exists() for folder in again.folders.values())
