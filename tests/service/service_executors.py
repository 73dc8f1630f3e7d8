"""Executors for tests: quick ones that decide by the candidate's text, and one thread around the real judge."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kerneldojo.pool import LocalPool
from kerneldojo.pool.executor import DeviceState
from kerneldojo.pool.warmth import Warmth
from kerneldojo.schema import Evaluation, Exploit, Job, KernelTime, Roofline, Status, Timing


class TextExecutor:
    """Reads the verdict off the candidate: `passed`, `exploit`, `sleep SECONDS`, `wait` (for `release`), `raise`."""

    def __init__(self, devices: Sequence[str] = ("cpu",), *, num_slots: int = 8, log: Path | None = None) -> None:
        self.num_slots = num_slots
        self.release = threading.Event()
        self.is_healthy = True
        self.seen: list[Job] = []
        self.is_closed = False
        self._names = list(devices)
        self._threads = ThreadPoolExecutor(num_slots)
        self._log = log
        self._done = 0

    def submit(self, job: Job) -> Future[Evaluation]:
        if job.device == "cuda:99":
            raise ValueError("no device of this executor is called cuda:99")
        if self.is_closed:
            raise RuntimeError("closed")
        return self._threads.submit(self._judge, job)

    def _judge(self, job: Job) -> Evaluation:
        self.seen.append(job)
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(job.candidate.source.split()[-1] + "\n")
        word, _, rest = job.candidate.source.partition(" ")
        if word == "sleep":
            time.sleep(float(rest.split()[0]))
        elif word == "wait":
            self.release.wait(30)
        elif word == "raise":
            raise OSError("a secret of the executor")
        self._done += 1
        return verdict(word)

    def devices(self) -> list[DeviceState]:
        reason = "" if self.is_healthy else "it fell off"
        return [
            DeviceState(name=name, kind="cpu", is_healthy=self.is_healthy, reason=reason, num_done=self._done)
            for name in self._names
        ]

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        self.is_closed = True
        self.release.set()
        self._threads.shutdown(wait=drain, cancel_futures=not drain)


class ChoosyExecutor(TextExecutor):
    """Needs a runner for each verdict under way, keeps them by problem, and says what it would rather be given."""

    def __init__(self, *, num_slots: int) -> None:
        super().__init__(num_slots=num_slots)
        self.num_made = 0
        self._warmth = Warmth(2 * num_slots, is_shared=False)
        self._lock = threading.Lock()

    def rank(self, problem_hash: str) -> int:
        with self._lock:
            return 0 if self._warmth.is_free(problem_hash) else 1 + self._warmth.num_met(problem_hash)

    def submit(self, job: Job) -> Future[Evaluation]:
        with self._lock:
            self.num_made += not self._warmth.is_free(job.problem.hash)
            self._warmth.begin(job.problem.hash)
        return super().submit(job)

    def _judge(self, job: Job) -> Evaluation:
        try:
            return super()._judge(job)
        finally:
            with self._lock:
                self._warmth.end(job.problem.hash)


def verdict(word: str) -> Evaluation:
    if word == "passed":
        kernels = (
            KernelTime(name="own", device_ms=0.5, num_launches=2, own=True),
            KernelTime(name="library", device_ms=0.5, num_launches=1),
        )
        return Evaluation(
            status=Status.PASSED,
            correct=True,
            speedup=2.0,
            coverage=0.4,
            kernel_ms=1.0,
            reference_ms=2.0,
            kernels=kernels,
            roofline=Roofline(limit_ms=0.5, fraction=0.5),
            timing=Timing(source="modeled", median_ms=1.0),
            device="model:h100",
            language="triton",
        )
    if word == "exploit":
        return Evaluation(status=Status.EXPLOIT, exploits=(Exploit(name="no_causal_kernel", evidence="none"),))
    if word == "odd":
        return Evaluation(status=Status.RUNTIME_ERROR, message="line\u2028separator \ud800 surrogate \x85")
    statuses = {status.value: status for status in Status} | {"sleep": Status.COMPILE_ERROR, "wait": Status.INCORRECT}
    return Evaluation(status=statuses.get(word, Status.COMPILE_ERROR), message=f"said {word}")


def text(devices: list[str]) -> TextExecutor:
    """For `dojo serve --executor service_executors:text`."""
    return TextExecutor(devices)


def logged(devices: list[str]) -> TextExecutor:
    """The same, with every judged candidate's last word in the file that is named where the devices are."""
    return TextExecutor(["cpu"], num_slots=4, log=Path("judged.log"))


class JudgeExecutor:
    """The real judge, one job at a time in each of two threads."""

    num_slots = 2

    def __init__(self, devices: Sequence[str]) -> None:
        from kerneldojo.judging import Judge

        self._judge = Judge()
        self._device = devices[0]
        self._threads = ThreadPoolExecutor(self.num_slots)

    def submit(self, job: Job) -> Future[Evaluation]:
        return self._threads.submit(
            self._judge.judge, job.problem, job.candidate, device=self._device, protocol_name=job.protocol
        )

    def devices(self) -> list[DeviceState]:
        return [DeviceState(name=self._device, kind="cpu")]

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        self._threads.shutdown(wait=drain, cancel_futures=not drain)
        self._judge.close()


def pooled(devices: list[str]) -> LocalPool:
    """A pool of one slot, for `dojo serve --executor service_executors:pooled`."""
    return LocalPool(["model:h100"], num_slots=1)


def real(devices: list[str]) -> JudgeExecutor:
    """For `dojo serve --executor service_executors:real`."""
    return JudgeExecutor(devices)
