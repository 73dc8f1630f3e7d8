"""How long what many tests ask for lives, where each of them could do with one of its own."""

from __future__ import annotations

from typing import Any, Literal

import torch


def shared(**_: Any) -> Literal["session", "module"]:
    """As long as the process; no longer than a module on a GPU, where judges beside each other would divide it."""
    return "module" if torch.cuda.is_available() else "session"
