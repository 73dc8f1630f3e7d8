"""Where files are that can be made anew."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Where files of a kind outlive the program: `$XDG_CACHE_HOME/kerneldojo/KIND`. It may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kerneldojo" / kind
