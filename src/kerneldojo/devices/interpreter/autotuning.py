"""`@triton.autotune` without a clock: one configuration is chosen by rule, the others are remembered.

An autotuner times every configuration on a GPU. Here nothing can be timed, and the choice must not depend on the
machine: among those that `prune_configs_by` leaves, take the one with the fewest programs that still fill the GPU's
multiprocessors; if none fills them, the one with the most programs. Ties go to the earliest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics

from kerneldojo.devices.interpreter.launching import STATE


def install(num_multiprocessors: Callable[[], int]) -> None:
    """Replace the stock autotuner's `run`.

    Args:
        num_multiprocessors: of the GPU that is emulated.
    """

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config, first = _chosen(self, args, kwargs, num_multiprocessors)
        self.best_config = config
        conflicts = kwargs.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}.")
        named = {**self.nargs, **kwargs, **config.all_kwargs()}
        if first:  # After its trials an autotuner resets what they wrote, then launches once more.
            self.pre_hook(named, reset_only=True)
        if config.pre_hook is not None:
            config.pre_hook(named)
        if not kwargs.get("warmup"):
            STATE.alternatives = tuple(self.configs)
        try:
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            STATE.alternatives = ()
            self.nargs = None

    autotuner: Any = Autotuner
    autotuner.run = run


def _chosen(tuner: Any, args: Any, kwargs: dict[str, Any], num_multiprocessors: Callable[[], int]) -> tuple[Any, bool]:
    """The configuration for these arguments, and whether they are new (the stock autotuner's own key)."""
    if len(tuner.configs) == 1:
        return tuner.configs[0], False
    named = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    key = (
        *(named[name] for name in tuner.keys if name in named),
        *(str(value.dtype) for value in named.values() if hasattr(value, "dtype")),
    )
    if key in tuner.cache:
        return tuner.cache[key], False
    tuner.cache[key] = _choose(tuner, tuner.prune_configs(kwargs), kwargs, num_multiprocessors())
    return tuner.cache[key], True


def _choose(tuner: Any, configs: list[Any], kwargs: dict[str, Any], wanted: int) -> Any:
    if len(configs) == 1:
        return configs[0]
    sizes = [_num_programs(tuner, config, kwargs) for config in configs]
    filling = [size for size in sizes if size >= wanted]
    return configs[sizes.index(min(filling) if filling else max(sizes))]


def _num_programs(tuner: Any, config: Any, kwargs: dict[str, Any]) -> int:
    grid: Any = kwargs.get("grid")
    if callable(grid):
        named = {**_defaults(tuner), **tuner.nargs, **kwargs, **config.all_kwargs()}
        inner = tuner.fn
        while isinstance(inner, Heuristics):
            for name, heuristic in inner.values.items():
                named[name] = heuristic(named)
            inner = inner.fn
        grid = grid(named)
    total = 1
    for size in grid or ():
        total *= int(size)
    return total


def _defaults(tuner: Any) -> dict[str, Any]:
    import inspect

    parameters = inspect.signature(tuner.base_fn).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
