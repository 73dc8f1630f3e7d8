"""What a fork server imports and runs once, so that every contestant has it from birth.

One flavour interprets kernels, one compiles them for a target, one runs them on CUDA: Triton cannot do two of these in
one process, and reads which it is to be when it is imported.
"""

from __future__ import annotations

import gc
import os
import tempfile
from importlib import import_module


def settle_memory() -> None:
    """Leave nothing for a fork to collect.

    A descriptor whose owner is garbage here is closed by number when a child's collector finds the owner, and by then
    the number may be one of the child's own pipes. So garbage is collected here, before each fork, and never there
    until the child is itself. Frozen objects also keep their memory shared, for nobody's collector touches them.
    """
    gc.collect()
    gc.freeze()


def import_what_all_need() -> None:
    """Without Triton, whose flavour is not settled yet."""
    import torch

    torch.set_num_threads(1)
    import_module("kerneldojo.contestant.rehearsal")
    import_module("kerneldojo.contestant.serving")


def warm_up(flavour: str) -> None:
    """Import and run once whatever every contestant would otherwise import and run itself."""
    if flavour == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported.
    # What is compiled here must really be compiled: a result from an earlier server's cache leaves the compiler cold.
    with tempfile.TemporaryDirectory(prefix="dojo-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            _rehearse(flavour)
        finally:
            del os.environ["TRITON_CACHE_DIR"]


def _rehearse(flavour: str) -> None:
    from kerneldojo.contestant import dry_call, rehearsal

    if flavour == "cuda":
        from kerneldojo.devices.cuda import warm

        rehearsal.rehearse(interpreted=False)
        import_module("torch._dynamo")  # A second, which whatever is compared with torch.compile would pay each time.
        dry_call.warm_up()
        warm.prepare()
        return
    from kerneldojo.devices import interpreter, target

    if flavour == "interpret":
        interpreter.prepare()
        interpreter.warm_up()
        rehearsal.rehearse(interpreted=True)
    else:
        rehearsal.rehearse(interpreted=False, calls=False)
        target.warm_up()
        interpreter.pose()
