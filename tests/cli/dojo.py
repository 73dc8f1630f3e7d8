"""The command in a process of its own, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def dojo(*arguments: str | Path, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kerneldojo.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100", "OMP_NUM_THREADS": "1"} | environment,
        check=False,
    )
