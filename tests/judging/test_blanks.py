"""Contexts that are made ahead: who gets one, who costs none, and what becomes of those that nobody wants."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from gpu_steps import HONEST, LIBRARY, AlwaysClean, HostBench, Windows, idle, judge, passed, refused

from kerneldojo.contestant.arena import HostArena
from kerneldojo.devices.cuda.page import WANTS_DEVICE
from kerneldojo.judging.blanks import FEW, Blanks
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.processes import ForkServer, NoArena, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.surroundings import request
from kerneldojo.schema import Status
from kerneldojo.schema.pace import Pace

WANTED = request(Protocol(), "h100")


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:
    bench = HostBench(server, 2, 2, pace=Pace(contexts_ahead=2))
    bench._canary = AlwaysClean()  # type: ignore[assignment]
    yield bench
    bench.close()


@pytest.fixture
def begun() -> list[Session]:
    return []


@pytest.fixture
def blanks(server: ForkServer, begun: list[Session]) -> Generator[Blanks]:
    def begin(wanted: dict[str, Any]) -> Session:
        begun.append(Session(server, NoArena(), wanted))
        return begun[-1]

    blanks = Blanks(begin, 3)
    yield blanks
    blanks.close()
    assert all(session.ended is not None for session in begun)


def taken(blanks: Blanks, wanted: dict[str, Any] = WANTED) -> Session:
    deadline = time.monotonic() + 60
    while (session := blanks.take(wanted)) is None:
        assert time.monotonic() < deadline
        blanks.wait(0.1)
    return session


def full(blanks: Blanks, num: int) -> None:
    deadline = time.monotonic() + 60
    while len(blanks) < num:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def answered_late(
    server: ForkServer, furnish: Callable[[Session], bool], is_good: Callable[[], bool], answered: threading.Event
) -> Generator[Blanks]:
    """One more blank than a few, begun; `furnish` may wait for `answered`."""
    blanks = Blanks(lambda wanted: Session(server, NoArena(), wanted), FEW + 1, furnish, is_good)
    try:
        blanks.take(WANTED)
        full(blanks, FEW)
        yield blanks
    finally:
        answered.set()
        blanks.close()


def goes_on(blanks: Blanks, last: Session, answered: threading.Event) -> None:
    """The last one stands still, where it can be stopped, until it is ready."""
    assert last._brake.is_held == last._brake.is_direct
    answered.set()
    full(blanks, FEW + 1)
    assert not last._brake.is_held


def test_as_long_as_a_few_are_ready_more_are_made_only_at_good_moments(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneldojo.judging.blanks.STILL_SECONDS", 60.0)
    is_good, asked, answered = False, list[Session](), threading.Event()

    def furnish(session: Session) -> bool:
        asked.append(session)
        if len(asked) > 1:
            answered.wait(60)
        return False

    with answered_late(server, furnish, lambda: is_good, answered) as blanks:
        time.sleep(0.3)
        assert len(blanks) == FEW
        is_good = True
        blanks.begin_moment()
        while len(asked) <= FEW:
            time.sleep(0.01)
        is_good = False
        blanks.end_moment()
        goes_on(blanks, asked[-1], answered)


def test_those_that_run_because_none_was_ready_stand_still_once_one_is(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneldojo.judging.blanks.STILL_SECONDS", 60.0)
    asked, together, answered = list[Session](), threading.Barrier(FEW + 1), threading.Event()

    def furnish(session: Session) -> bool:
        asked.append(session)
        together.wait(60)
        if session not in asked[:FEW]:
            answered.wait(60)
        return False

    with answered_late(server, furnish, lambda: False, answered) as blanks:
        goes_on(blanks, asked[-1], answered)


def test_one_has_its_memory_before_it_is_taken_or_gets_it_then(server: ForkServer) -> None:
    given: list[Session] = []

    def furnish(session: Session) -> bool:
        if given:
            return False
        given.append(session)
        session.arena = HostArena.create(1 << 20)
        session.post("furnish", session.arena.fds)
        return True

    blanks = Blanks(lambda wanted: Session(server, NoArena(), wanted), 2, furnish)
    try:
        full_after_asking = blanks.take(WANTED)
        assert full_after_asking is None
        full(blanks, 2)
        both = [taken(blanks), taken(blanks)]
        assert sorted(session.has_arena for session in both) == [False, True]
        for session in both:
            assert session.is_idle()
            session.close()
    finally:
        blanks.close()


def of_kind(asked: dict[Session, list[str]], *first: str) -> list[Session]:
    return [session for session, told in asked.items() if tuple(told[: len(first)]) == first]


def test_a_verdict_takes_processes_that_have_opened_their_device(
    bench: HostBench, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    in_windows: list[list[Session]] = []
    run = windows.run

    def noted(*arguments: Any) -> None:
        owner = bench.gate._owner
        in_windows.append(list(owner.sessions) if owner is not None else [])
        run(*arguments)

    windows.run = noted  # type: ignore[method-assign]
    passed(judge(bench, HONEST, tmp_path))
    (trial,) = of_kind(asked, "parse")
    contestant, twin = of_kind(asked, "load_driver", "open", "furnish")  # In whichever order they were made.
    assert asked[trial] == ["parse", "load"]
    assert asked[contestant][:5] == ["load_driver", "open", "furnish", "load", "construct"]
    assert asked[twin][:5] == ["load_driver", "open", "furnish", "load", "construct"]
    assert [session.ended is None for session in (trial, contestant, twin)] == [False] * 3
    ((runner, *others),) = in_windows
    assert runner is idle(bench)[0].hosted.session
    assert set(others) == {contestant, twin}, "each has a core to itself, and nobody else"
    assert len(others) == 2
    full(bench.blanks or pytest.fail(), 2)
    assert len(idle(bench)) == 1


@pytest.mark.parametrize("source", ["class ModelNew(:\n", "import nothing_of_this_name\nModelNew = 1\n"])
def test_what_does_not_import_takes_none(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, source: str
) -> None:
    assert refused(judge(bench, source, tmp_path)).status is Status.COMPILE_ERROR
    assert not of_kind(asked, "load_driver")
    assert not bench.blanks


def test_what_does_not_compile_takes_none(bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path) -> None:
    bench.emulated = "h100"
    claim = "from kerneldojo.contestant.runner import Runner\n"
    claim += "Runner.do_dry_call = lambda *_: {'failure': {'kind': 'compile_error', 'text': 'no', 'line': 5}}\n"
    ruling = refused(judge(bench, f"{claim}{HONEST}", tmp_path))
    assert ruling.status is Status.COMPILE_ERROR
    assert ruling.message.startswith("forward: no (line 5: ")
    assert not of_kind(asked, "load_driver")
    assert not bench.blanks


def test_what_no_call_without_numbers_can_tell_the_device_tells(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    bench.emulated = "h100"
    passed(judge(bench, HONEST, tmp_path))  # Its kernels are interpreted, which have nothing to compile.
    (trial,) = of_kind(asked, "parse")
    assert asked[trial] == ["parse", "load", "dry_call"]


@pytest.mark.parametrize("word", ["nvrtc", "torch.cuda._compile_kernel", "cupy.RawKernel"])
def test_what_may_compile_cuda_by_itself_gets_a_context_of_the_usual_kind(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, word: str
) -> None:
    """Those that are opened ahead have a smaller stack for functions that call themselves."""
    told: list[tuple[str, Any]] = []
    post = Session.post

    def noted(session: Session, operation: str, *descriptors: Any, **fields: Any) -> None:
        told.append((operation, fields.get("lean", False)))
        post(session, operation, *descriptors, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "post", noted)
        passed(judge(bench, f"# {word}\n{HONEST}", tmp_path))
    assert not of_kind(asked, "load_driver"), "nothing was opened ahead"
    # The reference runner's is lean; the candidate's are not, which open theirs when they are needed.
    assert sorted(lean for operation, lean in told if operation == "open") == [False, False, True]


@pytest.mark.parametrize("code", [WANTS_DEVICE, 3])
def test_a_source_that_wants_the_device_as_it_is_imported_is_imported_where_there_is_one(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, code: int
) -> None:
    """It ends where there is none, by our hand; whoever ends otherwise has ended itself."""
    has_none = "import gc, os\nfrom kerneldojo.contestant.host_platform import HostPlatform\nif not any("
    has_none += "isinstance(it, HostPlatform) and hasattr(it, 'arena') for it in gc.get_objects()):\n"
    verdict = judge(bench, f"{has_none}    os._exit({code})\n{HONEST}", tmp_path)
    if code == WANTS_DEVICE:
        passed(verdict)
        return
    assert refused(verdict).status is Status.RUNTIME_ERROR
    assert not of_kind(asked, "load_driver", "open", "furnish")


@pytest.mark.parametrize("kind", ["", "from torch.utils.cpp_extension import load_inline\n"])
@pytest.mark.parametrize("has_all_tools", [True, False])
def test_whoever_says_as_it_is_imported_that_the_device_lacks_something_is_scored(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, has_all_tools: bool, kind: str
) -> None:
    bench.has_all_tools = has_all_tools  # type: ignore[misc]
    claim = "class UnsupportedOnDevice(Exception):\n    __module__ = 'kerneldojo.mine'\n"
    claim += "from kerneldojo.contestant import failure\nfailure._is_told = lambda *_: True\n"
    ruling = refused(judge(bench, f"{kind}{claim}raise UnsupportedOnDevice\nclass ModelNew: ...\n", tmp_path))
    assert ruling.status is (Status.RUNTIME_ERROR if has_all_tools else Status.UNSUPPORTED_ON_DEVICE)


def test_who_brings_no_kernel_takes_one_and_no_more(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    assert [one.name for one in refused(judge(bench, LIBRARY, tmp_path)).exploits] == ["no_own_kernel"]
    assert len(of_kind(asked, "load_driver", "open", "furnish")) == 1


def test_one_judged_alone_has_the_device_without_them(
    server: ForkServer, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    bench = HostBench(server, 2, 1, 4 << 10, pace=Pace(contexts_ahead=2))  # The problem does not fit into a share.
    bench._canary = AlwaysClean()  # type: ignore[assignment]
    passed(judge(bench, HONEST, tmp_path))
    assert bench.blanks is not None
    assert not len(bench.blanks)
    assert all(session.ended is not None for session in of_kind(asked, "open") if "load" not in asked[session])
    bench.close()


def test_as_many_are_kept_as_were_asked_for(blanks: Blanks, begun: list[Session]) -> None:
    first = taken(blanks)
    full(blanks, 3)
    assert len(begun) == 4
    first.close()
    taken(blanks).close()
    full(blanks, 3)
    assert len(begun) == 5


def test_one_that_died_while_it_waited_is_not_given_away(blanks: Blanks, begun: list[Session]) -> None:
    taken(blanks).close()
    full(blanks, 3)
    dead = next(session for session in begun if session.ended is None)
    os.kill(max(dead.pids()), signal.SIGKILL)
    while not dead.has_ended():
        time.sleep(0.01)
    living = {taken(blanks) for _ in range(3)}
    assert dead not in living
    for session in living:
        session.close()


def test_others_are_made_for_other_requests(blanks: Blanks, begun: list[Session]) -> None:
    taken(blanks).close()
    full(blanks, 3)
    other = {**WANTED, "limits": {**WANTED["limits"], "num_processes": 100}}
    one = taken(blanks, other)
    one.close()
    assert all(session.ended is not None for session in begun[:4])


def test_evicted_ones_are_gone_and_none_is_made_until_somebody_asks(blanks: Blanks, begun: list[Session]) -> None:
    taken(blanks).close()
    blanks.evict()  # Some are under way.
    num = len(begun)
    assert all(session.ended is not None for session in begun)
    time.sleep(0.2)
    assert len(begun) == num
    taken(blanks).close()


def test_whoever_closes_does_not_wait_for_a_device_that_hangs(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    post = Session.post

    def hang(session: Session, operation: str, *given: Any, **fields: Any) -> None:
        os.kill(max(session.pids()), signal.SIGSTOP)
        hanging.set()
        post(session, operation, *given, **fields)

    monkeypatch.setattr(Session, "post", hang)
    blanks = Blanks(lambda wanted: Session(server, NoArena(), wanted), 1)
    assert blanks.take(WANTED) is None
    assert hanging.wait(60)
    closing = threading.Thread(target=blanks.close)
    closing.start()
    closing.join(30)  # Opening has 60 seconds.
    assert not closing.is_alive()


def test_a_device_that_makes_none_is_told_once_and_tried_again(blanks: Blanks, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = threading.Event()
    refusing.set()
    post = Session.post

    def refuse(session: Session, operation: str, *given: Any, **fields: Any) -> None:
        if refusing.is_set():
            os.kill(max(session.pids()), signal.SIGKILL)
        post(session, operation, *given, **fields)

    monkeypatch.setattr(Session, "post", refuse)
    with pytest.raises(Infrastructure, match="could not open its device: signal 9"):
        taken(blanks)
    refusing.clear()
    for _ in range(10):  # Others were refused, too, and may not have been told yet.
        with contextlib.suppress(Infrastructure):
            taken(blanks).close()
            return
    pytest.fail("it is told again and again")
