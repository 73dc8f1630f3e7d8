"""The scripts of `runs/` are no package: their folder is put on the path for the tests of this one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "runs"))
