"""The profiler, as far as it needs no device."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from kerneldojo.devices.cuda import profiler

INNER = "NAME = 'inner'\ndef answer(): return 42\n"
OUTER = "from victim import inner\ndef ask(): return inner.answer() + offset()\ndef offset(): return 0\n"


def test_what_a_package_holds_can_be_had_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by functions that were fetched before it was tampered with, and by names that were taken away."""
    (tmp_path / "victim").mkdir()
    for name, source in {"__init__": "", "inner": INNER, "outer": OUTER}.items():
        (tmp_path / "victim" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    outer, inner = (importlib.import_module(f"victim.{name}") for name in ("outer", "inner"))
    ask = outer.ask
    try:
        born = profiler.contents("victim")
        assert {module.__name__ for module in born} == {"victim", "victim.outer", "victim.inner"}
        inner.answer = lambda: 0
        outer.extra = 7
        del outer.offset
        with pytest.raises(NameError):
            ask()
        profiler.restore(born)
        assert ask() == outer.ask() == 42
        assert not hasattr(outer, "extra")
        profiler.restore(born)  # As often as one likes: what is held is not handed out.
        assert ask() == 42
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "victim"]:
            del sys.modules[name]


def launches(*durations_us: float, name: str = "mine") -> list[profiler.KernelRecord]:
    """Launches of one kernel, one after the other."""
    return [
        profiler.KernelRecord(name, round(1000 * duration), own=True, start_ns=10_000_000 * number)
        for number, duration in enumerate(durations_us)
    ]


@pytest.mark.parametrize(
    ("records", "num_calls", "even"),
    [
        (launches(*[36.0, 36.5, 35.9, 37.0, 36.1] * 2), 10, True),
        (launches(*[2.0, 9.0] * 5), 10, True),
        (launches(*[36.0] * 9, 180.0), 10, False),
        (launches(*[2.0] * 9, 110.0), 10, False),
        (launches(*[5.0, 900.0] * 10), 10, True),
        (launches(*[5.0, 900.0] * 9, 140.0, 900.0), 10, False),
        (launches(*[36.0] * 10) + launches(*[500.0] * 9, 700.0, name="theirs"), 10, False),
        (launches(7.0), 10, True),
        ([], 10, True),
    ],
)
def test_a_launch_that_was_interrupted_shows(records: list[profiler.KernelRecord], num_calls: int, even: bool) -> None:
    """Records come in no particular order, and a kernel's launches within a call may differ."""
    assert profiler.is_even(records[::-1], num_calls) == even
