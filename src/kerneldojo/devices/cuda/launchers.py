"""Triton's launchers: small C modules, one for each kind of signature, that Triton has gcc make in every process anew.

That takes a sixth of a second of a core, twice a verdict, and has nothing to do with the candidate: the text follows
from the types of a kernel's parameters (all pointers are alike) by a function of Triton's own. So a contestant says
which types it lacked a launcher for, the fork server makes one from those types by that same function, and whoever is
forked afterwards has it. Nothing that a candidate wrote is compiled there or shared: types are words of a small
vocabulary, and a launcher is used only by whom Triton gives the very same text.

All launchers of a contestant can have one function launched in another's place (`substitutes`), whoever made them, and
whenever.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kerneldojo.devices.cuda.substitutes import METHODS_MADE, with_substitutes

MOST_LAUNCHERS = 256
"""More kinds of signatures than that are left to Triton."""
MOST_AT_ONCE = 2
"""Those that are being made; what comes beside them is asked for again by whoever lacks it next."""
MOST_PARAMETERS = 64
MODULE = "__triton_launcher"
_TYPE = re.compile(r"\*?(?:fp(?:16|32|64)|bf16|[iu](?:1|8|16|32|64))|constexpr")


def checked(types: Any) -> tuple[str, ...] | None:
    """The types of a signature as a contestant claims them, or None if they are not what a signature can have."""
    if not isinstance(types, list | tuple) or not 0 < len(types) <= MOST_PARAMETERS:
        return None
    if not all(isinstance(name, str) and _TYPE.fullmatch(name) for name in types):
        return None
    return tuple(types)


class Launchers:
    """Those of one process; a fork has what its parent had.

    Args:
        driver: Triton's module for NVIDIA devices, or what looks like it.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._known: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        self._lacked: list[tuple[str, ...]] = []
        self._used: dict[int, Any] = {}
        """By identity: several kernels may have one."""
        self._substitutes: list[tuple[int, int]] = []
        self._is_hushed = False
        self._builds: dict[int, tuple[int, tuple[str, ...], Path]] = {}
        self._attempted: set[tuple[str, ...]] = set()
        self._make: Callable[..., str] | None = getattr(driver, "make_launcher", None)
        self._compile: Callable[..., Any] | None = getattr(driver, "compile_module_from_src", None)

    def install(self) -> None:
        """Have Triton look here first. Does nothing for versions that make launchers in another way."""
        if self._make is None or self._compile is None:
            return
        make, compile_module = self._make, self._compile

        def make_launcher(constants: Any, signature: Any, *rest: Any, **named: Any) -> str:
            text = make(constants, signature, *rest, **named)
            self._asked[text] = signature
            return text

        def compile_module_from_src(src: str, name: str, *rest: Any, **named: Any) -> Any:
            if name != MODULE:
                return compile_module(src, name, *rest, **named)
            module = self._known.get(src)
            if module is None:
                # Kept, for to load the same file again turns the module that was loaded last into this one: Python
                # takes modules of this kind for the same if their names are.
                module = self._known[src] = self._compiled(src, *rest, **named)
                self._note(src)
            if id(module) not in self._used:
                self._bring_up(module)
                self._used[id(module)] = module
            return module

        self._driver.make_launcher = make_launcher
        self._driver.compile_module_from_src = compile_module_from_src

    def substitute(self, one: int, other: int) -> bool:
        """Have all launchers launch `other` for `one` while they are hushed; whether they can.

        Raises:
            RuntimeError: there are too many substitutes.
        """
        if not all(map(_can_be_hushed, self._used.values())):
            return False
        for module in self._used.values():
            module.substitute(one, other)
        self._substitutes.append((one, other))
        return True

    def hush(self, is_hushed: bool) -> None:
        """Whether substitutes count, from the next launch on."""
        self._is_hushed = is_hushed
        for module in self._used.values():
            if _can_be_hushed(module):
                module.hush(is_hushed)

    def _bring_up(self, module: Any) -> None:
        """Tell one that comes later what the others know. If it cannot be told, its kernels are heard."""
        if _can_be_hushed(module):
            for one, other in self._substitutes:
                module.substitute(one, other)
            module.hush(self._is_hushed)

    def _compiled(self, text: str, *rest: Any, **named: Any) -> Any:
        """A launcher that can do that, or Triton's own where that cannot be compiled."""
        assert self._compile is not None
        changed = with_substitutes(text)
        if changed != text:
            with suppress(subprocess.CalledProcessError, ImportError):
                return self._compile(changed, MODULE, *rest, **named)
        return self._compile(text, MODULE, *rest, **named)

    def lacked(self) -> list[tuple[str, ...]]:
        """The types of signatures that a launcher had to be made for since this was last asked."""
        found, self._lacked = self._lacked, []
        return found

    def _note(self, text: str) -> None:
        signature = self._asked.get(text)
        types = checked(list(signature.values())) if isinstance(signature, dict) else None
        if types is not None and self._text(canonical(types)) == text:
            self._lacked.append(canonical(types))

    def _text(self, types: Sequence[str]) -> str:
        assert self._make is not None
        with suppress(Exception):  # Another version's function.
            return self._make({}, dict(enumerate(types)), None)
        return ""

    # In the fork server

    def begin(self, types: Sequence[str]) -> int | None:
        """Begin to make a launcher in a child process; a descriptor that is ready when it is done. None if not."""
        wanted = checked(types)
        if wanted is None or wanted in self._attempted:
            return None
        if len(self._attempted) >= MOST_LAUNCHERS or len(self._builds) >= MOST_AT_ONCE:
            return None
        self._attempted.add(wanted)
        if self._make is None or self._compile is None or not self._text(wanted):
            return None  # Of no text gcc makes a library, too, and whoever loads it is every contestant's parent.
        folder = Path(tempfile.mkdtemp(prefix="dojo-launcher-"))
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.environ["TRITON_CACHE_DIR"] = str(folder)
                self._compiled(self._text(wanted), **self._surroundings())
            finally:
                os._exit(0)
        os.close(done)
        self._builds[ready] = (pid, wanted, folder)
        return ready

    def finish(self, ready: int) -> None:
        """Take up what was made, whatever became of it."""
        pid, types, folder = self._builds.pop(ready)
        os.close(ready)
        os.waitpid(pid, 0)
        assert self._compile is not None
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        try:
            if any(folder.glob(f"*/{MODULE}*.so")):
                text = self._text(types)
                self._known[text] = self._compiled(text, **self._surroundings())
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            shutil.rmtree(folder, ignore_errors=True)

    def _surroundings(self) -> dict[str, Any]:
        """As `CudaLauncher` calls it."""
        driver = self._driver
        return {
            "library_dirs": driver.library_dirs(),
            "include_dirs": driver.include_dirs,
            "libraries": driver.libraries,
        }


def _can_be_hushed(module: Any) -> bool:
    return all(hasattr(module, name) for name in METHODS_MADE)


def canonical(types: Sequence[str]) -> tuple[str, ...]:
    """The same kind of signature, in the words that stand for all of its kind."""
    return tuple("*fp32" if name.startswith("*") else name for name in types)
