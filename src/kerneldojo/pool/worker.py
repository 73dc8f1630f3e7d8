"""A worker process: it holds a `Judge`, and judges what it is sent.

    python -P -m kerneldojo.pool.worker FD     # started by the pool, FD is its end of a socket

Frames are those of `contestant.wire`: length-capped JSON. Sent to it: `{"op": "judge", "id": n, "device": name, "job":
{...}}` and `{"op": "ping", "id": n}`. Sent by it: `{"ready": ...}` once, and for each job `begun` with the seconds that
the candidate may take, each `stage` as it begins with the seconds that it may take (`judging.patience`), and `verdict`.
The worker dies with whoever started it: the kernel sees to that (PR_SET_PDEATHSIG), and a closed socket says the same.
Its fork servers then find their own sockets closed and end with everything that they spawned.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from kerneldojo.contestant.sandbox import linux
from kerneldojo.contestant.wire import Channel, WireError
from kerneldojo.judging.servers import Begun
from kerneldojo.pool.config import PATIENCE
from kerneldojo.schema import Job, Status
from kerneldojo.schema.pace import Pace

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""How soon a thread hands the interpreter on, a tenth of Python's default: verdicts under way take short turns, and one
that waits for the interpreter keeps its processes waiting."""


class Worker:
    """Serves one pool, over one socket.

    Args:
        channel: to the pool.
        device: that it will serve.
        num_verdicts: verdicts that may be under way at once.
        reuse_reference_times, pace: as in `pool.PoolConfig`.
        cores: those that it may use and no other GPU's worker does; empty for no such.
    """

    def __init__(
        self,
        channel: Channel,
        device: str,
        num_verdicts: int,
        *,
        reuse_reference_times: bool,
        pace: Pace,
        cores: Sequence[int] = (),
    ) -> None:
        self._channel, self._device, self._num_verdicts = channel, device, num_verdicts
        self._lock = threading.Lock()
        begun = Begun.ahead(device)
        from kerneldojo.judging import Judge  # Imports torch, while they warm up.

        self._judge = Judge(
            num_verdicts=num_verdicts,
            reuse_reference_times=reuse_reference_times,
            cores=cores,
            pace=pace,
            begun=begun,
        )

    def serve(self) -> None:
        """Judge until the pool is gone or says that it is enough."""
        self._judge.start(self._device)
        gc.freeze()  # What was imported stays: it is not searched for garbage, now or later.
        gc.enable()
        self._tell({"ready": True, "description": self._judge.describe(self._device)})
        while True:
            message = self._channel.receive(timeout=PATIENCE)
            if message["op"] == "ping":
                self._tell({"id": message["id"], "pong": True})
            elif message["op"] == "judge":
                threading.Thread(target=self._do, args=(message,), daemon=True).start()
            else:
                self._judge.close()
                return

    def _do(self, message: dict[str, Any]) -> None:
        number = message["id"]
        try:
            try:
                answer = self._verdict(number, message)
            except ValueError as error:  # The device is not there any more, or the versions do not fit.
                answer = {"id": number, "failed": str(error)[:300]}
            except WireError:
                raise
            except Exception as error:  # Whoever waits would wait for its deadline, and blame the candidate.
                log.exception("a bug in the judge")
                answer = {"id": number, "failed": f"{type(error).__name__} in the judge"}
            try:
                self._tell(answer)
            except ValueError as error:  # It is longer than a frame.
                self._tell({"id": number, "failed": str(error)})
        except WireError:
            os._exit(1)  # The pool is gone.

    def _verdict(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        from kerneldojo.judging.patience import seconds_of
        from kerneldojo.judging.protocol import protocol

        job = Job.model_validate(message["job"])
        allowance = protocol(job.protocol, timeout=job.timeout).timeout
        self._tell({"id": number, "begun": allowance})
        num_deaths = self._judge.num_deaths(message["device"])
        evaluation = self._judge.judge(
            job.problem,
            job.candidate,
            device=message["device"],
            protocol_name=job.protocol,
            baseline=job.baseline,
            precision=job.precision,
            timeout=job.timeout,
            allow_degenerate=job.allow_degenerate,
            on_stage=lambda stage: self._tell(
                {"id": number, "stage": stage, "seconds": seconds_of(stage, allowance, self._num_verdicts)}
            ),
        )
        answer: dict[str, Any] = {
            "id": number,
            "verdict": evaluation.model_dump(mode="json", exclude={"timing_source"}),
        }
        if evaluation.status is Status.INFRASTRUCTURE_ERROR:
            if self._judge.num_deaths(message["device"]) > num_deaths:
                answer["lost"] = "a fork server died"
            elif self._judge.is_broken(message["device"]):
                answer["broken"] = "the judge's own context on the device broke"
        return answer

    def _tell(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._channel.send(message)


def main(arguments: list[str]) -> None:
    """Serve on the socket `FD` for `DEVICE`, several verdicts at once, on `CORES`; ends the process."""
    fd, owner, device, num_verdicts, reuse, told, listed = arguments
    pace = Pace.model_validate_json(told)
    cores = [int(core) for core in listed.split(",") if core]
    if cores:
        os.sched_setaffinity(0, cores)  # Before there is another thread or process, so that all of ours have it.
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(owner):
        os._exit(1)  # Whoever started us was gone before the kernel knew to tell.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's to handle.
    logging.basicConfig(level=logging.WARNING, format=f"worker {os.getpid()} ({device}): %(message)s")
    sys.setswitchinterval(SWITCH_SECONDS)
    channel = Channel(socket.socket(fileno=int(fd)))
    gc.disable()  # Until it serves.
    try:
        reuses = reuse == "1"
        Worker(channel, device, int(num_verdicts), reuse_reference_times=reuses, pace=pace, cores=cores).serve()
    except WireError:
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
