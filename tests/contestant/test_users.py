"""Uids of contestants, of which no two live ones have the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldojo.contestant.sandbox import users
from kerneldojo.contestant.sandbox.users import HeldUid, exists


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "FIRST_UID", 70_001)
    monkeypatch.setattr(users, "LAST_UID", 70_002)
    monkeypatch.setattr(users, "FURTHER_UIDS", (70_011, 70_011))


def test_each_has_one_of_its_own_and_gives_it_back(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "exists", lambda _: True)
    held = [HeldUid() for _ in range(3)]
    try:
        assert {uid.number for uid in held[:2]} == {70_001, 70_002}
        assert held[2].number == 70_011, "only when the others are taken"
        with pytest.raises(OSError, match="no uid is free"):
            HeldUid()
        held[0].close()
        held[0] = HeldUid()
        assert len({uid.number for uid in held}) == 3
    finally:
        for uid in held:
            uid.close()


def test_users_that_do_not_exist_here_are_not_used(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "exists", lambda _: False)
    held = [HeldUid() for _ in range(2)]
    with pytest.raises(OSError, match="no uid is free"):
        HeldUid()
    for uid in held:
        uid.close()


def test_who_exists_is_read_off_the_maps_of_our_namespace(tmp_path: Path) -> None:
    whole, rootless = tmp_path / "whole", tmp_path / "rootless"
    whole.write_text("         0          0 4294967295\n")
    rootless.write_text("         0       1000          1\n         1     100000      65536\n")
    assert exists(1_900_000_000, [whole, whole])
    assert exists(61_183, [rootless, rootless])
    assert not exists(1_900_000_000, [rootless, whole])
    assert not exists(1_900_000_000, [whole, rootless])
    assert exists(0)
