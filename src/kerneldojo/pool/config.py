"""Settings of a pool; the defaults are the vetted ones."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from kerneldojo.schema import Frozen
from kerneldojo.schema.pace import Pace

PATIENCE = 1e6
"""Seconds for which pool and worker listen to each other; health checks come far more often."""


AFFINITY_WINDOW, MOST_OVERTAKEN = 512, 16
"""How far a queue is looked through for a job that suits what is free, and how often its first may be overtaken."""


class PoolConfig(Frozen):
    """How a pool keeps its devices busy, and how patient it is with them."""

    num_verdicts_per_worker: int = Field(default=4, ge=1, le=64)
    """Verdicts under way at once in one worker of a `cpu` or `model:` device; they share its two fork servers, whose
    start is most of what a pool costs. More than four, and the worker's one interpreter lock is in their way."""
    num_verdicts_per_gpu: int | None = Field(default=None, ge=1, le=64)
    """Verdicts under way at once on one GPU, whose windows take turns (`judging.gate`). None: one for every two cores
    that the GPU has for itself, at most eight, which are four times as fast as one, and as exact; fewer where memory is
    short (`judging.division`). With fewer, a problem may be larger before it is judged alone (docs/throughput.md)."""
    cores: tuple[int, ...] = ()
    """Cores of this machine that its workers keep to (`LocalPool` alone); the others are left to whoever else works
    here. None named: all that this process may use."""
    start_seconds: float = Field(default=180.0, gt=0)
    """How long a worker process may take until it is ready: it imports torch, on a machine that may be busy."""
    accept_seconds: float = Field(default=60.0, gt=0)
    """How long a ready worker may take to say that it has begun with a job."""
    margin_seconds: float = Field(default=300.0, gt=0)
    """For starting and ending processes, and for others' windows, beyond what candidate and reference may take of their
    own. A worker hangs in which one stage of a verdict takes longer than all that."""
    num_retries: int = Field(default=3, ge=0)
    """How often a job is tried again after a fault of ours that no candidate caused."""
    backoff_seconds: float = Field(default=0.5, gt=0)
    """Pause before the first retry of a job and the first new start of a sick worker; it doubles each time."""
    longest_backoff_seconds: float = Field(default=60.0, gt=0)
    """Longest such pause."""
    check_seconds: float = Field(default=30.0, gt=0)
    """How often an idle device's health is checked."""
    check_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long a health check may take."""
    remember: int = Field(default=10_000, ge=0)
    """Verdicts kept in memory, so that equal jobs are judged once; 0 for none."""
    cache_folder: Path | None = None
    """Where verdicts are kept on disk too, for the next process; None for nowhere."""
    affinity_window: int = Field(default=AFFINITY_WINDOW, ge=1)
    """How far behind the head of the queue a slot looks for a problem that it is warm for: far enough that there are
    as many problems as verdicts at once on several GPUs, when samples of one come in a row."""
    most_overtaken: int = Field(default=MOST_OVERTAKEN, ge=0)
    """How often the head of a queue may be overtaken by jobs that suit a slot better."""
    reuse_reference_times: bool = True
    """On a GPU: take a problem's reference time from earlier verdicts, and check it for drift
    (`judging.reference_times`)."""
    pace: Pace = Pace()
    """On a GPU with several verdicts at once: how their windows follow each other."""
