"""Judging many: executors that keep all devices busy, survive what candidates do to them, and judge equals once."""

from kerneldojo.pool.executor import DeviceState, Executor

__all__ = ["DeviceState", "Executor"]
