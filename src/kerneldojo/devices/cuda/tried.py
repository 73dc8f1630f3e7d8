"""Kernels of ours are tried once, on the device that is there, before they are believed; else torch does their work."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


def is_proven(trial: Callable[[], bool], otherwise: str) -> bool:
    """Whether a kernel does what it should; if not, that is told to the log.

    Args:
        trial: whether it did when it was tried; whatever it raises, it did not.
        otherwise: what happens without it.
    """
    try:
        is_right = trial()
    except Exception:
        log.warning("%s", otherwise, exc_info=True)
        return False
    if not is_right:
        log.warning("%s: one launch for all of it is wrong here", otherwise)
    return is_right
