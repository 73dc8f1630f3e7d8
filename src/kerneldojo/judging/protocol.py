"""The settings of judging. Class defaults are the vetted ones; whatever is changed is recorded in the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from kerneldojo.schema.job import MAX_TIMEOUT

VERSION = "38"
"""Raised whenever a change could move a verdict or a figure; what audits find has a version of its own."""
NUM_CALLS = 15
"""A verdict makes so many of a candidate at least, however slow it is: under `quick` three in the rounds, one before it
is timed, eight when it is, and three under the profiler."""
LEAST_DEVICE_SECONDS = 5.0
"""Whatever the timeout is: what was launched by several has to run out."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How thoroughly one candidate is judged."""

    name: Literal["quick", "standard", "strict"] = "standard"
    num_rounds: int = 5
    """Correctness rounds, each with a fresh instance, fresh weights and fresh inputs."""
    num_repeats: int = 2
    """Rounds in which the instance is called a second time, with new content in the same buffers."""
    num_trials: int = 100
    """Timed calls on a real device, at least, unless thrice `timing_seconds` end first; more where it is unsure."""
    baseline: Literal["eager", "compile"] = "eager"
    precision: Literal["ieee", "tf32"] = "tf32"
    twin_share: float = 1 / 16
    """In so many of the verdicts on a real device, drawn by lot, own kernels are silenced in a process of its own, from
    birth, whatever else would do (`judging.silence`). That costs a context more."""
    allow_degenerate: bool = False
    """Judge problems that the audit refuses."""
    timeout: float = 120.0
    """Seconds for everything that the candidate does, from import to its last call."""
    load_timeout: float = 60.0
    """Seconds for importing the source; compiling CUDA sources is given longer."""
    cause_timeout: float = 20.0
    """Seconds for the silenced call; a candidate that hangs without its kernels depends on them."""
    timing_seconds: float = 0.15
    """Timing on a real device stops after this long, sharp or not, once there are enough calls and the figure says
    something; thrice as much at most."""
    timing_error: float = 0.01
    """Half the 95 % interval over the figure at which it is sharp enough."""
    host_memory_bytes: int = 4 << 30
    """Host memory of one hosted process, beyond what it shares with its fork server."""
    num_processes: int = 256
    scratch_bytes: int = 2 << 30

    @property
    def device_seconds(self) -> float:
        """Seconds that the device may go on working on what was launched, where that is looked into: `judging.inquest`.

        While a kernel does not end nobody else on its device is timed; and a candidate whose calls take longer has no
        time for as many of them as a verdict makes.
        """
        return max(LEAST_DEVICE_SECONDS, self.timeout / NUM_CALLS)

    def record(self) -> dict[str, Any]:
        """Every setting that has no field of its own in `schema.ProtocolRecord`."""
        named = {"name", "num_rounds", "num_trials", "baseline", "precision"}
        return {key: value for key, value in asdict(self).items() if key not in named}


PROTOCOLS = {
    "quick": Protocol(name="quick", num_rounds=2, num_repeats=1, num_trials=20, timing_seconds=0.1, timing_error=0.02),
    "standard": Protocol(),
    "strict": Protocol(
        name="strict",
        num_rounds=10,
        num_repeats=4,
        num_trials=300,
        timing_seconds=3.0,
        timing_error=0.007,
        twin_share=1.0,
    ),
}


def protocol(name: str, **changes: Any) -> Protocol:
    """The protocol called `name`, with changes.

    Raises:
        ValueError: unknown name, or a setting that cannot be, in one line.
    """
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}: choose one of {', '.join(PROTOCOLS)}")
    for setting, choices in (("baseline", ("eager", "compile")), ("precision", ("ieee", "tf32"))):
        if changes.get(setting) not in (None, *choices):
            raise ValueError(f"unknown {setting} {changes[setting]!r}: choose one of {', '.join(choices)}")
    timeout = changes.get("timeout")
    if timeout is not None and not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(f"timeout must be above 0 and at most {MAX_TIMEOUT:.0f} seconds, not {timeout}")
    return replace(PROTOCOLS[name], **{key: value for key, value in changes.items() if value is not None})
