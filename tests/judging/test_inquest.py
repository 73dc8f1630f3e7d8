"""Whose kernel does not end: all stand still, and a device that is at work without one of them was at work for that."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpu_steps import HONEST, HostBench, Windows, judge, passed, refused

from kerneldojo import Candidate, Problem
from kerneldojo.contestant.arena import HostArena
from kerneldojo.devices.cuda import trials
from kerneldojo.judging import Judge, profile
from kerneldojo.judging.canary import Canary
from kerneldojo.judging.ends import Infrastructure, Late, Unfinished
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.gated_session import GatedSession
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.inquest import Inquest
from kerneldojo.judging.processes import ForkServer, Session
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
ENDLESS = HONEST.replace("y = torch.empty_like(x)", "import time; time.sleep(3600)")
"""It waits in its call, as whoever waits for a kernel of its own does."""


class Device:
    """Stands for one whose work ends with certain processes.

    Args:
        is_at_work: whether it is at work now.
        look: called at each song, while all should stand still.
    """

    def __init__(self, is_at_work: Callable[[], bool], look: Callable[[], None] = lambda: None) -> None:
        self._is_at_work, self._look = is_at_work, look
        self.asked: list[float] = []

    def becomes_idle(self, seconds: float) -> bool:
        self.asked.append(seconds)
        self._look()
        return not self._is_at_work()


def session_of(server: ForkServer, guest: Guest, inquest: Inquest | None = None) -> GatedSession:
    """A real process that sleeps when it is called."""
    session = GatedSession(server, HostArena.create(COMPILE_ARENA_BYTES), request(Protocol(), "h100"), guest)
    room = {"start": 0, "stop": 1 << 16}
    try:
        session.ask("load", timeout=60.0, source=SLOW, entry_point="ModelNew")
        made_with = {"seed": 1, "training": True, "arguments": {"list": []}}
        session.ask("construct", timeout=60.0, instance="one", entry_point="ModelNew", **made_with, **room)
    except BaseException:
        session.close()
        raise
    session.inquest = inquest
    return session


def stands_still(session: Session) -> bool:
    """Whether it does not answer before it is thawed; afterwards it is as it was, and its verdict is not told."""
    call(session, 0.0)
    is_silent = not session._door.has_frame(0.3)
    session.thaw()
    Session.collect(session, 30.0)
    session.freeze()
    return is_silent


@contextmanager
def alive(*sessions: Session) -> Generator[None]:
    try:
        yield
    finally:
        for session in sessions:
            session.close()


def call(session: GatedSession, seconds: float) -> None:
    arguments = {"list": [{"value": seconds}]}
    session.post("call", instance="one", seed=1, arguments=arguments, start=0, stop=1 << 16)


@pytest.mark.parametrize("in_own_window", [False, True])
def test_whose_end_leaves_the_device_idle_it_was(server: ForkServer, in_own_window: bool) -> None:
    gate = Gate(2)
    with gate.admit() as mine, gate.admit() as neighbour:
        session, other = session_of(server, mine), session_of(server, neighbour)
        with alive(session, other):
            stood_still: list[bool] = []
            device = Device(lambda: session.ended is None, lambda: stood_still.append(stands_still(other)))
            session.inquest = Inquest(device.becomes_idle, 0.4)
            call(session, 3600.0)
            gate.set_busy(neighbour, False)
            window = mine.window() if in_own_window else contextlib.nullcontext()
            with window, pytest.raises(Unfinished, match=r"still at work 0\.4 s after the last launch") as end:
                session.collect(600.0)
            assert end.value.is_its_own
            assert device.asked[0] == 0.4
            assert stood_still == [True, True]
            assert session.ended is not None, "it was killed"
            call(other, 0.0)
            gate.set_busy(neighbour, True)
            assert "outputs" in other.collect(60.0), "it goes on"


@contextmanager
def looked_into(server: ForkServer, device: Device, seconds: float) -> Generator[tuple[Guest, GatedSession]]:
    """A process of somebody who is alone with this device, and its verdict."""
    with Gate(1).admit() as guest:
        session = session_of(server, guest, Inquest(device.becomes_idle, seconds))
        with alive(session):
            yield guest, session


def test_all_processes_of_the_verdict_stand_still(server: ForkServer) -> None:
    with Gate(1).admit() as mine:
        session, twin = session_of(server, mine), session_of(server, mine)
        with alive(session, twin):
            stood_still: list[bool] = []
            device = Device(lambda: False, lambda: stood_still.append(stands_still(twin)))
            session.inquest = Inquest(device.becomes_idle, 0.2)
            call(session, 1.0)
            assert "outputs" in session.collect(60.0)
            assert stood_still and all(stood_still)
            call(twin, 0.0)
            assert "outputs" in twin.collect(60.0)


@pytest.mark.parametrize("has_company", [True, False])
def test_who_is_ended_in_vain_is_not_told_that_it_was_its_own(server: ForkServer, has_company: bool) -> None:
    gate = Gate(2)
    with gate.admit() as mine, gate.admit() if has_company else contextlib.nullcontext() as neighbour:
        if isinstance(neighbour, Guest):
            gate.set_busy(neighbour, False)
        session = session_of(server, mine, Inquest(Device(lambda: True).becomes_idle, 0.1))
        with alive(session):
            call(session, 3600.0)
            with pytest.raises(Unfinished if has_company else Infrastructure) as end:
                session.collect(600.0)
            assert not isinstance(end.value, Unfinished) or not end.value.is_its_own
            assert session.ended is not None


def test_who_computes_on_an_idle_device_is_looked_at_seldom_and_at_no_cost(server: ForkServer) -> None:
    """A look is short then: it is taken after so long, twice as long and so on, and is no time of the candidate's."""
    device = Device(lambda: False, lambda: time.sleep(0.3))
    with looked_into(server, device, 0.2) as (mine, session):
        started = time.monotonic()
        call(session, 1.5)
        assert "outputs" in session.collect(600.0)
        num_looks = len(device.asked)
        assert device.asked == [0.2] * num_looks
        assert num_looks >= 2
        assert 0.1 * (2**num_looks - 1) + 0.3 * num_looks <= time.monotonic() - started
        assert mine.seconds_held >= 0.3 * num_looks


def test_who_answers_soon_is_not_looked_at(server: ForkServer) -> None:
    device = Device(lambda: True)
    with looked_into(server, device, 60.0) as (_, session):
        call(session, 0.2)
        assert "outputs" in session.collect(600.0)
        assert device.asked == []


@pytest.mark.parametrize(("seconds", "timeout", "num_looks"), [(60.0, 0.3, 0), (0.2, 1.0, 3)])
def test_who_has_no_time_left_is_late_however_often_it_was_looked_at(
    server: ForkServer, seconds: float, timeout: float, num_looks: int
) -> None:
    device = Device(lambda: False)
    with looked_into(server, device, seconds) as (_, session):
        call(session, 3600.0)
        started = time.monotonic()
        with pytest.raises(Late) as late:
            session.collect(timeout)
        assert not isinstance(late.value, Unfinished)
        assert len(device.asked) <= num_looks
        assert bool(device.asked) == bool(num_looks)
        assert time.monotonic() - started >= timeout


def test_before_a_source_is_loaded_nothing_that_takes_long_is_its_doing(server: ForkServer) -> None:
    """A neighbour's kernel makes it slow to be made ready, and it can have launched none."""
    with Gate(1).admit() as mine:
        session = GatedSession(server, HostArena.create(COMPILE_ARENA_BYTES), request(Protocol(), "h100"), mine)
        device = Device(lambda: True)
        session.inquest = Inquest(device.becomes_idle, 0.1)
        source = {"source": SLOW, "entry_point": "ModelNew"}
        with alive(session), ThreadPoolExecutor(1) as pool:
            session.freeze()
            session.post("parse", **source)
            answer = pool.submit(session.collect, 60.0)
            time.sleep(1.0)
            assert device.asked == []
            session.thaw()
            answer.result(60)
            session.freeze()
            session.post("load", **source)
            with pytest.raises(Infrastructure):
                session.collect(60.0)
            assert device.asked != []


def test_who_has_parted_stands_still_for_nobody(server: ForkServer) -> None:
    gate = Gate(2)
    with gate.admit() as mine, gate.admit() as other:
        session = session_of(server, mine)
        with alive(session):
            gate.set_busy(mine, False)
            session.part()
            session.part()
            assert mine.sessions == []
            with other.window():
                call(session, 0.0)
                assert "outputs" in session.collect(60.0)


def test_while_others_are_timed_nobody_is_looked_at(server: ForkServer) -> None:
    """A command that stands still for others takes no time."""
    gate = Gate(2)
    with gate.admit() as mine, gate.admit() as other:
        device = Device(lambda: True)
        session = session_of(server, mine, Inquest(device.becomes_idle, 8.0))
        with alive(session), ThreadPoolExecutor(1) as pool:
            session.freeze()  # It cannot answer before the others' window.
            call(session, 0.2)
            answer = pool.submit(session.collect, 600.0)
            time.sleep(0.2)
            with other.window():
                time.sleep(5.0)
                assert device.asked == []
            assert "outputs" in answer.result(60)
            assert device.asked == []


class Song:
    """Of a canary: slow while the device is at work."""

    def __init__(self, is_at_work: Callable[[], bool]) -> None:
        self._is_at_work = is_at_work

    def __call__(self) -> float:
        time.sleep(0.001)
        return 80.0 if self._is_at_work() else 40.0


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "device_seconds", property(lambda _: 0.5))


def with_canary(bench: HostBench, song: Callable[[], float]) -> HostBench:
    bench._canary = Canary(song)
    bench._canary.baseline = 40.0
    return bench


def living(asked: dict[Session, list[str]]) -> list[Session]:
    """Who was called, and lives."""
    return [one for one, told in asked.items() if one.ended is None and "load" in told and told[-1] == "call"]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("capacity", [1, 2])
def test_a_candidate_whose_kernel_does_not_end_is_told_so(
    server: ForkServer, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path, capacity: int
) -> None:
    bench = with_canary(HostBench(server, capacity, 1), Song(lambda: bool(living(asked))))
    ruling = refused(judge(bench, ENDLESS, tmp_path, protocol("quick")))
    bench.close()
    assert ruling.status is Status.TIMEOUT
    assert ruling.lacks == ""
    assert "forward: what it had launched did not end within" in ruling.message, "not when its time was up"


@pytest.mark.usefixtures("brief")
def test_a_device_that_a_stranger_uses_says_nothing_of_who_is_alone_with_it(
    server: ForkServer, windows: Windows, tmp_path: Path
) -> None:
    bench = with_canary(HostBench(server, 1, 1), Song(lambda: True))
    slow = HONEST.replace("y = torch.empty_like(x)", "import time; time.sleep(0.7); y = torch.empty_like(x)")
    passed(judge(bench, slow, tmp_path, protocol("quick")))
    bench.close()


@pytest.mark.usefixtures("brief")
def test_who_was_ended_for_a_neighbours_kernel_is_judged_again_alone(
    server: ForkServer, windows: Windows, tmp_path: Path
) -> None:
    bench = HostBench(server, 2, 1)
    leave, has_left = threading.Event(), threading.Event()
    with_canary(bench, Song(lambda: not has_left.is_set()))

    def neighbour() -> None:
        with bench.gate.admit() as guest:
            guest.wait(leave.wait, 60.0)
            has_left.set()

    thread = threading.Thread(target=neighbour)
    thread.start()
    slow = HONEST.replace("y = torch.empty_like(x)", "import time; time.sleep(0.7); y = torch.empty_like(x)")
    end = bench.end
    bench.end = lambda *arguments: (leave.set(), end(*arguments))[1]  # type: ignore[method-assign]
    found = passed(judge(bench, slow, tmp_path, protocol("quick")))
    thread.join(60)
    bench.close()
    assert [note for note in found.notes if "judged again alone" in note] == [
        "ended while another's kernel did not end, and was judged again alone"
    ]


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_no_verdict_could_make_its_calls_if_they_took_longer(name: str) -> None:
    vetted = protocol(name)
    num_calls = vetted.num_rounds + vetted.num_repeats + 1 + trials.FEW_CALLS + profile.FEWEST_PROFILED
    assert vetted.device_seconds * num_calls >= vetted.timeout
    assert protocol(name, timeout=600.0).device_seconds == 2 * protocol(name, timeout=300.0).device_seconds
    assert protocol(name, timeout=10.0).device_seconds == LEAST_DEVICE_SECONDS


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fault_endless_device", "fault_endless_waits"])
@pytest.mark.parametrize("num_verdicts", [1, 2])
def test_a_kernel_that_never_ends_is_ended_long_before_the_time_is_up(name: str, num_verdicts: int) -> None:
    problem = Problem(name="swish", source=(EXPLOITS / "problems" / "swish.py").read_text())
    endless = Candidate(source=(EXPLOITS / "candidates" / f"{name}.py").read_text())
    honest = Candidate(source=(EXPLOITS / "honest" / "swish.py").read_text())
    with Judge(num_verdicts=num_verdicts) as judge, ThreadPoolExecutor(1) as pool:
        beside = pool.submit(judge.judge, problem, honest, device="cuda:0")
        found = judge.judge(problem, endless, device="cuda:0")
        assert found.status is Status.TIMEOUT
        assert "what it had launched did not end within 8 s" in found.message
        assert beside.result(120).status is Status.PASSED
