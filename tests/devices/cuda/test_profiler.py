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
