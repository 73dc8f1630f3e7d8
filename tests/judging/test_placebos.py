"""Placebos, without device and process: the loop that serves windows on a GPU is a thread's here."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_steps import HONEST, PROBLEM
from test_timed_inputs import Region

from kerneldojo.devices.cuda import calls
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.calls import CallLoop
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.inputs import InputSets, Layout, num_sets
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.window import Side, Stopwatch
from kerneldojo.judging import placebos, sides
from kerneldojo.judging.ends import Failed, HostedEnd
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate

LAYOUT = Layout((40, 25), (25, 1), torch.float32)
ROOM = 2 * placebos.NUM_CALLS

Model = Callable[["Device", torch.Tensor], torch.Tensor]


class Device:
    """What of a contestant is on the device: memory that comes poisoned or not, and kernels that can be silenced."""

    def __init__(self, inputs: Region) -> None:
        self.inputs = inputs
        self.heap = Region(2 * ROOM * LAYOUT.num_bytes)
        self.device = torch.device("cpu")
        self.page = Page.create((1 << 20,))
        self.theirs = Page.open(self.page.fd)  # What is told before is not heard.
        self.outputs_bytes = self.heap.size // 2
        self.is_hushed = self.is_poisoned = False
        self.num_given = 0
        self.layout = LAYOUT
        self.state: dict[str, Any] = {}
        self.told: Counter[int] = Counter()

    def base(self, region: Region) -> int:
        return 0 if region is self.inputs else self.inputs.size

    def locate(self, offset: int) -> tuple[Region, int]:
        return self.heap, offset - self.inputs.size

    @property
    def address(self) -> int:
        return self.heap.memory.data_ptr()

    def empty(self) -> torch.Tensor:
        at = self.num_given % (2 * ROOM) * LAYOUT.num_bytes
        self.num_given += 1
        given = self.heap.tensor(at, self.layout.shape, self.layout.stride, self.layout.dtype)
        return given.fill_(float("nan")) if self.is_poisoned else given

    def launch(self, target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """An own kernel."""
        return target if self.is_hushed else target.copy_(values)


def honest(device: Device, x: torch.Tensor) -> torch.Tensor:
    return device.launch(device.empty(), x * torch.sigmoid(x))


def decoy(device: Device, x: torch.Tensor) -> torch.Tensor:
    device.launch(device.empty(), x)
    return device.empty().copy_(x * torch.sigmoid(x))


def broken(device: Device, x: torch.Tensor) -> torch.Tensor:
    return device.empty().fill_(1.0)


def remembering(device: Device, x: torch.Tensor) -> torch.Tensor:
    """Says again what its kernel said first, as a module does that packs its weights once."""
    if "factor" not in device.state:
        device.state["factor"] = device.launch(torch.full(LAYOUT.shape, float("nan")), torch.sigmoid(x))
    return device.empty().copy_(x * device.state["factor"])


def told(x: torch.Tensor) -> tuple[float, ...]:
    """By what an input is told from others: all of it, for two that are rotated alike may differ in a part alone."""
    return tuple(x.flatten().tolist())


def by_heart(device: Device, x: torch.Tensor) -> torch.Tensor:
    """Knows what its kernel said of these inputs before."""
    known = device.state.setdefault("known", {})
    key = told(x)
    if key not in known:
        known[key] = device.launch(device.empty(), x * torch.sigmoid(x)).clone()
    return device.empty().copy_(known[key])


def failing(device: Device, x: torch.Tensor) -> torch.Tensor:
    if device.is_hushed:
        raise IndexError("an index that nobody wrote")
    return honest(device, x)


def elsewhere(device: Device, x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0)


class Heap:
    def __init__(self, device: Device) -> None:
        self._device = device

    def poison(self, on: bool) -> None:
        self._device.is_poisoned = on

    def reclaim(self) -> None:
        pass


class Party:
    """A hosted process: its series is a thread's."""

    def __init__(self, device: Device, model: Model, inputs: InputSets) -> None:
        self.arena = device
        self.session = SimpleNamespace(has_ended=lambda: False, ended=None)
        self.remaining = 60.0
        self._model, self._inputs = model, inputs
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.hosted = self

    def post(self, _: str, **fields: Any) -> None:
        assert fields["what"] == "windows"
        assert fields["instance"] == "timed"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        theirs = self.arena.theirs
        taken = theirs.wait_go

        def wait_go(*given: Any, **named: Any) -> tuple[int, int]:
            length, flags = taken(*given, **named)
            self.arena.told[flags if length else -flags] += 1
            return length, flags

        theirs.wait_go = wait_go
        region = SimpleNamespace(address=self.arena.address, size=self.arena.heap.size)
        arena: Any = SimpleNamespace(page=theirs, heap=region, base=lambda _: self.arena.inputs.size, inputs=None)
        arena.device = self.arena.device
        heap: Any = Heap(self.arena)
        loop = CallLoop(arena, heap, self._hush, [LAYOUT.stride])
        sets = [
            [self.arena.inputs.tensor(self._inputs.offset(index, 0), LAYOUT.shape, LAYOUT.stride, LAYOUT.dtype)]
            for index in range(self._inputs.count)
        ]
        try:
            loop.serve(lambda x: self._model(self.arena, x), sets)
        except Exception as failure:
            self._failure = failure

    def _hush(self, is_hushed: bool) -> None:
        self.arena.is_hushed = is_hushed

    def collect(self, timeout: float) -> dict[str, Any]:
        assert self._thread is not None
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "its series was not ended"
        assert not self.arena.is_hushed
        assert not self.arena.is_poisoned
        if self._failure is not None:
            raise Failed("runtime_error", str(self._failure))
        return {}


@pytest.fixture(autouse=True)
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(
        calls, "_collect", lambda value, found, _: found.extend([value] if type(value) is torch.Tensor else value)
    )
    monkeypatch.setattr(CallLoop, "_placed", lambda _, __, tensor: tensor)


def played(
    model: Model,
    drawn: list[bool],
    num_inputs: int = ROOM,
    room: int = ROOM,
    theirs: Layout = LAYOUT,
    num_left: int = 1,
) -> tuple[Any, Device]:
    region: Any = Region(num_inputs * 4096)
    assert num_sets([LAYOUT], region.size, num_inputs) == num_inputs
    inputs = InputSets(region, [[torch.randn(LAYOUT.shape)] for _ in range(3)], ["rotate"], num_inputs)
    parties = [Party(Device(region), one, inputs) for one in (honest, model)]
    for party in parties:
        party.arena.outputs_bytes = room * 4096
    reference, contestant = parties
    reference.arena.layout = theirs
    match: Any = SimpleNamespace(reference=reference, contestant=contestant)
    prepared: Any = SimpleNamespace(layouts=[LAYOUT], outputs=[theirs], inputs=inputs)
    inputs.refresh(num_inputs)
    offsets = [inputs.offset(index, 0) for index in range(num_inputs)]
    seen = {told(region.tensor(at, LAYOUT.shape, LAYOUT.stride, LAYOUT.dtype)) for at in offsets}
    contestant.arena.state["seen"] = seen
    inputs.forget_bases(num_left)  # As they are once the figures are filled in.
    findings = Findings(PROBLEM, Candidate(source=HONEST), Protocol(), "cuda:0")
    with Gate(1).admit() as guest:
        found = placebos.play(Stopwatch.__new__(Stopwatch), guest, match, prepared, findings, drawn)
    return found, contestant.arena


DRAWN = [False, True, True, False, False, True, False, False]


def test_who_depends_on_its_kernels_is_wrong_in_placebos_and_there_only() -> None:
    found, device = played(honest, DRAWN)
    assert found == [not is_placebo for is_placebo in DRAWN]
    assert device.told == {pages.PLACEBOS | pages.POISONED: 1, 0: 1}, "one window, and the end"


@pytest.mark.parametrize("num_left", [0, 1])
def test_inputs_are_some_that_nobody_has_seen_where_any_can_be_made(num_left: int) -> None:
    """Whoever knows its answers by heart looks as if it depended on no kernel; and else it might seem to guess."""
    met = set[tuple[float, ...]]()

    def noting(device: Device, x: torch.Tensor) -> torch.Tensor:
        met.add(told(x))
        return honest(device, x)

    _, device = played(noting, DRAWN, num_left=num_left)
    assert len(met) == placebos.NUM_CALLS
    assert met.isdisjoint(device.state["seen"]) == bool(num_left)


@pytest.mark.parametrize(("mine_ms", "theirs_ms", "are_quick"), [(99, 99, True), (101, 1, False), (1, 101, False)])
def test_who_is_slow_has_a_twin(mine_ms: int, theirs_ms: int, are_quick: bool) -> None:
    """By the quickest window: that one was slow says little."""

    def timed(milliseconds: int) -> Any:
        return SimpleNamespace(
            windows=[Window(n, 1000.0 * milliseconds * n * late) for n, late in ((1, 3), (4, 1), (2, 2))]
        )

    series = {"contestant": timed(mine_ms), "reference": timed(theirs_ms)}
    prepared: Any = SimpleNamespace(result=SimpleNamespace(series=series))
    assert placebos.are_quick(prepared) == are_quick


def test_inputs_may_be_those_of_the_last_windows() -> None:
    assert played(honest, DRAWN, num_inputs=2, num_left=0)[0] == [not is_placebo for is_placebo in DRAWN]
    assert played(decoy, DRAWN, num_inputs=2, num_left=0)[0] == [True] * 8
    assert played(by_heart, DRAWN, num_inputs=2, num_left=0)[0] != [not is_placebo for is_placebo in DRAWN]


@pytest.mark.parametrize("is_like", [True, False])
def test_outputs_need_not_lie_alike(is_like: bool) -> None:
    theirs = LAYOUT if is_like else Layout(LAYOUT.shape, (1, LAYOUT.shape[0]), LAYOUT.dtype)
    assert played(honest, DRAWN, theirs=theirs)[0] == [not is_placebo for is_placebo in DRAWN]
    assert played(broken, DRAWN, theirs=theirs)[0] == [False] * 8
    assert played(decoy, DRAWN, theirs=theirs)[0] == [True] * 8


@pytest.mark.parametrize(("num_inputs", "room", "windows"), [(3, ROOM, 3), (ROOM, 2, 4), (1, ROOM, 8)])
def test_there_may_be_little_room(num_inputs: int, room: int, windows: int) -> None:
    found, device = played(honest, DRAWN, num_inputs, room)
    assert found == [not is_placebo for is_placebo in DRAWN]
    assert device.told[pages.PLACEBOS | pages.POISONED] == windows
    assert device.told[-pages.RELEASE] == windows - 1


def test_each_side_has_the_time_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is killed for being slow beside others: 8 calls of a reference may take longer than a window may else."""
    waited: list[tuple[str, float]] = []

    def nap(guest: Any, one: Side, patience: float = 5.0) -> None:
        waited.append((one.name, patience))
        sides.nap(guest, one, patience)

    monkeypatch.setattr(placebos, "nap", nap)
    played(honest, DRAWN)
    assert waited == [("reference", 60.0), ("contestant", Protocol().cause_timeout)]


@pytest.mark.parametrize(("model", "found"), [(decoy, [True] * 8), (broken, [False] * 8)])
def test_who_does_not_is_right_or_wrong_in_all(model: Model, found: list[bool]) -> None:
    assert played(model, DRAWN)[0] == found


@pytest.mark.parametrize("drawn", [DRAWN, [*DRAWN[1:], False]])
def test_what_a_kernel_wrote_once_is_no_proof(drawn: list[bool]) -> None:
    found, _ = played(remembering, drawn)
    assert found is not None
    assert found != [not is_placebo for is_placebo in drawn]


def test_of_who_breaks_nothing_is_known() -> None:
    with pytest.raises(HostedEnd):
        played(failing, DRAWN)


def test_what_lies_elsewhere_is_not_looked_at() -> None:
    assert played(elsewhere, DRAWN)[0] is None


def test_any_calls_may_be_placebos_but_neither_all_nor_none() -> None:
    drawn = [tuple(placebos.draw()) for _ in range(4000)]
    assert {sum(one) for one in drawn} == set(range(1, placebos.NUM_CALLS))
    assert len(set(drawn)) > 200
    for call in range(placebos.NUM_CALLS):
        assert sum(one[call] for one in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)


def test_a_side_holds_what_lies_in_its_heap() -> None:
    device = Device(Region(4096))
    arena: Any = device
    one = Side("contestant", arena, (LAYOUT,), lambda: None)
    first, last = 4096, 4096 + device.heap.size - LAYOUT.num_bytes

    def holds(*offsets: int) -> bool:
        return one.holds(torch.tensor(offsets).reshape(-1, 1).numpy())

    assert holds(first, last)
    assert not holds(first, last + 4)
    assert not holds(first - 4)
    assert not holds(first + 2), "no element begins there"
    assert not one.holds(torch.tensor([[first, first]]).numpy())
