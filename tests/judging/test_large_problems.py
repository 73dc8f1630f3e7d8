"""Problems that take a good part of the memory or the time there is: what lies where, and what is told apart."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.contestant.arena import Packer
from kerneldojo.contestant.failure import describe
from kerneldojo.devices.cuda.first_look import FirstLook
from kerneldojo.devices.cuda.platform import CudaPlatform
from kerneldojo.judging import audits, preparation
from kerneldojo.judging.alone import Alone, whole
from kerneldojo.judging.audits import Auditor, Limits
from kerneldojo.judging.division import divide
from kerneldojo.judging.host import host_arena
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol, protocol
from kerneldojo.judging.reference import Reference, patience
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status

GIB = 1 << 30
SOURCE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x): return x[:8].sum()
def get_inputs(): return [torch.rand(700_000)]
def get_init_inputs(): return []
"""


def test_arguments_and_results_may_take_more_than_half_of_what_is_shared(server: ForkServer) -> None:
    """Four MiB are shared, and one tensor of 2.8 MB goes out, and comes in again."""
    with Session(server, host_arena(4 << 20), request(Protocol(), "h100")) as session:
        reference = Reference(session, Problem(name="p", source=SOURCE))
        reference.load()
        inputs = reference.draw("get_inputs", 1)
        assert inputs[0].shape == (700_000,)
        assert reference.begin("m", 1, 1, training=True) == ([], {})
        expected = reference.expect("m", inputs, ("native",), 1)
        assert torch.equal(expected.outputs["native"][0], inputs[0][:8].sum())
        again = reference.draw("get_inputs", 1)
        assert torch.equal(again[0], inputs[0]), "what was taken is a copy"


def test_arguments_that_do_not_fit_are_the_problems_want_of_memory(server: ForkServer) -> None:
    """On a GPU what was drawn may lie elsewhere: then it is the judge who finds that it has no room for it."""
    with Session(server, host_arena(2 << 20), request(Protocol(), "h100")) as session:
        reference = Reference(session, Problem(name="p", source=SOURCE))
        reference.load()
        reference.begin("m", 1, 1, training=True)
        for give in (lambda: reference.expect("m", [torch.rand(700_000)], ("native",), 1), lambda: _given(session)):
            with pytest.raises(Ruling, match=r"too large: .* 2800000 bytes needed") as caught:
                give()
            assert (caught.value.status, caught.value.lacks) == (Status.INVALID_PROBLEM, "memory")


def _given(session: Session) -> Any:
    return Hosted(session, 60.0).give_tensors([torch.rand(700_000)])


def test_results_that_do_not_fit_lack_memory_of_the_device() -> None:
    """So they are judged again where there is more, as for any other want of it."""
    arena = host_arena(1 << 20)
    platform: Any = SimpleNamespace(device=torch.device("cuda", 0), arena=arena, _placed=[], _first_look=FirstLook())
    packer = Packer(arena)
    with pytest.raises(torch.OutOfMemoryError, match="4194304 bytes needed") as caught:
        CudaPlatform.place(platform, torch.zeros(1 << 20), packer)
    assert describe(caught.value, "candidate.py", "runtime_error")["kind"] == "out_of_device_memory"
    slot = CudaPlatform.place(platform, torch.arange(8), packer)
    assert torch.equal(arena.view(slot), torch.arange(8))
    arena.close()


def test_a_result_for_which_the_heap_was_too_small_does_not_ask_for_larger_parts() -> None:
    """It would have stayed there. What is packed in any case says how much that needs."""
    arena = host_arena(1 << 20)
    here = torch.device("cpu")
    platform: Any = SimpleNamespace(device=here, arena=arena, _placed=[], _first_look=FirstLook())
    arena.offset_in_heap = lambda *_: None  # type: ignore[attr-defined]
    for device, told in ((here, "beside what else is there"), (torch.device("cuda", 0), "4194304 bytes needed")):
        platform.device = device
        with pytest.raises(torch.OutOfMemoryError, match=told) as caught:
            CudaPlatform.place(platform, torch.zeros(1 << 20), Packer(arena, in_place=True))
        assert ("bytes needed" in str(caught.value)) == (device != here)
    arena.close()


@pytest.mark.parametrize("gib", [24, 80, 139])
def test_one_verdict_with_all_of_a_device_fits_and_holds_larger_tensors(gib: int) -> None:
    alone, share = whole(gib * GIB), divide(1, gib * GIB)
    assert alone.most_bytes <= gib * GIB
    assert alone.in_place
    assert not share.in_place
    assert alone.heap_bytes > share.heap_bytes
    assert alone.exchange_bytes > 0.9 * share.exchange_bytes
    assert alone.inputs_bytes >= 2 * alone.exchange_bytes - 2, "a slope needs two sets of inputs"


@pytest.mark.parametrize("gib", [24, 80, 139])
def test_an_audit_alone_has_room_for_the_answers_to_several_draws(gib: int) -> None:
    alone, auditing = Alone.of(gib * GIB)[0]
    assert auditing.most_bytes <= gib * GIB
    assert auditing.exchange_bytes == alone.exchange_bytes, "what is judged afterwards is no larger"
    assert auditing.heap_bytes > 1.7 * alone.heap_bytes
    assert auditing.judge_bytes > 9 * alone.exchange_bytes


def test_equal_answers_in_two_precisions_are_kept_once(server: ForkServer) -> None:
    with Session(server, host_arena(16 << 20), request(Protocol(), "h100")) as session:
        reference = Reference(session, Problem(name="p", source=SOURCE))
        reference.load()
        reference.begin("m", 1, 1, training=True)
        inputs = reference.draw("get_inputs", 1)
        outputs = reference.expect("m", inputs, ("native", "tf32", "float64"), 1).outputs
        assert outputs["tf32"][0] is outputs["native"][0]
        assert outputs["float64"][0].dtype == torch.float64


def test_a_reference_that_never_ends_is_found_out_by_one_command_however_long_the_slow_may_take(
    server: ForkServer,
) -> None:
    source = f"import time\n{SOURCE}".replace("return x[:8]", "time.sleep(x[0].item()); return x[:8]")
    with Session(server, host_arena(16 << 20), request(Protocol(), "h100")) as session:
        reference = Reference(session, Problem(name="p", source=source), patience=0.8)
        reference.load()
        reference.begin("m", 1, 1, training=True)
        started = time.monotonic()
        for _ in range(3):
            reference.expect("m", [torch.full((8,), 0.4)], ("native",), 1)
        assert time.monotonic() - started > 0.8
        with pytest.raises(Ruling, match="not finished in time") as caught:
            reference.expect("m", [torch.full((8,), 1000.0)], ("native",), 1)
        assert caught.value.status is Status.INVALID_PROBLEM
        assert time.monotonic() - started < 20
    assert patience(20.0) == 60
    assert patience(500.0) == 500


def test_the_largest_tensor_of_kernelbench_fits_an_h200() -> None:
    assert whole(int(139.8 * GIB)).exchange_bytes > 8 * GIB


@pytest.mark.parametrize(("region_bytes", "num"), [(100, 1), (1024, 2), (1 << 20, preparation.NUM_BASES)])
def test_no_more_inputs_are_drawn_than_there_is_room_for(region_bytes: int, num: int) -> None:
    class Runner:
        def draw(self, what: str, seed: int) -> list[Any]:
            return [torch.zeros(128)]

    class Both(Match):
        def __init__(self) -> None:
            self.reference = Runner()  # type: ignore[assignment]

        def prepare(self, instance: str) -> Any:
            return None

    assert len(preparation.draw(Both(), region_bytes)) == num


def test_what_the_judges_own_side_has_no_memory_for_says_nothing_against_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.06 GiB.")

    monkeypatch.setattr(audits, "audit", audit)
    reference: Any = SimpleNamespace(hosted=SimpleNamespace(arena=SimpleNamespace(device=torch.device("cpu"))))
    findings = Findings(Problem(name="p", source=SOURCE), Candidate(source=""), protocol("quick"), "cuda:0")
    with pytest.raises(Ruling) as caught:
        Auditor(tmp_path).conduct(findings, reference, Limits(1 << 30))
    assert caught.value.lacks == "memory"
    assert "12.06 GiB" in caught.value.message
    assert not list(tmp_path.iterdir()), "another time there may be more"
