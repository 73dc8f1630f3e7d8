"""Own kernels as Triton loads them, silenced in turns; a driver that counts stands for the real one."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.devices.cuda import cubin
from kerneldojo.devices.cuda.silence import OwnKernels, is_own

compiler = pytest.importorskip("triton.compiler.compiler")


class Driver:
    """What was loaded, by handle; and launchers, which substitute one for another or cannot."""

    def __init__(self, *, can_substitute: bool = True) -> None:
        self.code: dict[int, str] = {}
        self._can_substitute = can_substitute
        self._handles = itertools.count(100)
        self._substitutes: dict[int, int] = {}
        self._is_hushed = False

    def load(self, kernel: Any) -> None:
        kernel.module, kernel.function = object(), next(self._handles)
        self.code[kernel.function] = kernel.kernel

    def substitute(self, one: int, other: int) -> bool:
        if self._can_substitute:
            self._substitutes[one] = other
        return self._can_substitute

    def hush(self, is_hushed: bool) -> None:
        self._is_hushed = is_hushed

    def launched(self, kernel: Any) -> str:
        """The code that runs where a kernel is launched."""
        handle = kernel.function
        return self.code[self._substitutes.get(handle, handle) if self._is_hushed else handle]


@pytest.fixture(params=[True, False])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(can_substitute=request.param)
    monkeypatch.setattr(compiler.CompiledKernel, "_init_handles", driver.load)
    monkeypatch.setattr(cubin, "silenced", lambda code: f"{code}, silenced")
    return driver


def loaded(name: str, *, of_library: bool = False) -> Any:
    """A kernel that Triton has loaded."""
    code = pytest.Function.__init__.__code__ if not of_library else compiler.CompiledKernel.__init__.__code__
    source = SimpleNamespace(fn=SimpleNamespace(fn=SimpleNamespace(__code__=code)))
    kernel = SimpleNamespace(src=source, name=name, kernel=name, module=None, function=None)
    compiler.CompiledKernel._init_handles(kernel)
    return kernel


def test_they_are_no_ops_while_they_are_hushed_and_only_then(driver: Driver) -> None:
    own: Any = OwnKernels()
    own.install()
    first, library = loaded("first"), loaded("library", of_library=True)
    handle = first.function
    own.hush(True)
    assert driver.launched(first) == "first", "nothing is ready for it yet"
    own.arm(driver)
    second = loaded("second")
    for is_hushed in (False, True, True, False, True):
        own.hush(is_hushed)
        later = loaded("later")
        for kernel in (first, second, later):
            assert driver.launched(kernel) == f"{kernel.name}{', silenced' if is_hushed else ''}"
        assert driver.launched(library) == "library"
        assert (first.function == handle) or (is_hushed and not driver._can_substitute)
    assert set(own.functions.values()) == {"first", "second", "later"}
    assert not any("silenced" in driver.code[handle] for handle in own.functions)


def test_a_twins_are_no_ops_from_birth(driver: Driver) -> None:
    own: Any = OwnKernels(silent=True)
    own.install()
    kernel = loaded("first")
    assert driver.launched(kernel) == "first, silenced"
    own.hush(False)
    assert driver.launched(kernel) == "first, silenced"
    assert driver.launched(loaded("library", of_library=True)) == "library"


def test_what_a_library_wrote_is_not_own_and_what_nobody_knows_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(file: str) -> Any:
        code = compile("def kernel(): ...", file, "exec")
        return SimpleNamespace(fn=SimpleNamespace(fn=SimpleNamespace(__code__=code)))

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    generated = str(tmp_path / "inductor" / "k.py")
    assert is_own(SimpleNamespace()), "from IR, or a file of machine code"
    assert is_own(SimpleNamespace(fn=SimpleNamespace())), "nor has it any Python"
    assert is_own(source("candidate.py")) and is_own(source(generated))
    for library in (torch, compiler):
        assert not is_own(source(str(library.__file__)))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    assert not is_own(source(generated)), "which it generated"
    assert is_own(source("candidate.py"))
