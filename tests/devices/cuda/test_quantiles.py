from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.devices.cuda.quantiles import median, quantile


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    assert quantile(np.sort(values), share) == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-6)
    assert median(np.array(values)) == pytest.approx(statistics.median(values), rel=1e-9, abs=1e-6)
