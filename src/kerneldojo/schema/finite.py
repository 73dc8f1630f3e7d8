"""JSON knows no infinities: what a figure that is none looks like outside."""

from __future__ import annotations

import math
from typing import Any, cast


def finite(value: Any) -> Any:
    """`value` as every JSON reader takes it: NaN and infinities become null, at any depth; keys become strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in cast("list[Any]", value)]
    return value
