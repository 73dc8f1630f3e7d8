"""Modes that see every operation of torch, without torch's compiler for as long as nobody else wants it.

torch keeps its compiler from compiling the code of a dispatch mode, and imports the whole of it to do so: a second of
every process that enters one, and a third of the memory that every contestant is forked with. But a compiler that
nobody has imported compiles nothing, so our modes ask for its absence only once it is there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_inside: Any = torch
"""What of torch has no public name."""


class Dispatching(TorchDispatchMode):
    """The base of our modes; `__torch_dispatch__` is theirs to write."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__torch_dispatch__" in vars(cls):
            cls.__torch_dispatch__ = _uncompiled(vars(cls)["__torch_dispatch__"])

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """For torch: what it would do about it is done here."""
        return False


def _uncompiled(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """The same, kept from being compiled by a compiler that may be imported at any time."""
    kept: Callable[..., Any] = _inside._disable_dynamo(dispatch, recursive=True)

    @functools.wraps(dispatch)
    def choose(*arguments: Any, **named: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        # While it is being imported it has no `disable` yet, and compiles nothing.
        return (dispatch if getattr(compiler, "disable", None) is None else kept)(*arguments, **named)

    chosen = cast("Any", choose)
    try:
        frames = _inside._C._dynamo.eval_frame
        action = frames._FrameAction
        frames.set_code_exec_strategy(chosen.__code__, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
    except AttributeError:  # Another torch, which can only be asked as it asks itself.
        return kept
    return choose
