"""The steps of a verdict on a GPU, rehearsed with real processes on the host: all but contexts, clock and profile.

Hosted processes are forks that interpret kernels; they are locked in, asked, frozen, thawed and ended as on a GPU. What
needs the device itself (the windows' clock, CUPTI) is replaced by something that looks at the other processes instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_steps import (
    BUILT,
    CALL,
    DIES_AS_IT_OPENS,
    HONEST,
    IN_PLACE,
    KERNEL,
    LATER_WRONG,
    LIBRARY,
    PROBLEM,
    TICKS,
    TWIN,
    AlwaysClean,
    HostBench,
    Profile,
    Windows,
    idle,
    is_stopped,
    judge,
    passed,
    refused,
    ticks,
)

from kerneldojo import Candidate, Problem
from kerneldojo.contestant.sandbox import processes
from kerneldojo.judging import cuda, measurement, runners
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol, protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.shares import CONTEXT_BYTES, Shares
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import language_of
from kerneldojo.schema import Status
from kerneldojo.schema.pace import ONE_AT_A_TIME, Pace


def test_a_verdict_opens_what_it_needs_when_it_needs_it(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    findings = passed(judge(bench, HONEST, tmp_path))
    runner, contestant, twin = asked
    assert asked[contestant][:4] == ["parse", "furnish", "load", "open"]
    assert asked[runner][:2] == ["open", "load"]
    assert asked[twin][:3] == ["furnish", "open", "load"]
    assert asked[runner][-1] == "settle"
    assert [session.ended is None for session in asked] == [True, False, False]
    assert idle(bench)[0].hosted.session is runner
    assert set(findings.stage_seconds) >= {"start", "build", "contexts", "correctness", "timing", "cause", "end"}


def test_the_twin_is_on_its_way_while_the_rounds_are_played(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[Session, str]] = []
    post = Session.post

    def noted(session: Session, operation: str, *descriptors: Any, **fields: Any) -> None:
        order.append((session, operation))
        post(session, operation, *descriptors, **fields)

    monkeypatch.setattr(Session, "post", noted)
    passed(judge(bench, HONEST, tmp_path))
    _, contestant, twin = asked
    calls = [number for number, asked_for in enumerate(order) if asked_for == (contestant, "call")]
    opened = order.index((twin, "open"))
    assert calls[0] < opened < calls[-1], "after a round was passed, before the last one"


def test_a_twin_on_its_way_ends_with_a_candidate_that_is_wrong_later(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    settings = replace(TWIN, num_rounds=2, num_repeats=2)
    assert refused(judge(bench, LATER_WRONG, tmp_path, settings)).status is Status.INCORRECT
    assert [session.ended is None for session in asked] == [True, False, False]


def test_an_extension_is_built_once_for_both_sides_and_nobody_is_left_when_time_is_taken(
    bench: HostBench, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    living: list[int] = []
    frozen_for_others: list[bool] = []
    prepare, run, begin = windows.prepare, windows.run, bench.workshop

    def begun(lines: Any, settings: Protocol, guest: Any) -> Session:
        session = begin(lines, settings, guest)
        frozen_for_others.append(session in guest.sessions)
        return session

    def count(*arguments: Any) -> None:
        living.append(sum(session.ended is None for session in asked))
        run(*arguments)

    def look(match: Any, *rest: Any) -> Any:
        living.append(sum(session.ended is None for session in asked))
        return prepare(match, *rest)

    windows.prepare, windows.run, bench.workshop = look, count, begun  # type: ignore[method-assign]
    findings = passed(judge(bench, BUILT, tmp_path))
    assert findings.num_built == (1, 2)
    assert frozen_for_others == [True]
    runner, contestant, workshop, twin = asked
    assert asked[workshop] == ["count"]
    assert asked[twin][:3] == ["furnish", "load", "open"]
    assert living == [4, 3], "all but the workshop"
    assert [session.ended is None for session in (runner, contestant, workshop, twin)] == [True, False, False, False]
    assert workshop.ended is not None
    assert workshop.ended["cause"] == "killed"
    assert not any(session._scratch.exists() for session in (contestant, workshop, twin))


def test_what_does_not_compile_is_found_in_the_workshop(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    ruling = refused(judge(bench, BUILT.replace("PyLong_FromLong(1)", "PyLong_FromLong(one)"), tmp_path))
    assert ruling.status is Status.COMPILE_ERROR
    assert "was not declared" in ruling.message
    assert [session.ended is None for session in asked] == [True, False, False, False]


@pytest.mark.parametrize("compiles", [True, False])
def test_a_workshop_that_is_killed_is_no_fault_of_the_candidates(
    bench: HostBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    begin = bench.workshop

    def killed(*arguments: Any) -> Session:
        session = begin(*arguments)
        session.wait_started()
        os.kill(max(session.pids()), signal.SIGKILL)
        return session

    monkeypatch.setattr(bench, "workshop", killed)
    if compiles:
        assert passed(judge(bench, BUILT, tmp_path)).num_built is None
        return
    with pytest.raises(Infrastructure, match="a workshop ended: signal 9"):
        judge(bench, BUILT.replace("PyLong_FromLong(1)", "PyLong_FromLong(one)"), tmp_path)


def test_a_runner_serves_the_next_candidate_and_waits_frozen(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    passed(judge(bench, HONEST, tmp_path))
    (runner,) = idle(bench)
    pids = runner.hosted.session.pids()
    assert pids
    assert is_stopped(runner.hosted.session)
    num_asked = len(asked[runner.hosted.session])
    passed(judge(bench, HONEST + "# 2\n", tmp_path))
    assert idle(bench) == [runner]
    assert runner.hosted.session.pids() == pids
    assert runner.num_uses == 2
    assert "load" not in asked[runner.hosted.session][num_asked:]


@pytest.mark.parametrize(
    ("source", "status", "expected"),
    [
        ("class ModelNew(:\n", Status.COMPILE_ERROR, ["parse"]),
        ("import nothing_of_this_name\nModelNew = 1\n", Status.COMPILE_ERROR, ["parse", "furnish", "load"]),
        ("raise SystemExit\nModelNew = 1\n", Status.COMPILE_ERROR, ["parse", "furnish", "load"]),
    ],
)
def test_what_does_not_import_costs_no_context(
    bench: HostBench,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    source: str,
    status: Status,
    expected: list[str],
) -> None:
    assert refused(judge(bench, source, tmp_path)).status is status
    runner, contestant = asked
    assert asked[contestant] == expected
    assert asked[runner] == ["settle"]
    assert len(idle(bench)) == 1, "a runner that has not been used is there for the next"


def test_what_is_wrong_or_brings_no_kernel_needs_no_twin(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    assert refused(judge(bench, HONEST.replace("tl.sigmoid(x)", "x"), tmp_path)).status is Status.INCORRECT
    assert list(asked.values())[2] == []
    verdict = refused(judge(bench, LIBRARY, tmp_path))
    assert [exploit.name for exploit in verdict.exploits] == ["no_own_kernel"]
    assert list(asked.values())[4] == []


BREAKS_WITHOUT_ITS_KERNEL = KERNEL + CALL.replace(
    "        return y",
    """        if not torch.isfinite(y).all():
            BROKEN.append("an index that nobody wrote")
            raise RuntimeError("CUDA error: device-side assert triggered")
        return y
    def __init__(self):
        super().__init__()
        if BROKEN:  # As a context that a kernel has broken: whatever touches it raises.
            raise RuntimeError("CUDA error: device-side assert triggered")
BROKEN = []
""",
)


def test_who_breaks_for_good_without_its_kernels_depends_on_them(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    passed(judge(bench, BREAKS_WITHOUT_ITS_KERNEL, tmp_path))
    *_, twin = asked
    told = asked[twin][-4:]
    assert told == ["construct", "call", "construct", "construct"], "it could not even be made once more"


def test_the_twin_compiles_its_kernels_while_rounds_go_on(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    passed(judge(bench, HONEST, tmp_path))
    _, contestant, twin = asked
    rehearsal = ["construct", "call"]
    assert asked[twin][asked[twin].index("load") + 1 :][:4] == [*rehearsal, "construct", "call"]
    assert asked[contestant].count("call") > 2


def test_who_ended_a_process_that_opens_its_device(bench: HostBench, windows: Windows, tmp_path: Path) -> None:
    assert refused(judge(bench, DIES_AS_IT_OPENS, tmp_path)).status is Status.RUNTIME_ERROR
    bench.can_open = lambda *_: False  # type: ignore[method-assign]
    with pytest.raises(Infrastructure, match="makes no context"):
        judge(bench, DIES_AS_IT_OPENS, tmp_path)


def test_a_fork_server_that_dies_takes_its_runners_with_it_and_no_more(
    bench: HostBench, windows: Windows, tmp_path: Path
) -> None:
    passed(judge(bench, HONEST, tmp_path))
    (old,) = idle(bench)
    assert bench.server._process is not None
    os.kill(bench.server._process.pid, signal.SIGKILL)
    bench.server._process.wait()
    passed(judge(bench, HONEST, tmp_path))
    assert old not in idle(bench)
    assert len(idle(bench)) == 1


@pytest.mark.parametrize("contexts_ahead", [0, 2])
def test_verdicts_beside_each_other_stand_still_in_a_window(
    server: ForkServer, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path, contexts_ahead: int
) -> None:
    bench = HostBench(server, 3, 2, pace=Pace(contexts_ahead=contexts_ahead))
    bench._canary = AlwaysClean()  # type: ignore[assignment]
    sources = [*(f"{HONEST}# {number}\n" for number in range(3)), HONEST.replace("return y", "return y + 1")]
    with ThreadPoolExecutor(5) as threads:
        ticking = threads.submit(judge, bench, TICKS, tmp_path)
        while not any(map(ticks, windows.everybody)):
            assert not ticking.done()
            time.sleep(0.01)
        verdicts = list(threads.map(lambda source: judge(bench, source, tmp_path), sources))
        while not ticking.done():  # Its twin ticks, too, once it comes.
            for session in filter(ticks, windows.everybody):
                with contextlib.suppress(FileNotFoundError):  # It has ended meanwhile.
                    (session._scratch / "home" / "enough").touch()
            time.sleep(0.01)
        assert isinstance(ticking.result(), Findings)
    bench.close()
    assert [isinstance(verdict, Findings) for verdict in verdicts] == [True, True, True, False]
    assert (windows.num, windows.num_ticking, windows.num_moved) == (4, 3, 0), "who ticks stood still in three windows"
    assert all(session.ended is not None for session in asked)


@pytest.mark.parametrize(
    ("pace", "disturbed", "taken_in"),
    [
        (Pace(), False, ["beside"]),
        (Pace(), True, ["beside", "window"]),
        (ONE_AT_A_TIME, True, ["window"]),
    ],
)
def test_a_profile_that_was_disturbed_is_taken_again_in_a_window(
    server: ForkServer,
    windows: Windows,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pace: Pace,
    disturbed: bool,
    taken_in: list[str],
) -> None:
    bench = HostBench(server, 2, 2, pace=pace)
    bench._canary = AlwaysClean()  # type: ignore[assignment]
    seen: list[str] = []

    class Noted(Profile):
        def take(self, *_: Any) -> list[Any]:
            seen.append("window" if bench.gate._owner is not None else "beside")
            return []

        def take_beside(self, *_: Any) -> list[Any] | None:
            return None if self.take() == [] and disturbed else []

    monkeypatch.setattr(measurement, "profile", Noted())
    passed(judge(bench, HONEST, tmp_path))
    bench.close()
    assert seen == taken_in
    assert bench.gate.most_in_a_row == pace.windows_in_a_row


def test_calls_that_take_very_long_are_profiled_where_they_were_timed(
    server: ForkServer, windows: Windows, tmp_path: Path
) -> None:
    """Others have turns in the middle of each of them: that would be seen, and be in vain."""
    windows.is_hopeless = True
    bench = HostBench(server, 2, 2)
    bench._canary = AlwaysClean()  # type: ignore[assignment]
    passed(judge(bench, HONEST, tmp_path))
    bench.close()
    assert (windows.profile.num_beside, windows.profile.num_in_windows) == (0, 1)


@pytest.mark.parametrize(
    ("rows", "is_plausible", "num_series", "num_in_windows"),
    [
        ([{"device_us": 30.0}, {"device_us": 12.0}], True, 1, 0),
        ([{"device_us": 30.0}], True, 2, 0),  # Launches bind it.
        ([{"device_us": 30.0}], False, 2, 1),  # By the second figure others had turns in between.
        ([], True, 2, 0),  # It told nothing.
        (None, True, 2, 1),  # Others had turns in between.
    ],
)
def test_on_slow_cores_what_launches_bind_is_timed_once_more_and_the_profile_tells(
    server: ForkServer,
    windows: Windows,
    tmp_path: Path,
    rows: list[Any] | None,
    is_plausible: bool,
    num_series: int,
    num_in_windows: int,
) -> None:
    profiled = windows.profile
    windows.is_host_slow, profiled.rows, profiled.is_plausible = True, rows, is_plausible
    bench = HostBench(server, 2, 2, pace=Pace(contexts_ahead=0))
    try:
        findings = passed(judge(bench, HONEST, tmp_path))
    finally:
        bench.close()
    assert windows.num == num_series
    assert (profiled.num_beside, profiled.num_in_windows) == (1, num_in_windows)
    assert any("cores were slow" in note for note in findings.notes) == (num_series == 2)


@pytest.mark.parametrize(("slowness", "share"), [((2.0, 1.2), 1.0), ((2.0, 1.6), 1.0), ((2.0, 1.9), 0.5)])
def test_whether_timing_once_more_was_worth_it_is_remembered(
    bench: HostBench,
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slowness: tuple[float, float],
    share: float,
) -> None:
    windows.is_host_slow = True
    monkeypatch.setattr(Guest, "slowness", property(lambda _: slowness[windows.num > 1]))
    assert any("cores were slow" in note for note in passed(judge(bench, HONEST, tmp_path)).notes)
    assert bench.second_series.share == share


@pytest.mark.parametrize("num_doubtful", [0, 1])
def test_where_that_was_in_vain_it_is_not_done_for_slow_cores_alone(
    bench: HostBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_doubtful: int
) -> None:
    windows.is_host_slow, windows.num_doubtful = True, num_doubtful
    monkeypatch.setattr(bench.second_series, "draw", lambda: False)
    passed(judge(bench, HONEST, tmp_path))
    assert windows.num == 1 + num_doubtful
    assert bench.second_series.share == 1.0, "of another doubt it learns nothing"


@pytest.mark.parametrize(("num_doubtful", "num_series"), [(0, 1), (1, 2), (9, 2)])
def test_a_series_in_doubt_is_run_once_more(
    bench: HostBench, windows: Windows, tmp_path: Path, num_doubtful: int, num_series: int
) -> None:
    windows.num_doubtful = num_doubtful
    findings = passed(judge(bench, HONEST, tmp_path))
    assert windows.num == num_series
    assert any("timed twice" in note for note in findings.notes) == (num_series == 2)


@pytest.mark.parametrize(("num_doubtful", "num_scattered", "num_series"), [(0, 1, 2), (0, 2, 3), (1, 2, 3), (9, 9, 3)])
def test_a_second_series_that_says_little_is_run_once_more_and_no_third(
    bench: HostBench, windows: Windows, tmp_path: Path, num_doubtful: int, num_scattered: int, num_series: int
) -> None:
    windows.num_doubtful, windows.num_scattered = num_doubtful, num_scattered
    findings = passed(judge(bench, HONEST, tmp_path))
    assert windows.num == num_series
    assert any("a third time" in note for note in findings.notes) == (num_series == 3)


def test_so_is_one_that_was_asked_for_slow_cores_alone(bench: HostBench, windows: Windows, tmp_path: Path) -> None:
    windows.is_host_slow = True
    passed(judge(bench, HONEST, tmp_path))
    assert windows.num == 2
    windows.num, windows.num_scattered = 0, 2
    windows.doubt = lambda *_: ""  # type: ignore[method-assign]
    passed(judge(bench, HONEST, tmp_path))
    assert windows.num == 3


def test_a_runner_that_waited_too_long_is_not_used_again(
    bench: HostBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed(judge(bench, HONEST, tmp_path))
    (old,) = idle(bench)
    monkeypatch.setattr(runners, "LONGEST_IDLE_SECONDS", 0.0)
    passed(judge(bench, HONEST, tmp_path))
    assert old not in idle(bench)
    assert old.hosted.session.ended is not None


def test_a_used_runner_that_ends_is_not_the_problems_fault(bench: HostBench, windows: Windows, tmp_path: Path) -> None:
    passed(judge(bench, HONEST, tmp_path))
    (runner,) = idle(bench)
    prepare = windows.prepare

    def kill(match: Any, *rest: Any) -> Any:
        os.kill(max(runner.hosted.session.pids()), signal.SIGKILL)
        return prepare(match, *rest)

    windows.prepare = kill  # type: ignore[method-assign]
    with pytest.raises(Infrastructure, match="served before"):
        judge(bench, HONEST, tmp_path)
    assert idle(bench) == []


@pytest.mark.parametrize(("error", "is_again"), [("torch.OutOfMemoryError", True), ("MemoryError", False)])
def test_who_runs_out_of_device_memory_in_company_is_judged_again_alone(
    server: ForkServer, windows: Windows, tmp_path: Path, error: str, is_again: bool
) -> None:
    """Host memory is each one's own: there is nothing to try again."""
    bench = HostBench(server, 2, 1)
    leave = threading.Event()

    def neighbour() -> None:
        with bench.gate.admit() as guest:
            guest.wait(leave.wait, 60.0)

    thread = threading.Thread(target=neighbour)
    thread.start()
    candidate = Candidate(source=HONEST.replace("y = torch.empty_like(x)", f"raise {error}"))
    findings = Findings(
        PROBLEM, candidate, protocol("quick"), "cuda:0", on_stage=lambda stage: stage == "end" and leave.set()
    )
    with pytest.raises(Ruling) as caught:
        cuda.judge_on_cuda(bench, Auditor(tmp_path), language_of(candidate), findings)
    thread.join(60)
    bench.close()
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert any("judged again alone" in note for note in findings.notes) == is_again


@pytest.mark.parametrize("part_bytes", [4 << 10, 12 << 10], ids=["nothing fits", "float64 does not fit"])
def test_a_problem_too_large_for_a_share_is_judged_alone_with_all_memory(
    server: ForkServer, windows: Windows, tmp_path: Path, part_bytes: int
) -> None:
    bench = HostBench(server, 2, 1, part_bytes)
    findings = passed(judge(bench, HONEST, tmp_path))
    assert findings.oracle == "float64"
    assert not [note for note in findings.notes if "memory" in note]
    assert bench.given[0] == bench.shares
    ((whole, auditing),) = bench.alone
    assert bench.given[-1] == whole
    assert bench.given.count(auditing) == 1, "an audit comes first, with a runner and nothing else"
    assert bench.given.index(auditing) < bench.given.index(whole)
    assert idle(bench) == []  # So large a runner would be in others' way.

    bench.given.clear()
    passed(judge(bench, HONEST, tmp_path))
    assert set(bench.given) == {whole}, "it is known by then, and so is what its audit found"

    bench.given.clear()
    other = Problem(name="small", source=PROBLEM.source.replace("4, 256", "1, 8"))
    passed(judge(bench, HONEST, tmp_path, problem=other))
    assert set(bench.given) == {bench.shares}, "others are not its affair"
    bench.close()

    another = HostBench(server, 2, 1, part_bytes)
    passed(judge(another, HONEST, tmp_path))
    assert set(another.given) == {whole}, "a judge that comes later knows from what is on disk"
    passed(judge(another, HONEST, tmp_path, problem=other))
    assert another.given[-1] == another.shares
    another.close()


@pytest.mark.parametrize(("part_bytes", "room"), [(4 << 10, 1), (1 << 10, 2)], ids=["half", "a quarter"])
def test_a_problem_too_large_for_a_share_is_judged_beside_others_like_it_where_it_fits(
    server: ForkServer, windows: Windows, tmp_path: Path, part_bytes: int, room: int
) -> None:
    larger = (Shares(2, 0, 8 * part_bytes), Shares(2, 0, 64 * part_bytes))
    bench = HostBench(server, 4, 1, part_bytes, larger=larger)
    findings = passed(judge(bench, HONEST, tmp_path))
    assert findings.oracle == "float64"
    assert bench.large == {PROBLEM.hash: room}
    tried = list(dict.fromkeys(bench.given))
    assert tried == [bench.shares, *larger[:room]], "in this order, and never alone"
    assert idle(bench) == []

    bench.given.clear()
    verdicts: list[Findings] = []
    together = threading.Barrier(2, timeout=60)
    draw = windows.draw

    def drawn(match: Any, *rest: Any, **more: Any) -> list[Any]:
        together.wait()
        return draw(match, *rest, **more)

    windows.draw = drawn  # type: ignore[method-assign]
    threads = [
        threading.Thread(target=lambda: verdicts.append(passed(judge(bench, HONEST, tmp_path, IN_PLACE))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(verdicts) == 2, "each waited for the other in the middle of its verdict"
    assert set(bench.given) == {larger[room - 1]}, "it is known by then"
    assert all("held" in one.stage_seconds for one in verdicts), "they had company"
    bench.close()


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_judge_without_room_for_the_answers_takes_all_of_the_device_or_says_so(
    server: ForkServer, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = HostBench(server, 2, 1, 1 << 20)
    answer, rooms = Reference.answer, []

    def short(self: Reference, *arguments: Any, **more: Any) -> Any:
        rooms.append(bench.given[-1])
        return out_of_memory() if bench.given[-1] == bench.shares else answer(self, *arguments, **more)

    monkeypatch.setattr(Reference, "answer", short)
    passed(judge(bench, HONEST, tmp_path))
    assert set(rooms) == {bench.shares, *bench.alone[0]}
    monkeypatch.setattr(Reference, "answer", out_of_memory)
    ruling = refused(judge(bench, HONEST, tmp_path / "other"))
    assert ruling.status is Status.INVALID_PROBLEM
    assert "too large" in ruling.message
    bench.close()


@pytest.mark.parametrize(
    ("judge_parts", "heap_parts", "has_more"),
    [(2.0, 1.9, False), (2.1, 1.9, True), (4.0, 1.9, True), (4.0, 0.9, False)],
)
def test_a_judge_without_room_goes_on_where_there_is_more_for_the_judge(
    server: ForkServer,
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    judge_parts: float,
    heap_parts: float,
    has_more: bool,
) -> None:
    whole = Shares(1, 0, 1 << 30, in_place=True)
    wide = replace(whole, judge_parts=judge_parts, heap_parts=heap_parts)
    bench = HostBench(server, 2, 1, 1 << 20, alone=(Alone(whole, whole), Alone(wide, wide)))
    answer = Reference.answer

    def short(self: Reference, *arguments: Any, **more: Any) -> Any:
        return out_of_memory() if bench.given[-1] in (bench.shares, whole) else answer(self, *arguments, **more)

    monkeypatch.setattr(Reference, "answer", short)
    if has_more:
        passed(judge(bench, HONEST, tmp_path, IN_PLACE))
        assert bench.large == {PROBLEM.hash: 2}
    else:
        assert refused(judge(bench, HONEST, tmp_path, IN_PLACE)).status is Status.INVALID_PROBLEM
    bench.close()


@pytest.mark.parametrize(
    ("has_all_tools", "status"), [(True, Status.RUNTIME_ERROR), (False, Status.UNSUPPORTED_ON_DEVICE)]
)
def test_a_device_that_lacks_nothing_is_not_told_that_it_does(
    bench: HostBench, windows: Windows, tmp_path: Path, has_all_tools: bool, status: Status
) -> None:
    """It is a claim of the candidate's process, and whoever makes it is not scored."""
    bench.has_all_tools = has_all_tools  # type: ignore[misc]
    claim = "class UnsupportedOnDevice(Exception):\n    __module__ = 'kerneldojo.mine'\n"
    claim += "from kerneldojo.contestant import failure\nfailure._is_told = lambda *_: True\n"
    source = claim + HONEST.replace("y = torch.empty_like(x)", "raise UnsupportedOnDevice")
    assert refused(judge(bench, source, tmp_path)).status is status


@pytest.mark.parametrize("gib", [0, 40], ids=["somebody else", "the candidate"])
@pytest.mark.parametrize("lacking", ["the reference", "the judge", "the twin"])
def test_whoever_has_taken_the_memory_that_others_lack_answers_for_it(
    server: ForkServer,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gib: int,
    lacking: str,
) -> None:
    """Faults of ours and of a problem's are not scored: with a wrong kernel it would pay to take all there is."""
    bench, auditor = HostBench(server, 2, 1, 1 << 20), Auditor(tmp_path)

    def free_bytes() -> int:
        has_candidate = any("parse" in told and session.ended is None for session, told in asked.items())
        return 0 if has_candidate else 2 * CONTEXT_BYTES + (gib << 30)

    def cannot_open(*_: Any) -> None:
        raise Infrastructure("no context")

    monkeypatch.setattr(bench, "free_bytes", free_bytes)
    if lacking == "the judge":
        monkeypatch.setattr(Reference, "answer", out_of_memory)
    elif lacking == "the reference":
        monkeypatch.setattr(Reference, "prepare", cannot_open)
    else:
        monkeypatch.setattr(Twin, "arrive", cannot_open)
    candidate = Candidate(source=HONEST)
    if lacking == "the reference":  # It is opened first by an audit, where there is no candidate.
        monkeypatch.setattr(bench, "next_room", lambda *_: None)
    findings = Findings(PROBLEM, candidate, TWIN, "cuda:0")
    with pytest.raises((Ruling, Infrastructure)) as caught:
        cuda.judge_on_cuda(bench, auditor, language_of(candidate), findings)
    bench.close()
    if gib:
        assert isinstance(caught.value, Ruling)
        assert caught.value.status is Status.OUT_OF_MEMORY
        assert "GiB of device memory beside" in caught.value.message
        assert not bench.large, "the problem is as small as it was"
        assert not any(report.lacks for report in auditor._memory.values())
    else:
        assert getattr(caught.value, "status", None) is not Status.OUT_OF_MEMORY


def test_nothing_is_left_below_a_closed_bench(server: ForkServer, windows: Windows, tmp_path: Path) -> None:
    bench = HostBench(server, 1, 2)
    passed(judge(bench, HONEST, tmp_path))
    (runner,) = idle(bench)
    pids = runner.hosted.session.pids()
    bench.close()
    assert not any(processes.is_alive(pid) for pid in pids)
    assert len(bench.runners) == 0


FORGETS_TO_CLOSE = """
import atexit, sys
sys.path[:0] = [{folder!r}]
from gpu_steps import PROBLEM, ForkServer, HostBench, protocol
made = []
atexit.register(lambda: [bench.close() for bench in made])  # As for the judge behind `kerneldojo.judge`.
made.append(bench := HostBench(ForkServer("interpret"), 1, 2))
with bench.gate.admit() as guest, bench.lent_reference(PROBLEM, protocol("quick"), guest) as reference:
    reference.post_open()
    reference.prepare()
print(len(bench.runners))
"""


def test_a_process_that_forgets_to_close_ends_without_a_complaint() -> None:
    script = FORGETS_TO_CLOSE.format(folder=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
