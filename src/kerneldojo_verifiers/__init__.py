"""The taskset `kerneldojo-verifiers`: verifiers looks for a top-level package of that name."""

from kerneldojo.integrations.verifiers import KernelEnv, KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]
