"""One pool for all tests of this folder that do no lasting harm to it: starting one is most of what a test costs."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pooled import MODEL, QUICK

from kerneldojo.pool import LocalPool


@pytest.fixture(scope="module")
def pool() -> Generator[LocalPool]:
    """Two devices with one worker each, which has three verdicts at once."""
    pool = LocalPool([MODEL, "cpu"], num_slots=6, config=QUICK)
    yield pool
    pool.close()
