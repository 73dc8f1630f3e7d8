"""Triton kernels without a GPU: Triton's interpreter, put right, made faster, and counted.

`prepare` patches Triton and torch for good, in a process whose environment said `TRITON_INTERPRET=1` before Triton was
imported. From then on kernels run on numpy, host tensors claim to be on `cuda:0`, and

- `Meter` records what a call launches, with exact bytes and FLOPs (`works`, `specializations`), and
  with a `Ledger` what reached its kernels from outside;
- `silenced` turns every kernel launch into a no-op, however the kernel is reached, and `Unwritten` has new memory full
  of NaN, as a `Meter` has;
- `UnsupportedOnDevice` is raised by what only a GPU can do, such as inline assembly.

What it cannot show: races between programs (they run one after the other), reads out of bounds that do not crash,
limits of shared memory and registers (`devices.target` compiles for those).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kerneldojo.devices.interpreter.errors import UnsupportedOnDevice

if TYPE_CHECKING:
    from kerneldojo.devices.interpreter.emulation import use_gpu
    from kerneldojo.devices.interpreter.launching import silenced
    from kerneldojo.devices.interpreter.ledger import Ledger
    from kerneldojo.devices.interpreter.metering import Meter
    from kerneldojo.devices.interpreter.unwritten import Unwritten

TRITON_VERSION = "3.6."
"""The interpreter's internals that are patched are those of this release."""

__all__ = [
    "TRITON_VERSION",
    "Ledger",
    "Meter",
    "UnsupportedOnDevice",
    "Unwritten",
    "pose",
    "prepare",
    "silenced",
    "use_gpu",
    "warm_up",
]

_prepared = _posing = False


def prepare() -> None:
    """Patch Triton and emulate CUDA in this process. Further calls do nothing.

    Raises:
        RuntimeError: another release of Triton, or `TRITON_INTERPRET=1` was not set before Triton was imported.
    """
    global _prepared
    if _prepared:
        return
    os.environ.setdefault("TRITON_INTERPRET", "1")
    import triton

    if not triton.__version__.startswith(TRITON_VERSION):
        raise RuntimeError(f"the interpreter is patched for Triton {TRITON_VERSION}x; this is {triton.__version__}")
    knobs: Any = triton.knobs  # pyright: ignore[reportAttributeAccessIssue]
    if not knobs.runtime.interpret or not hasattr(triton.language.sum, "rewriter"):
        raise RuntimeError("TRITON_INTERPRET=1 must be in the environment before Triton is first imported")
    from kerneldojo.devices.interpreter import autotuning, driver, emulation, launching

    launching.install()
    driver.install()
    autotuning.install(lambda: emulation.emulated_gpu().num_multiprocessors)
    emulation.install()
    _prepared = True


def pose() -> None:
    """Only answer as the emulated GPU would (`torch.cuda`, Triton's driver), where kernels are compiled and not run.

    Sources ask at import: which device is active, what it is capable of, how much shared memory it has. Some launch
    their kernels, to have them compiled: here nothing comes of that. Further calls do nothing.
    """
    global _posing
    if _posing:
        return
    _posing = True
    from kerneldojo.devices.interpreter import driver, emulation

    driver.install()
    driver.launch_nothing()
    emulation.install()


def __getattr__(name: str) -> object:
    """What is named here imports Triton, which must not happen before the environment is set."""
    rooms = {
        "Meter": "metering",
        "Ledger": "ledger",
        "Unwritten": "unwritten",
        "silenced": "launching",
        "use_gpu": "emulation",
    }
    if name not in rooms:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{rooms[name]}"), name)


def warm_up() -> None:
    """Run one kernel of ours and one module once, so that a forked process finds everything imported and rewritten.

    `prepare` must have been called. The first interpreted kernel of a process costs most of a second otherwise.
    """
    from kerneldojo.devices.interpreter import warming

    warming.run()
