"""Who has returned waits for the device only: that is given less time than compiling and computing are."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneldojo import Candidate, Problem
from kerneldojo.contestant.arena import HostArena, Slot
from kerneldojo.contestant.host_platform import HostPlatform
from kerneldojo.contestant.runner import Runner
from kerneldojo.devices.cuda.page import Page
from kerneldojo.judging import Judge
from kerneldojo.judging.ends import Late, Unfinished
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.gated_session import GatedSession
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, host_arena
from kerneldojo.judging.protocol import LEAST_DEVICE_SECONDS, PROTOCOLS, Protocol, protocol
from kerneldojo.judging.surroundings import request
from kerneldojo.schema import Status

EXPLOITS = Path(__file__).parent.parent / "exploits"
SLOW = """
import time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, seconds):
        time.sleep(seconds)
        return torch.zeros(1)
"""


class Told(HostArena):
    """An arena whose other side says what it is done with."""

    returned = 0

    def __init__(self, fd: int, num_bytes: int) -> None:
        super().__init__(fd, num_bytes)
        self.was_asked = threading.Event()
        """Whether it has said that a command is done with."""

    def has_returned(self, number: int) -> bool:
        if number == self.returned:
            self.was_asked.set()
        return number == self.returned


@pytest.fixture
def guest() -> Guest:
    return Guest(Gate(2))


@contextmanager
def sleeper(server: ForkServer, guest: Guest, device_seconds: float) -> Generator[tuple[GatedSession, Told]]:
    """A real process that sleeps when it is called."""
    arena = Told((made := host_arena(COMPILE_ARENA_BYTES)).fd, made.num_bytes)
    session = GatedSession(server, arena, request(Protocol(), "h100"), guest)
    session.device_seconds = device_seconds
    room = {"start": 0, "stop": 1 << 16}
    try:
        session.ask("load", timeout=60.0, source=SLOW, entry_point="ModelNew")
        made_with = {"seed": 1, "training": True, "arguments": {"list": []}}
        session.ask("construct", timeout=60.0, instance="one", entry_point="ModelNew", **made_with, **room)
        yield session, arena
    finally:
        session.close()


def call(session: GatedSession, seconds: float) -> None:
    arguments = {"list": [{"value": seconds}]}
    session.post("call", instance="one", seed=1, arguments=arguments, start=0, stop=1 << 16)


def test_who_has_returned_is_not_waited_for_as_long_as_who_computes(server: ForkServer, guest: Guest) -> None:
    with sleeper(server, guest, 0.2) as (session, arena):
        call(session, 3600.0)
        arena.returned = session._number
        with pytest.raises(Unfinished, match=r"still at work 0\.2 s later"):
            session.collect(600.0)
        assert session.ended is not None, "it was killed"


def test_what_ends_in_time_is_an_answer(server: ForkServer, guest: Guest) -> None:
    with sleeper(server, guest, 60.0) as (session, arena):
        call(session, 0.3)
        arena.returned = session._number
        assert "outputs" in session.collect(600.0)
        call(session, 0.0)
        assert "outputs" in session.collect(600.0)


def test_who_has_not_returned_has_all_of_its_time(server: ForkServer, guest: Guest) -> None:
    with sleeper(server, guest, 0.05) as (session, arena):
        call(session, 0.5)
        assert "outputs" in session.collect(600.0)
        arena.returned = session._number  # Of a command that was answered.
        call(session, 0.5)
        assert "outputs" in session.collect(600.0)


def test_who_has_returned_has_no_more_than_is_left(server: ForkServer, guest: Guest) -> None:
    with sleeper(server, guest, 600.0) as (session, arena):
        call(session, 3600.0)
        arena.returned = session._number
        with pytest.raises(Late) as late:
            session.collect(0.3)
        assert not isinstance(late.value, Unfinished)


def test_while_others_are_timed_the_device_is_theirs(server: ForkServer) -> None:
    gate = Gate(2)
    with gate.admit() as mine, gate.admit() as other, sleeper(server, mine, 5.0) as (session, arena):
        call(session, 0.0)
        session.collect(600.0)  # The first call takes longer than others.
        session.freeze()  # It cannot answer before the others' window, and that is as long as all of its time.
        call(session, 0.2)
        arena.returned = session._number
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(session.collect, 600.0)
            assert arena.was_asked.wait(60)
            time.sleep(0.2)
            with other.window():
                time.sleep(6.0)
                assert not answer.done(), "it was killed though the device was another's"
            assert "outputs" in answer.result(60)
        assert mine.seconds_held > 5.0


def test_the_two_sides_of_a_page_agree_which_command_is_done() -> None:
    mine = Page.create((1,))
    theirs = Page.open(mine.fd)
    assert not mine.has_returned(1)
    theirs.returned(1)
    assert mine.has_returned(1)
    assert not mine.has_returned(2)


class Noting(HostPlatform):
    """What a runner does with it, in order."""

    def __init__(self, fds: list[int]) -> None:
        super().__init__(fds)
        self.seen: list[Any] = []

    def loading(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def tell_returned(self, number: int) -> None:
        self.seen.append(number)

    def look(self, outputs: Any) -> None:
        self.seen.append("look")

    def place(self, tensor: torch.Tensor, packer: Any) -> Slot:
        self.seen.append("place")
        return super().place(tensor, packer)

    def synchronize(self) -> None:
        self.seen.append("wait")


def test_a_runner_says_that_hosted_code_has_returned_before_anything_waits(tmp_path: Path) -> None:
    arena = HostArena.create(1 << 16)
    platform = Noting([arena.fd])
    runner = Runner(platform, tmp_path)
    room = {"start": 0, "stop": 1 << 16}
    runner.answer({"op": "load", "number": 1, "source": SLOW, "entry_point": "ModelNew"})
    made_with = {"seed": 1, "training": True, "arguments": {"list": []}}
    runner.answer({"op": "construct", "number": 2, "instance": "a", "entry_point": "ModelNew", **made_with, **room})
    assert platform.seen == [1, "wait", 2, "wait"]
    platform.seen.clear()
    command = {"op": "call", "number": 3, "instance": "a", "seed": 1, "arguments": {"list": [{"value": 0.0}]}}
    assert "failure" not in runner.answer({**command, **room})
    assert platform.seen == [3, "look", "place", "wait", 3, "wait"]


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_no_verdict_could_make_its_calls_if_they_took_longer(name: str) -> None:
    vetted = protocol(name)
    num_timed = 16  # See `test_rounds_of_windows`.
    assert vetted.device_seconds * (vetted.num_rounds + vetted.num_repeats + num_timed) > 1.5 * vetted.timeout
    assert protocol(name, timeout=600.0).device_seconds == 2 * protocol(name, timeout=300.0).device_seconds
    assert protocol(name, timeout=10.0).device_seconds == LEAST_DEVICE_SECONDS


@pytest.mark.gpu
def test_a_kernel_that_never_ends_is_ended_long_before_the_time_is_up() -> None:
    problem = Problem(name="swish", source=(EXPLOITS / "problems" / "swish.py").read_text())
    endless = Candidate(source=(EXPLOITS / "candidates" / "fault_endless_device.py").read_text())
    with Judge() as judge:
        found = judge.judge(problem, endless, device="cuda:0")
        assert found.status is Status.TIMEOUT
        assert "it had returned, but what it had launched did not end within 10 s" in found.message
