"""What the service itself costs: from a submission to its acknowledgement, how many it takes, and its memory.

    python benchmarks/service.py [--clients 256] [--rate 500] [--seconds 20] [--tasks 100000]

The service is a real process with a real store; behind it is a device that gives a fixed verdict at once (`stub`
below), so that what is measured is the service and not the judge. The clients are another process on the same
machine, with connections that stay open and bodies of a real size (a problem and a kernel of 6 KB together).

Three figures:

* *paced*: all clients together offer a fixed number of tasks a second, each its share; latency of the acknowledgement.
* *saturated*: every client submits its next task as soon as the last one is acknowledged; tasks a second. By Little's
  law the mean latency is then clients / rate, so it says nothing of its own.
* *memory*: resident size of the service while it accepts and ends 100,000 tasks in batches.

Wall-clock figures are those of a machine that others may be using: the processor time of the service stands beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from processors import process

from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Job, KernelTime, Status, Timing

RESULTS = Path(__file__).parent / "results" / "service"
VERDICT = Evaluation(
    status=Status.PASSED,
    correct=True,
    speedup=1.5,
    coverage=0.9,
    kernel_ms=1.0,
    reference_ms=1.5,
    kernels=tuple(KernelTime(name=f"kernel_{i}", device_ms=0.1, own=i < 9) for i in range(10)),
    timing=Timing(source="modeled", median_ms=1.0, num_trials=100),
    message="right in all rounds",
    device="stub",
    stage_seconds={"build": 0.1, "rounds": 0.2, "timing": 0.3},
)


class Stub:
    """A device that takes no time."""

    num_slots = 64

    def submit(self, job: Job) -> Future[Evaluation]:
        future: Future[Evaluation] = Future()
        future.set_running_or_notify_cancel()
        future.set_result(VERDICT)
        return future

    def devices(self) -> Sequence[DeviceState]:
        return [DeviceState(name="stub", kind="cpu")]

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        return


def stub(devices: list[str]) -> Stub:
    """For `dojo serve --executor service:stub`."""
    return Stub()


def order(name: str) -> dict[str, Any]:
    reference = "# reference\n" + "x = 1  # a line of a problem\n" * 70
    kernel = f"# {name}\n" + "y = 2  # a line of a generated kernel, somewhat longer\n" * 70
    return {"id": name, "job": {"problem": {"name": "bench", "source": reference}, "candidate": {"source": kernel}}}


class Connection:
    """A kept-alive HTTP/1.1 connection, as cheap as can be: the clients share the machine with the service."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: bytes) -> int:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        await self._reader.readexactly(int(length.group(1)) if length else 0)
        return int(answer.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()


async def paced(port: int, num_clients: int, rate: float, seconds: float, name: str) -> dict[str, Any]:
    """Latencies where all clients together offer `rate` tasks a second; late requests count from when they were due."""
    latencies: list[float] = []
    codes: dict[int, int] = {}
    start = time.perf_counter() + 0.5

    async def client(index: int) -> None:
        connection = await Connection.open(port)
        period = num_clients / rate
        due = start + period * index / num_clients
        turn = 0
        while due < start + seconds:
            body = json.dumps(order(f"{name}-{index}-{turn}")).encode()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            code = await connection.post("/v1/tasks", body)
            # The client's own lateness (it was busy sending others) is not the service's.
            latencies.append(time.perf_counter() - sent)
            codes[code] = codes.get(code, 0) + 1
            due += period
            turn += 1
        connection.close()

    await asyncio.gather(*(client(index) for index in range(num_clients)))
    elapsed = time.perf_counter() - start
    return {"offered_per_second": rate, "accepted_per_second": codes.get(202, 0) / elapsed, "codes": codes} | spread(
        latencies
    )


async def saturated(port: int, num_clients: int, seconds: float) -> dict[str, Any]:
    """Tasks a second where every client submits as fast as it is acknowledged."""
    latencies: list[float] = []
    codes: dict[int, int] = {}
    start = time.perf_counter()

    async def client(index: int) -> None:
        connection = await Connection.open(port)
        turn = 0
        while time.perf_counter() < start + seconds:
            body = json.dumps(order(f"saturated-{index}-{turn}")).encode()
            sent = time.perf_counter()
            code = await connection.post("/v1/tasks", body)
            latencies.append(time.perf_counter() - sent)
            codes[code] = codes.get(code, 0) + 1
            turn += 1
        connection.close()

    await asyncio.gather(*(client(index) for index in range(num_clients)))
    return {"accepted_per_second": codes.get(202, 0) / (time.perf_counter() - start), "codes": codes} | spread(
        latencies
    )


def spread(latencies: list[float]) -> dict[str, float]:
    """Quantiles in milliseconds."""
    ranked = sorted(latencies)
    return {
        f"p{share:g}_ms": round(1000 * ranked[min(len(ranked) - 1, int(len(ranked) * share / 100))], 3)
        for share in (50, 90, 99, 99.9)
    } | {"num_requests": len(ranked)}


async def memory(port: int, pid: int, num_tasks: int) -> dict[str, Any]:
    """Resident size of the service after every tenth of the tasks, each waited for."""
    connection = await Connection.open(port)
    samples: list[dict[str, float]] = []
    started, cpu = time.perf_counter(), process(pid).total
    batch = 200
    for first in range(0, num_tasks, batch):
        tasks = [order(f"memory-{i}") for i in range(first, first + batch)]
        body = json.dumps({"tasks": tasks}).encode()
        while (code := await connection.post("/v1/tasks/batch", body)) == 429:
            await asyncio.sleep(0.2)
        assert code == 202, code
        if (first + batch) % max(batch, num_tasks // 10) == 0:
            ids = json.dumps({"ids": [task["id"] for task in tasks]}).encode()
            await drained(port, ids)
            samples.append({"tasks": first + batch, "resident_mb": round(resident_mb(pid), 1)})
    elapsed = time.perf_counter() - started
    connection.close()
    return {
        "samples": samples,
        "ended_per_second": num_tasks / elapsed,
        "service_cpu_ms_per_task": 1000 * (process(pid).total - cpu) / num_tasks,
    }


async def drained(port: int, ids: bytes) -> None:
    """Wait until these tasks, and with them (one client, in order) all before, have ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/results HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + f"Content-Length: {len(ids)}\r\n\r\n".encode() + ids)
    while await reader.read(1 << 16):
        pass
    writer.close()


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def starvation(pid: int) -> tuple[float, float]:
    """Seconds for which the service's threads ran, and for which they were ready to run but no processor was free."""
    threads = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(fields[0]) for fields in threads) / 1e9, sum(int(fields[1]) for fields in threads) / 1e9


def start_service(folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "kerneldojo.cli", "serve", "--port", "0", "--executor", "service:stub"]
    command += ["--store", str(folder / "store.db"), "--max-queued", "1000000"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"serving on http://.*:(\d+)", line):
            return process, int(found.group(1))
    raise RuntimeError("the service did not start")


async def watched(pid: int, run: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """A run's figures, with what it cost the service and how long others kept the processors from it."""
    before = starvation(pid)
    figures = await run
    ran, starved = (after - earlier for after, earlier in zip(starvation(pid), before, strict=True))
    return figures | {
        "service_cpu_ms_per_task": round(1000 * ran / figures["num_requests"], 3),
        "service_ran_seconds": round(ran, 2),
        "service_waited_for_a_processor_seconds": round(starved, 2),
    }


async def measure(process: subprocess.Popen[str], port: int, settings: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if "paced" in settings.only:
        await paced(port, settings.clients, settings.rate, 2.0, "warm")
        for name, rate in (("paced", settings.rate), ("paced_at_1.5_times", settings.rate * 1.5)):
            run = paced(port, settings.clients, rate, settings.seconds, name)
            figures[name] = await watched(process.pid, run)
    if "saturated" in settings.only:
        figures["saturated"] = await watched(process.pid, saturated(port, settings.clients, settings.seconds / 2))
    if "memory" in settings.only:
        figures["memory"] = await memory(port, process.pid, settings.tasks)
    return {name: {**found, "load_average": os.getloadavg()[0]} for name, found in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", default=["paced", "saturated", "memory"], help="the others are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "service.json")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, port = start_service(Path(folder))
        try:
            figures = asyncio.run(measure(process, port, settings))
        finally:
            process.terminate()
            process.wait()
    kept = json.loads(settings.out.read_text())["figures"] if settings.out.exists() else {}
    report = {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "clients": settings.clients,
        "figures": {**kept, **figures},
    }
    print(json.dumps(figures, indent=2))
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {settings.out}")


if __name__ == "__main__":
    main()
