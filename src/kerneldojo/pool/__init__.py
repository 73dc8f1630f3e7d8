"""Judging many: executors that keep all devices busy, survive what candidates do to them, and judge equals once."""

from typing import TYPE_CHECKING, Any

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.executor import DeviceState, Executor
from kerneldojo.pool.local_pool import LocalPool
from kerneldojo.pool.opening import evaluate, open_pool

if TYPE_CHECKING:
    from kerneldojo.pool.ray_pool import RayPool

__all__ = ["DeviceState", "Executor", "LocalPool", "PoolConfig", "RayPool", "evaluate", "open_pool"]


def __getattr__(name: str) -> Any:
    if name == "RayPool":  # Imports Ray, which most do not need.
        from kerneldojo.pool.ray_pool import RayPool

        return RayPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
