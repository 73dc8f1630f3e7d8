"""Auditing many problems, some of them too large or too slow for this machine, without losing what is done.

One process for each device audits problem after problem (`audit_process`). One that takes too long, or dies, costs its
own finding only: the process is killed and another one started. With a file (`audit_file`) each finding is on disk
before the next problem is begun, and the same command goes on where it was.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from kerneldojo import devices
from kerneldojo.judging.audit_file import Audited, AuditFile, Finding, Limits
from kerneldojo.schema import Problem


class AuditProcess:
    """Audits, and survives its own death."""

    def __init__(self, device: str, limits: Limits) -> None:
        self._command = [sys.executable, "-P", "-m", "kerneldojo.judging.audit_process", device]
        if limits.memory_gb is not None:
            self._command.append(str(int(limits.memory_gb * 2**30)))
        self._seconds = limits.seconds
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, problem: Problem) -> Finding:
        """Audit one problem; whatever happens is a finding."""
        if self._process is None:
            # A session of its own: Ctrl-C is for whoever shows the findings.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = None if self._seconds is None else threading.Timer(self._seconds, end)
        if timer is not None:
            timer.start()
        try:
            process.stdin.write(problem.model_dump_json().encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
        if line.endswith(b"\n") and not late.is_set():
            return Finding.model_validate_json(line)
        self.kill()
        if self._seconds is not None and late.is_set():
            return Finding(verdict="too slow", reason=f"not done in {self._seconds:g} s", seconds=self._seconds)
        status = process.returncode
        if status == -9:
            return Finding(verdict="too large", reason="its process was killed, as the kernel does for want of memory")
        return Finding(verdict="failed", reason=f"its process ended with status {status}")

    def close(self) -> None:
        """Let it end in order."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20.0)
        self.kill()

    def kill(self) -> None:
        """End it now, if it is there, and with it everything below."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def audit_all(
    problems: Sequence[Problem],
    device: str,
    limits: Limits,
    file: AuditFile | None,
    on_problem: Callable[[Problem], None],
    num_processes: int | None = None,
) -> list[tuple[Problem, Finding]]:
    """Audit problems, several side by side where there are several GPUs; Ctrl-C ends it with what is done.

    Args:
        problems: what is audited; the findings come in this order.
        device: `cuda` and `auto` mean all GPUs, if there are any.
        limits: of each audit.
        file: where findings are kept.
        on_problem: called before each audit, from several threads but by one at a time.
        num_processes: audits at once; by default one for each device.
    """
    names = devices.every(device)
    found: dict[int, Finding] = {}
    waiting = deque(enumerate(problems))
    taking = threading.Lock()
    stopped = threading.Event()
    processes = [AuditProcess(names[number % len(names)], limits) for number in range(num_processes or len(names))]

    def lane(process: AuditProcess) -> None:
        while not stopped.is_set():
            with taking:
                if not waiting:
                    return
                number, problem = waiting.popleft()
                on_problem(problem)
                known = file.known.get(problem.hash) if file is not None else None
            if known is not None and known.stands(problem, device, limits):
                found[number] = known.finding
                continue
            finding = process.ask(problem)
            with taking:
                if stopped.is_set():  # What was killed says nothing.
                    return
                found[number] = finding
                if file is not None:
                    name = f"{problem.level}/{problem.name}" if problem.level is not None else problem.name
                    file.add(Audited(problem=problem.hash, name=name, device=device, limits=limits, finding=finding))

    try:
        with ThreadPoolExecutor(len(processes), "audit") as lanes:
            ended = [lanes.submit(lane, process) for process in processes]
            try:
                for one in wait(ended, return_when=FIRST_EXCEPTION).done:
                    one.result()
            except BaseException:
                stopped.set()
                while wait(ended, timeout=0.1).not_done:
                    for process in processes:
                        process.kill()
                raise
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.close()
    return [(problems[number], found[number]) for number in sorted(found)]
