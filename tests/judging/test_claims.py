"""What a hosted process says may be anything: none of it is a fault of the judge's, which nobody would score."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.contestant.arena import BadSlot, HostArena, Packer, Slot
from kerneldojo.devices import parse
from kerneldojo.devices.cuda.memory import OutOfRegionError
from kerneldojo.judging import processes
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.ends import Failed, Tampered, failed, readable, seconds_of
from kerneldojo.judging.hosted import Copier, Hosted, take_named
from kerneldojo.judging.outputs import check_buffers
from kerneldojo.judging.pricing import told_kernels
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.ruling import Ruling, in_source
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.target_build import Compilations, TargetBuild
from kerneldojo.judging.verdict import MAX_KERNELS, Findings
from kerneldojo.schema import Candidate, Evaluation, KernelTime, Problem, Status

ARENA_BYTES = 1 << 16


@pytest.fixture
def arena() -> HostArena:
    made = HostArena.create(ARENA_BYTES)
    made.view(Slot(offset=0, shape=[ARENA_BYTES], stride=[1], dtype="uint8")).fill_(1)  # No more is copied than exists.
    return made


def slot(shape: list[int], stride: list[int] | None = None, offset: int = 0) -> dict[str, Any]:
    return {"tensor": {"offset": offset, "shape": shape, "stride": stride or [1] * len(shape), "dtype": "float32"}}


def read(arena: HostArena, **claims: Any) -> Any:
    session: Any = SimpleNamespace(arena=arena)
    answer = {"outputs": {"list": [slot([4])]}, "kinds": [{"fake": False}], "elapsed": 0.5, **claims}
    return Contestant(session, Submission(Candidate(source="pass")), 10.0)._read(answer, "forward")


def test_an_answer_is_read_as_it_is_told(arena: HostArena) -> None:
    answer = read(arena)
    assert (len(answer.outputs), answer.kinds, answer.elapsed) == (1, [{"fake": False}], 0.5)


@pytest.mark.parametrize(
    "claims",
    [
        {"elapsed": "soon"},
        {"elapsed": -1.0},
        {"kinds": []},
        {"kinds": [1]},
        {"kinds": {"fake": False}},
        {"outputs": slot([0, 1 << 70], [1, 1])},
        {"outputs": slot([1 << 70], [0])},
        {"outputs": slot([ARENA_BYTES], [0])},
        {"outputs": {"list": [slot([ARENA_BYTES // 4])] * 2}, "kinds": [{}, {}]},
        {"outputs": None},
    ],
)
def test_what_cannot_be_is_tampering_and_the_judge_copies_no_more_than_there_is(arena: HostArena, claims: Any) -> None:
    with pytest.raises(Ruling) as caught:
        read(arena, **claims)
    assert [exploit.name for exploit in caught.value.exploits] == ["tampering"]


@pytest.mark.parametrize(
    ("fault", "is_its_own"),
    [
        (OutOfRegionError("it begins in one region and ends in another"), True),
        (RuntimeError("setStorage: out of bounds"), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
    ],
)
def test_a_description_is_its_authors_and_a_broken_device_is_not(fault: Exception, is_its_own: bool) -> None:
    def view(_: Any) -> torch.Tensor:
        raise fault

    arena = SimpleNamespace(view=view, num_bytes=ARENA_BYTES, most_told=ARENA_BYTES)
    session: Any = SimpleNamespace(arena=arena)
    for take, told in ((Hosted.take, slot([4])), (Hosted.take_named, [["weight", slot([4])["tensor"]]])):
        with pytest.raises(Tampered if is_its_own else type(fault)):
            take(Hosted(session, 1.0), told)


def test_a_buffer_of_another_size_is_not_updated_as_it_should_be() -> None:
    expected = Expected([], {"native": []}, {"mean": torch.zeros(4)}, mutates_inputs=False, work=[])
    with pytest.raises(Ruling, match="another size") as caught:
        check_buffers({"mean": torch.zeros(3)}, expected, 1, Delivery(names=[], needed=False))
    assert caught.value.status is Status.INCORRECT


def test_half_a_character_does_not_keep_a_verdict_from_being_written() -> None:
    findings = Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("quick"), "cpu")
    findings.kernels = (KernelTime(name="k\ud800", device_ms=1.0),)
    verdict = findings.evaluation(Ruling(Status.RUNTIME_ERROR, "forward: \ud800"))
    assert Evaluation.model_validate_json(verdict.model_dump_json()) == verdict


@pytest.mark.parametrize("num_pairs", [0, 1])
def test_a_session_that_cannot_begin_gives_everything_back(
    arena: HostArena, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, num_pairs: int
) -> None:
    """No descriptors, no files: device memory that nobody knows of would be lost until the judge ends."""
    made: list[Any] = []
    pair = processes.channel_pair

    def channel_pair() -> Any:
        if len(made) == num_pairs:
            raise OSError("too many open files")
        made.append(pair())
        return made[-1]

    monkeypatch.setattr(processes, "channel_pair", channel_pair)
    monkeypatch.setattr(processes, "own_folder", lambda: tmp_path)
    server: Any = None
    with pytest.raises(OSError, match="too many"):
        Session(server, arena, {})
    assert arena.fd == -1
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    assert all(ours.fileno() == theirs.fileno() == -1 for ours, theirs in made)


@pytest.mark.parametrize("claim", [None, 1, "x", {"a": 1}, [1]])
def test_what_a_compiling_contestant_says_is_a_list_or_tampering(claim: Any) -> None:
    hosted = SimpleNamespace(collect=lambda: {"compiled": claim}, tell=lambda *_, **__: None)
    with pytest.raises(Ruling, match="malformed"):
        compiling(hosted).collect()


def test_a_compiling_contestant_that_is_gone_is_the_candidates_doing() -> None:
    def post(*_: Any, **__: Any) -> None:
        raise Tampered("it spoke without being asked")

    with pytest.raises(Ruling) as caught:
        compiling(SimpleNamespace(tell=post))
    assert caught.value.status is Status.EXPLOIT


def compiling(hosted: Any) -> TargetBuild:
    """A build that was posted to a contestant with this session."""
    contestant = SimpleNamespace(hosted=hosted, collect_load=lambda _: None)
    bench: Any = None
    build = TargetBuild(
        bench, Compilations(), Submission(Candidate(source="pass")), protocol("quick"), parse("model:h100")
    )
    build._begin = lambda: contestant  # type: ignore[assignment, return-value]
    build._contestant = contestant  # type: ignore[assignment]
    build.post([], 1.0)
    return build


@pytest.mark.parametrize("claim", ["soon", [1], {}, True, -1.0, float("nan"), float("inf"), 10**400])
def test_a_duration_is_a_number_of_seconds(claim: object) -> None:
    with pytest.raises(Tampered):
        seconds_of(claim)
    assert seconds_of(None) == 0.0
    assert seconds_of(2) == 2.0


def test_a_failure_can_be_written_down_whatever_it_says() -> None:
    end = failed({"kind": "runtime_error", "text": "\ud800\u202e\x1b[2J\nline", "line": 1}, None)
    assert isinstance(end, Failed)
    assert end.text == "???[2J\nline"
    Evaluation(status=Status.RUNTIME_ERROR, message=end.text).model_dump_json()
    assert readable(["a"], 3) == "['a"


def test_more_than_was_written_is_not_copied() -> None:
    arena = HostArena.create(1 << 30)
    slot = Packer(arena).put(torch.ones(256, 256))
    copier = Copier(arena)
    assert torch.equal(copier(slot), torch.ones(256, 256))
    with pytest.raises(BadSlot):
        copier(slot)
    with pytest.raises(BadSlot):
        Copier(arena)(Slot(offset=0, shape=[1 << 27], stride=[1], dtype="float32"))


@pytest.mark.parametrize("name", ["x" * 2000, ["x"], 1, None])
def test_a_tensors_name_is_one_that_a_command_can_repeat(name: object) -> None:
    arena = HostArena.create(1 << 20)
    slot = Packer(arena).put(torch.ones(3)).model_dump()
    assert list(take_named(arena, [["x", slot]])) == ["x"]
    with pytest.raises(Tampered):
        take_named(arena, [[name, slot]])


@pytest.mark.parametrize("pairs", [None, 5, [["x"]], [["x", {}]], [["x", 1, 2]]])
def test_a_state_is_a_list_of_names_and_slots(pairs: object) -> None:
    with pytest.raises(Tampered):
        take_named(HostArena.create(1 << 20), pairs)


def test_a_kernel_is_named_only_as_its_source_names_it() -> None:
    source = "def outer():\n    def kernel(): ..."
    assert in_source("outer.<locals>.kernel", source) == "outer.<locals>.kernel"
    assert in_source("kernel 0.5", source) == in_source("kernel_3", source) == ""


def test_a_verdict_lists_the_kernels_that_take_longest() -> None:
    kernels = [KernelTime(name=f"k{i}\u202e", device_ms=float(i)) for i in range(2 * MAX_KERNELS)]
    told = told_kernels(kernels)
    assert [kernel.name for kernel in told] == [f"k{i}?" for i in range(MAX_KERNELS, 2 * MAX_KERNELS)]
