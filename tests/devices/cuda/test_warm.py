"""What a fork server spares its contestants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kerneldojo.devices.cuda import warm


def test_a_device_is_asked_for_its_properties_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(device: int) -> dict[str, int]:
        asked.append(device)
        return {"max_shared_mem": 1000 + device}

    utils = SimpleNamespace(get_device_properties=ask)
    monkeypatch.setattr(warm, "_triton_utils", lambda: utils)
    warm.remember_properties()
    assert not asked, "who is forked later may use the device, who forks must not"
    warm.ask_properties(0)
    utils.get_device_properties(0)["max_shared_mem"] = 0
    assert utils.get_device_properties(0) == {"max_shared_mem": 1000}
    assert utils.get_device_properties(1) == {"max_shared_mem": 1001}
    assert asked == [0, 1]


@pytest.mark.gpu
def test_who_prepares_leaves_no_file(tmp_path: Path) -> None:
    program = "from kerneldojo.devices.cuda import warm\nwarm.prepare()\nassert warm.heap() is warm.heap()"
    temporary, cache = tmp_path / "temporary", tmp_path / "cache"
    temporary.mkdir()
    places = {"TMPDIR": str(temporary), "TRITON_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **places}, check=True, timeout=120)
    assert list(temporary.iterdir()) == []
