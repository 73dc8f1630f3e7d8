"""What tests that rehearse the steps of a GPU share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest
from gpu_steps import HostBench, Windows

from kerneldojo.judging import Judge, confirmation, measurement, placebos
from kerneldojo.judging.processes import ForkServer, Session
from scopes import shared


@pytest.fixture(scope=shared)
def server() -> Generator[ForkServer]:
    server = ForkServer("interpret")
    yield server
    server.close()


@pytest.fixture(scope=shared)
def judge() -> Generator[Judge]:
    with Judge() as judge:
        yield judge


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    windows = Windows()
    for name in ("preparation", "timing", "figures"):
        monkeypatch.setattr(measurement, name, windows)
    monkeypatch.setattr(confirmation, "figures", windows)
    monkeypatch.setattr(measurement, "profile", windows.profile)
    monkeypatch.setattr(placebos, "play", windows.play)
    return windows


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, windows: Windows) -> dict[Session, list[str]]:
    """What each session was asked, in order."""
    told: dict[Session, list[str]] = defaultdict(list)
    post, begin = Session.post, Session.__init__

    def noted(session: Session, operation: str, *descriptors: Any, **fields: Any) -> None:
        told[session].append(operation)
        post(session, operation, *descriptors, **fields)

    def begun(session: Session, *arguments: Any, **options: Any) -> None:
        begin(session, *arguments, **options)
        windows.everybody.append(session)
        told[session] = []

    monkeypatch.setattr(Session, "post", noted)
    monkeypatch.setattr(Session, "__init__", begun)
    return told


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:
    bench = HostBench(server, 1, 2)
    yield bench
    bench.close()
