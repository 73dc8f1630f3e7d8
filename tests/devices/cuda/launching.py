"""A process of its own with Triton's launchers, where a libcuda that is only a name may stand for the driver's.

python launching.py CASE FOLDER
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kerneldojo.devices.cuda import substitutes
from kerneldojo.devices.cuda.launchers import MODULE, Launchers

SIGNATURE = {"x": "*fp16", "y": "*i64", "n": "i32", "eps": "fp32", "BLOCK": "constexpr"}
NEEDED = ("cuCtxGetCurrent", "cuCtxSetCurrent", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuFuncSetAttribute")
NEEDED += ("cuGetErrorString", "cuPointerGetAttribute")
LAUNCHING = """
static void* last = 0;
int cuLaunchKernelEx(void* config, void* function, void** params, void** extra) { last = function; return 0; }
unsigned long long last_launched(void) { return (unsigned long long)last; }
"""


def driver(folder: Path) -> Any:
    """Triton's own functions, without its driver."""
    from triton.backends.nvidia import driver as real

    os.environ["TRITON_CACHE_DIR"] = str(folder / "own")
    folders: Any = real.library_dirs
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        library, source = folder / "libcuda.so.1", folder / "name.c"
        source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in NEEDED) + LAUNCHING)
        subprocess.run(["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)], check=True)
        ctypes.CDLL(str(library))  # Whoever needs a library of this name has it now.
        folders = lambda: [str(folder)]  # noqa: E731
    return SimpleNamespace(
        make_launcher=real.make_launcher,
        compile_module_from_src=real.compile_module_from_src,
        library_dirs=folders,
        include_dirs=real.include_dirs,
        libraries=real.libraries,
    )


def launch_as_triton_does(driver: Any, signature: dict[str, str]) -> Any:
    text = driver.make_launcher({}, signature, None)
    named = {"library_dirs": driver.library_dirs(), "include_dirs": driver.include_dirs, "libraries": driver.libraries}
    return driver.compile_module_from_src(text, MODULE, **named)


def make(launchers: Launchers, types: Any) -> bool:
    done = launchers.begin(types)
    if done is None:
        return False
    assert select.select([done], [], [], 60)[0]
    launchers.finish(done)
    return True


def shared(driver: Any, folder: Path) -> None:
    server = Launchers(driver)
    server.install()
    assert launch_as_triton_does(driver, SIGNATURE).launch
    (lacked,) = server.lacked()
    assert lacked == ("*fp32", "*fp32", "i32", "fp32", "constexpr")
    assert server.lacked() == []
    assert make(server, lacked)
    shutil.rmtree(folder / "own")
    assert launch_as_triton_does(driver, {**SIGNATURE, "x": "*bf16"}).launch
    assert server.lacked() == []
    assert not (folder / "own").exists(), "nothing was compiled"
    launch_as_triton_does(driver, {**SIGNATURE, "n": "i64"})
    assert server.lacked() == [("*fp32", "*fp32", "i64", "fp32", "constexpr")]


def once(driver: Any, folder: Path) -> None:
    server = Launchers(driver)
    before = {**os.environ}
    assert make(server, ["*fp32", "i32"])
    assert not make(server, ["*fp32", "i32"])
    assert len(server._known) == 1
    assert {**os.environ, "TRITON_CACHE_DIR": ""} == {**before, "TRITON_CACHE_DIR": ""}
    assert not list(folder.glob("dojo-launcher-*"))


def few(driver: Any, folder: Path) -> None:
    server = Launchers(driver)
    begun = [server.begin([name]) for name in ("i1", "i8", "i16")]
    assert [done is None for done in begun] == [False, False, True]
    for done in begun[:2]:
        assert done is not None
        server.finish(done)
    assert make(server, ["i16"]), "it was not tried before"


def failing(driver: Any, folder: Path) -> None:
    server = Launchers(driver)
    os.environ["CC"] = "/bin/false"
    assert make(server, ["*fp32", "i32"])
    assert not server._known
    assert not list(folder.glob("dojo-launcher-*"))


def launched(folder: Path, module: Any, function: int) -> int:
    """What the driver is told to launch when Triton launches `function`."""
    module.launch(1, 1, 1, 0, function, False, False, None, None, (4, 1, 0), None, None, None, 0, 0, 8, 1e-6, 64)
    last = ctypes.CDLL(str(folder / "libcuda.so.1")).last_launched
    last.restype = ctypes.c_ulonglong
    return last()


def substituted(driver: Any, folder: Path) -> None:
    if not (folder / "libcuda.so.1").exists():  # A real driver takes no numbers for functions.
        return
    own = Launchers(driver)
    assert make(own, ["*fp32", "*fp32", "i32", "fp32", "constexpr"])
    own.install()
    shared, made = (launch_as_triton_does(driver, {**SIGNATURE, "n": name}) for name in ("i32", "i64"))
    assert len(own.lacked()) == 1
    for module in (shared, made):
        assert [launched(folder, module, function) for function in (7, 8)] == [7, 8]
    assert own.substitute(7, 9)
    assert own.substitute(1 << 47, 10)
    for is_hushed in (False, True, False, True):
        if is_hushed or own._is_hushed:
            own.hush(is_hushed)
        later = launch_as_triton_does(driver, {**SIGNATURE, "n": "i16" if is_hushed else "i8"})
        expected = [9, 8, 10] if is_hushed else [7, 8, 1 << 47]
        for module in (shared, made, later):
            assert [launched(folder, module, function) for function in (7, 8, 1 << 47)] == expected


def plain(driver: Any, folder: Path) -> None:
    """A text that cannot be compiled with a table is compiled without one."""
    own = Launchers(driver)
    own.install()
    substitutes._TABLE = "this is no C\n"
    assert launch_as_triton_does(driver, SIGNATURE).launch
    assert not own.substitute(7, 9)


if __name__ == "__main__":
    cases = {"shared": shared, "once": once, "few": few, "failing": failing, "substituted": substituted, "plain": plain}
    folder = Path(sys.argv[2])
    os.environ["TMPDIR"] = str(folder)
    cases[sys.argv[1]](driver(folder), folder)
