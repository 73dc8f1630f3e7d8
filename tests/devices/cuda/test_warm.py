"""What a fork server spares its contestants."""

from __future__ import annotations

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
