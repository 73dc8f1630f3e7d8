"""What a verdict leaves behind is gone with it, without a garbage collector: tensors of it may fill a device.

An object that knows itself, a function that calls itself, or an exception kept in a frame that it has come through is
freed only when Python looks for such things, which may be many verdicts later.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_steps import HONEST, IN_PLACE, LATER_WRONG, PROBLEM, TWIN, HostBench, judge

from kerneldojo import Candidate
from kerneldojo.judging import Judge, ends, hosted
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.processes import Session
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.schema import Status

RAISES = HONEST.replace("return y", "raise ValueError('no')")


@pytest.fixture
def garbage() -> Generator[Callable[[], list[Any]]]:
    """What only a collector would have freed since the test began."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)

    def found() -> list[Any]:
        gc.collect()
        return [one for one in gc.garbage if isinstance(one, torch.Tensor | Session | Hosted | Match)]

    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    ("source", "settings"), [(HONEST, IN_PLACE), (HONEST, TWIN), (LATER_WRONG, TWIN), (RAISES, IN_PLACE)]
)
@pytest.mark.usefixtures("windows")
def test_a_verdict_among_the_steps_of_a_gpu_leaves_none(
    bench: HostBench,
    tmp_path: Path,
    garbage: Callable[[], list[Any]],
    source: str,
    settings: Any,
) -> None:
    judge(bench, source, tmp_path, settings)
    assert garbage() == []


def managers() -> Generator[tuple[str, ast.ExceptHandler]]:
    """Of all context managers of this package that are generators: what they do about an exception."""
    for path in sorted(Path(ends.__file__).parent.glob("*.py")):
        for made in ast.walk(ast.parse(path.read_text())):
            if isinstance(made, ast.FunctionDef) and any(
                "contextmanager" in ast.unparse(one) for one in made.decorator_list
            ):
                yield from (
                    (f"{path.stem}.{made.name}", one) for one in ast.walk(made) if isinstance(one, ast.ExceptHandler)
                )


def test_who_raises_another_exception_in_ones_place_parts_with_its_frames() -> None:
    """See `ends.frameless`: what is wrong without it shows from Python 3.12 on."""
    replacing = {
        name: one for name, one in managers() if any(isinstance(at, ast.Raise) and at.exc for at in ast.walk(one))
    }
    assert {"contestant._blamed", "reference._watched", "hosted._fitting"} < replacing.keys()
    assert [name for name, one in replacing.items() if "frameless(" not in ast.unparse(one)] == []
    with pytest.raises(Ruling) as caught, hosted._fitting():
        raise MemoryError("too small")
    assert isinstance(caught.value.__context__, MemoryError)
    assert caught.value.__context__.__traceback__ is None


@pytest.mark.parametrize(("source", "status"), [(HONEST, Status.PASSED), (RAISES, Status.RUNTIME_ERROR)])
def test_a_verdict_on_the_host_leaves_none(garbage: Callable[[], list[Any]], source: str, status: Status) -> None:
    with Judge() as own:
        assert own.judge(PROBLEM, Candidate(source=source), device="cpu", protocol_name="quick").status is status
    assert garbage() == []


LARGE = PROBLEM.model_copy(update={"source": PROBLEM.source.replace("(4, 256)", "(4096, 4096)")})


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "status"),
    [(HONEST, Status.PASSED), (LATER_WRONG, Status.INCORRECT), (RAISES, Status.RUNTIME_ERROR)],
)
def test_a_verdict_on_a_gpu_leaves_no_device_memory(source: str, status: Status) -> None:
    with Judge() as own:

        def judged() -> int:
            found = own.judge(LARGE, Candidate(source=source), device="cuda:0")
            assert found.status is status, found.message
            return torch.cuda.memory_allocated()

        first = judged()
        gc.disable()
        try:
            assert [judged() for _ in range(2)] == [first] * 2
        finally:
            gc.enable()
