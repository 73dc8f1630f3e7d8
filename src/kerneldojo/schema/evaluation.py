"""What comes out of the judge: an evaluation.

A candidate's failure is data: a `Status` in an `Evaluation`, never an exception. The two statuses that do not speak
of the candidate are `INVALID_PROBLEM` (the problem cannot be judged) and `INFRASTRUCTURE_ERROR` (we failed; the only
one that may be retried, and never scored).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, cast

from pydantic import Field, computed_field, model_validator

from kerneldojo.schema.base import Frozen, WrittenText
from kerneldojo.schema.problem import SourceLanguage

CAUSE_UNSHOWN = "whether its own kernels cause its answers could not be shown, for answers to other inputs are the same"
"""Noted of a candidate that passed, where nobody could tell: see `judging.cause`."""


class Status(StrEnum):
    """What became of a candidate."""

    PASSED = "passed"
    """Right in every round and in every checked timed call, by its own kernels."""
    INCORRECT = "incorrect"
    """Wrong values, types or shapes, mutated inputs, reused output buffers, or parameters that do not match."""
    EXPLOIT = "exploit"
    """Credit was sought without the work; `Evaluation.exploits` holds the evidence."""
    COMPILE_ERROR = "compile_error"
    """The source could not be read, parsed, imported or compiled."""
    RUNTIME_ERROR = "runtime_error"
    """It raised, crashed or broke its process while running."""
    TIMEOUT = "timeout"
    """It did not finish within its deadline."""
    OUT_OF_MEMORY = "out_of_memory"
    """It asked for more host or device memory than it was given."""
    UNSUPPORTED_ON_DEVICE = "unsupported_on_device"
    """This device cannot judge it (inline assembly under the interpreter, CUDA without a GPU). Never scored."""
    INVALID_PROBLEM = "invalid_problem"
    """The problem itself cannot be judged; the message says why."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """Our fault. Retried by whoever asked, never scored."""

    @property
    def is_about_candidate(self) -> bool:
        """Whether the verdict speaks of the candidate (and may be scored) rather than of the problem or of us."""
        return self is not Status.INFRASTRUCTURE_ERROR and not self.is_refusal

    @property
    def is_refusal(self) -> bool:
        """Whether nothing can be judged here, now or later: not scored, and of no use to try again."""
        return self in (Status.INVALID_PROBLEM, Status.UNSUPPORTED_ON_DEVICE)


class Exploit(Frozen):
    """One way in which a candidate sought credit without the work."""

    name: str
    """Class of the exploit, as listed in `docs/trust.md`, for example `no_causal_kernel`."""
    evidence: str
    """What was observed, in one sentence that contains no secret of the judge."""


class Timing(Frozen):
    """How long one call takes and how sure we are. Times in milliseconds."""

    source: Literal["measured", "modeled"] | None = None
    """`measured` on the device, `modeled` by the roofline of a `model:` device, or None where there is no time."""
    median_ms: float | None = None
    """The figure that counts."""
    confidence_interval_ms: tuple[float, float] | None = None
    """95 % interval of the median; both ends equal for a modelled time."""
    num_trials: int = 0
    """Timed calls."""
    judge_ms: float | None = None
    """The judge's own clock, from outside the contestant: decides."""
    device_ms: float | None = None
    """The contestant's device timestamps: a claim, which the judge's clock bounds."""
    host_bound: bool | None = None
    """Whether its kernels kept the device busy for less than 80 % of `median_ms`, so that launches are what is
    measured; None without a profile, as for a reference."""
    first_call_ms: float | None = None
    """Duration of the first call of a fresh instance, where packing and autotuning may be done."""
    construction_ms: float | None = None
    """Duration of the constructor."""
    clock_mhz: tuple[int, int] | None = None
    """Lowest and highest clock of the multiprocessors seen during the measurement."""


class KernelTime(Frozen):
    """Device time of one kernel within a call."""

    name: WrittenText
    """Name as the profiler or the model gives it."""
    device_ms: float
    """Total device time of a call spent in this kernel, in milliseconds."""
    num_launches: float = 1
    """Launches a call."""
    own: bool = False
    """Whether the candidate itself brought this kernel (exact identity of the compiled module, never a name)."""


class Roofline(Frozen):
    """The physical limit: no kernel on this device can be faster."""

    limit_ms: float
    """Compulsory traffic at peak bandwidth, or irreducible FLOPs at peak rate, whichever takes longer."""
    fraction: float | None = None
    """`limit_ms / kernel_ms`: the share of the physical limit that was reached."""
    bound: Literal["memory", "compute"] = "memory"
    """Which of the two decides."""
    compulsory_bytes: int = 0
    """Bytes that must move: inputs on which the output depends, and outputs."""
    irreducible_flops: float = 0
    """FLOPs that cannot be avoided; zero unless the problem is marked so."""


class Unverified(Frozen):
    """What a naive evaluator would have credited an exploit with. Never to be used as a reward."""

    outputs_matched: bool | None = None
    """Whether its outputs matched in the rounds."""
    speedup: float | None = None
    """Reference time over the time that a naive clock would have read."""


class ProtocolRecord(Frozen):
    """How the verdict was reached: enough to reach it again."""

    version: str
    """Version of the judging protocol; figures of different versions are not compared."""
    name: str = "standard"
    """`quick`, `standard` or `strict`."""
    num_rounds: int = 0
    """Correctness rounds that were asked for."""
    num_trials: int = 0
    """Timed calls that were asked for."""
    baseline: Literal["eager", "compile"] = "eager"
    """What the speedup is measured against."""
    precision: Literal["ieee", "tf32"] = "tf32"
    """The class of arithmetic that float32 problems allow."""
    oracle: Literal["float64", "float32"] | None = None
    """What the expected outputs were computed in."""
    mode: Literal["train", "eval"] | None = None
    """Mode of the modules; `train` (as constructed) unless the reference is random in it."""
    isolation: tuple[str, ...] = ()
    """Sandbox features that held for this verdict."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Every other setting that influences the verdict."""


NO_STAGES = frozenset({"total", "held", "stopping", "alone"})
"""Names in `Evaluation.stage_seconds` of times that the stages make up, or that lie within them."""


class Evaluation(Frozen):
    """The verdict on one candidate for one problem on one device."""

    status: Status
    correct: bool = False
    """Whether the outputs were right in every round; an exploit is never correct."""
    speedup: float | None = None
    """Reference time over kernel time; null where nothing was timed."""
    coverage: float | None = None
    """Device time of own kernels over total device time (Dr. Kernel's PR, Eq. 7), in [0, 1]; null where unknown."""
    kernel_ms: float | None = None
    reference_ms: float | None = None
    exploits: tuple[Exploit, ...] = ()
    message: WrittenText = ""
    """What the candidate's author may read; built from a whitelist, so that nothing secret leaks."""
    device: str = ""
    """The device that judged, for example `cuda:0 (NVIDIA H200)` or `model:h100`."""
    language: SourceLanguage | None = None
    precision_class: Literal["ieee", "tf32", "below"] | None = None
    """Measured class of the candidate's arithmetic, for float32 problems."""
    max_error: float | None = None
    """Largest error seen, in units of the tolerance: below 1 passes."""
    timing: Timing = Timing()
    reference_timing: Timing = Timing()
    kernels: tuple[KernelTime, ...] = ()
    unverified: Unverified | None = None
    roofline: Roofline | None = None
    protocol: ProtocolRecord = ProtocolRecord(version="0")
    notes: tuple[str, ...] = ()
    """Static findings, degraded isolation, admitted degenerate problem: true, but not decisive."""
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    """Where the judging itself spent its time, in seconds: its stages, their `total`, and what lies within them (`held`
    and `stopping` for other verdicts, `alone` with the device), where others were under way."""
    problem_hash: str = ""
    candidate_hash: str = ""

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of each stage: those of `stage_seconds` that add up."""
        return {name: seconds for name, seconds in self.stage_seconds.items() if name not in NO_STAGES}

    @property
    def is_cause_shown(self) -> bool:
        """Whether its own kernels have been seen to cause its answers, if it passed."""
        return CAUSE_UNSHOWN not in self.notes

    @computed_field
    @property
    def timing_source(self) -> str | None:
        """Shorthand for `timing.source`."""
        return self.timing.source

    @model_validator(mode="before")
    @classmethod
    def _without_shorthand(cls, values: Any) -> Any:
        """What was written with the shorthand is read back without it."""
        if isinstance(values, dict) and "timing_source" in values:
            return {key: value for key, value in cast("dict[str, Any]", values).items() if key != "timing_source"}
        return values

    @model_validator(mode="after")
    def _states_are_possible(self) -> Evaluation:
        if self.correct != (self.status is Status.PASSED):
            raise ValueError(f"correct={self.correct} cannot go with status {self.status}")
        if (self.status is Status.EXPLOIT) != bool(self.exploits):
            raise ValueError("exploits are listed exactly when the status is exploit")
        if self.status is not Status.PASSED and self.speedup is not None:
            raise ValueError("only a passed candidate has a speedup; see `unverified`")
        return self
