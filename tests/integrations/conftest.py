"""The service's tests have a service process and quick executors, which these tests use too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "service"))
