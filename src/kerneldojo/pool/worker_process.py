"""The pool's grip on one worker process: started by exec, asked over a socket, killed by its id.

Several threads may wait for verdicts of one worker; one thread of ours reads what it says. When it is gone, everybody
who waits hears why.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kerneldojo
from kerneldojo.contestant.scratch import Scratch
from kerneldojo.contestant.wire import DeadlinePassed, WireError, channel_pair
from kerneldojo.pool.config import PATIENCE, PoolConfig
from kerneldojo.pool.faults import Cause, Sick, WorkerLost
from kerneldojo.schema import Evaluation, Job

log = logging.getLogger(__name__)

_GLANCE_SECONDS = 0.2
"""How often whoever waits for a worker to start looks whether it is still wanted."""
_LOOK_SECONDS = 1.0
"""How often whoever waits for an answer looks at its deadline, which moves as judging proceeds."""
_DEATH_SECONDS = 10.0
"""How long a killed worker is waited for. One that hangs in a driver stays, and nobody must stay with it."""


@dataclass
class _Pending:
    """Somebody who waits for an answer."""

    deadline: float
    on_stage: Callable[[str], None]
    answered: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] | None = None
    lost: WorkerLost | None = None


class WorkerProcess:
    """One worker, from its start to its end. Thread-safe once it is made.

    The thread that makes it must live as long as the worker shall: the kernel ends the worker with that thread.

    Args:
        device: the device as this machine names it.
        num_verdicts: verdicts at once.
        config: how patient to be.
        cores: those that it keeps to, of which no other GPU's worker has any; all of ours if empty.
        is_wanted: asked while it starts, so that a pool that is closed meanwhile does not wait for it.

    Raises:
        Sick: it did not come up.
    """

    def __init__(
        self,
        device: str,
        num_verdicts: int,
        config: PoolConfig,
        cores: Sequence[int] = (),
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config = config
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._is_lost = False
        self._below: set[tuple[int, str]] = set()
        """Its fork servers as far as they were seen, for whoever finds it dead cannot ask whose they are."""
        self._ended = threading.Event()
        self._reader: threading.Thread | None = None
        try:
            self._scratch = Scratch()
        except OSError as error:
            raise Sick(f"there is no temporary folder for its worker: {error.strerror}") from None
        self._channel, theirs = channel_pair()
        fields = [theirs.fileno(), os.getpid(), device, num_verdicts, int(config.reuse_reference_times)]
        pace = config.pace.model_dump_json()
        listed = ",".join(map(str, cores))
        command = [sys.executable, "-P", "-m", "kerneldojo.pool.worker", *map(str, fields), pace, listed]
        environment = {**os.environ, "TMPDIR": str(self._scratch.folder), "PYTHONPATH": import_path()}
        # Lanes share the cores. On the host torch has little to do for a GPU's verdicts, too, but its threads spin
        # after each sample that is indexed there, on cores that other verdicts need.
        environment["OMP_NUM_THREADS"] = "1"
        try:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._channel.close()
            self._scratch.close()
            raise Sick(f"its worker did not start: {error.strerror}") from None
        finally:
            theirs.close()
        self.pid = self._process.pid
        try:
            self.description = str(self._wait_ready(is_wanted).get("description", ""))
        except WireError as error:
            self._end()
            raise Sick(f"its worker did not start: {error}") from None
        self._reader = threading.Thread(target=self._read, name=f"reader of worker {self.pid}", daemon=True)
        self._reader.start()

    def _wait_ready(self, is_wanted: Callable[[], bool]) -> dict[str, Any]:
        until = time.monotonic() + self._config.start_seconds
        while True:
            try:
                return self._channel.receive(_GLANCE_SECONDS)
            except DeadlinePassed:
                if not is_wanted() or time.monotonic() > until:
                    raise

    @property
    def is_alive(self) -> bool:
        """Whether it is there; False once it is gone and whoever waited for it has been told."""
        return not self._ended.is_set()

    @property
    def is_gone(self) -> bool:
        """See `slot.AnyWorker`."""
        return self._process.poll() is not None

    def judge(self, device: str, job: Job, on_stage: Callable[[str], None]) -> Evaluation:
        """Have a job judged.

        Raises:
            WorkerLost: the worker died or hung; it is gone.
            Sick: the device is no longer there.
        """
        fields = {"device": device, "job": job.model_dump(mode="json")}
        answer = self._ask("judge", self._config.accept_seconds, on_stage, fields)
        if "lost" in answer:
            self.kill("died", str(answer["lost"]))
            raise WorkerLost("died", str(answer["lost"]))
        if "broken" in answer:  # Our own doing, as far as is known: nobody who was present is to blame.
            self.kill("elsewhere", str(answer["broken"]))
            raise WorkerLost("fault", str(answer["broken"]))
        if "failed" in answer:
            raise Sick(str(answer["failed"]))
        return Evaluation.model_validate(answer["verdict"])

    def ping(self) -> None:
        """See whether it answers; raises `WorkerLost` otherwise, and then it is gone."""
        self._ask("ping", self._config.check_timeout_seconds, lambda _: None, {})

    def _ask(
        self, operation: str, patience: float, on_stage: Callable[[str], None], fields: dict[str, Any]
    ) -> dict[str, Any]:
        number = next(self._numbers)
        pending = _Pending(time.monotonic() + patience, on_stage)
        with self._lock:
            if self._is_lost:
                raise WorkerLost("elsewhere", "the worker was gone before the job reached it")
            self._pending[number] = pending
        try:
            with self._sending:
                self._channel.send({"op": operation, "id": number, **fields}, timeout=patience)
        except (WireError, ValueError) as error:  # ValueError: its channel was closed meanwhile.
            self.kill("died", f"the worker does not listen: {error}")
        while not pending.answered.wait(max(0.0, min(pending.deadline - time.monotonic(), _LOOK_SECONDS))):
            if time.monotonic() >= pending.deadline:
                what = "verdict" if operation == "judge" else "sign of life"
                self.kill("hung", f"the worker gave no {what} in time", culprit=number)
                pending.answered.wait(_GLANCE_SECONDS)  # Another thread may be about it.
        if pending.answer is None:
            assert pending.lost is not None
            raise pending.lost
        return pending.answer

    def _read(self) -> None:
        try:
            while True:
                message = self._channel.receive(timeout=PATIENCE)
                with self._lock:
                    pending = self._pending.get(int(message.get("id", -1)))
                    if pending is None:
                        continue
                    if "begun" in message:
                        self._below = set(_session_of(self.pid))
                        pending.deadline = self._deadline(message["begun"])
                    elif "stage" in message:
                        pending.deadline = self._deadline(message["seconds"])
                        pending.on_stage(str(message["stage"]))
                    else:
                        pending.answer = message
                        del self._pending[int(message["id"])]
                        pending.answered.set()
        except WireError:
            self.kill("died", "")
        except Exception as error:  # What it says makes no sense: then nothing that it says is worth waiting for.
            log.exception("a worker does not keep to the protocol")
            self.kill("died", f"the worker does not keep to the protocol: {type(error).__name__}")

    def _deadline(self, seconds: float) -> float:
        """Until when what has begun may take that long."""
        return time.monotonic() + float(seconds) + self._config.margin_seconds

    def kill(self, cause: Cause, reason: str, culprit: int | None = None) -> None:
        """End it and all below it; whoever waits hears `cause`, or `elsewhere` if another job is the culprit."""
        with self._lock:
            if self._is_lost:
                return
            self._is_lost = True
            waiting, self._pending = self._pending, {}
        status = self._end()
        if cause == "died" and not reason:
            reason = f"the worker process died ({_ending(status)})"
        for number, pending in waiting.items():
            is_elsewhere = culprit is not None and number != culprit
            pending.lost = WorkerLost("elsewhere" if is_elsewhere else cause, reason)
            pending.answered.set()
        self._ended.set()

    def close(self) -> None:
        """Let it end in order; kill it if it does not. Nothing of it is left then, whoever found it dead before."""
        if not self._is_lost:
            # ValueError: it died just now, and its channel was closed meanwhile.
            with contextlib.suppress(WireError, ValueError), self._sending:
                self._channel.send({"op": "stop"}, timeout=1.0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(15.0)
            self.kill("elsewhere", "the pool was closed")
        self._ended.wait(15.0)
        if self._reader is not None:
            self._reader.join(5.0)

    def _end(self) -> int | None:
        """Kill it, wait until its fork servers are gone too, and give back what it held.

        Returns:
            How it ended; None if it has not.
        """
        below = self._below | set(_session_of(self.pid))
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        status: int | None = None
        try:
            status = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            log.error("worker %d does not end though it was killed", self.pid)
        until = time.monotonic() + 10.0
        while any(_is_same(pid, born) for pid, born in below) and time.monotonic() < until:
            time.sleep(0.01)
        for pid, born in below:  # One that has hung while its worker died: its contestants die with its keepers.
            if _is_same(pid, born):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # The reader thread may be inside `poll` on it: it sees the other end closed, and leaves.
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(5.0)
        self._channel.close()
        self._scratch.close()
        return status


def _session_of(pid: int) -> list[tuple[int, str]]:
    """Direct children of a worker (its fork servers), each with the time of its birth."""
    from kerneldojo.contestant.sandbox import processes

    return [(child, _born(child)) for child in processes.children(pid)]


def _born(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _is_same(pid: int, born: str) -> bool:
    """Whether `pid` is still the process born then, and not a zombie."""
    from kerneldojo.contestant.sandbox import processes

    return bool(born) and _born(pid) == born and processes.is_alive(pid)


def _ending(status: int | None) -> str:
    if status is None:
        return "killed, and not gone"
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def import_path() -> str:
    """PYTHONPATH by which a worker finds the package that this process runs, whatever the working folder."""
    root = str(Path(kerneldojo.__file__).resolve().parent.parent)
    return os.pathsep.join([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
