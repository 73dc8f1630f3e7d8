"""What the loop of a rollout costs: 512 episodes of 3 turns at once, answers after 50 ms, instant verdicts.

    python benchmarks/rollout.py [--episodes 512] [--turns 3] [--latency 0.05] [--repeats 1] [--no-folder]

- `asleep`: the policy is a sleep and nothing else. With all episodes in step, what the loop adds to turns * latency is
  its whole CPU time, for no waiting is left to hide it in: so this is how the CPU time of a turn is measured.
- `bare`: a server in another process answers after the latency; every episode's requests, recorded beforehand, are sent
  through the endpoint policy one after the other, all episodes at once, with nothing around them. This is the least
  time that 512 episodes can take with this endpoint: the ideal.
- `played`: the same requests to the same server in the loop: prompts, extraction, verdicts, feedback, run folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from kerneldojo.episodes import PlayConfig
from kerneldojo.episodes.one_shot import REFERENCE, TRITON
from kerneldojo.policies import Policy, Request
from kerneldojo.policies.endpoint import EndpointConfig, EndpointPolicy
from kerneldojo.rollout import RolloutConfig, RunFolder, play
from kerneldojo.schema import Answer, Evaluation, Job, Problem, Status

ANSWER = f"One pass over both.\n\n```python\n{TRITON}```\n"


@dataclass
class Asleep:
    """A policy that answers after a while."""

    latency: float
    name: str = "asleep"
    gives_ids: bool = False
    recorded: dict[str, list[Request]] = field(default_factory=dict)

    async def answer(self, request: Request) -> Answer:
        self.recorded.setdefault(request.episode.id, []).append(request)
        await asyncio.sleep(self.latency)
        return Answer(text=f"{ANSWER}{request.seed}")

    async def close(self) -> None:
        return None


def serve(latency: float, port: multiprocessing.Queue[int]) -> None:
    """An endpoint that answers every request after `latency` seconds; plain asyncio, keep-alive."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 900, "completion_tokens": 300, "total_tokens": 1200}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        content = json.dumps(reply).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        try:
            while True:
                header = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(latency)
                writer.write(head + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=2048)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def instant(job: Job) -> Evaluation:
    return Evaluation(status=Status.INCORRECT, message="an output differs at [3, 5]", max_error=3.0)


async def bare(policy: EndpointPolicy, recorded: dict[str, list[Request]]) -> None:
    async def one(requests: list[Request]) -> None:
        for request in requests:
            assert (await policy.answer(request)).finish == "stop"

    async with asyncio.TaskGroup() as group:
        for requests in recorded.values():
            group.create_task(one(requests))


async def measured(name: str, work: Awaitable[None]) -> tuple[float, float]:
    """Seconds on the clock and of this process's CPU time."""
    started, cpu = time.perf_counter(), time.process_time()
    await work
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"{name:7} {wall:7.3f} s on the clock, {cpu:7.3f} s of CPU time", flush=True)
    return wall, cpu


async def main(arguments: argparse.Namespace) -> None:
    config = PlayConfig(num_turns=arguments.turns, device="model:h100")
    problems = [Problem(name=f"p{number}", source=REFERENCE) for number in range(arguments.episodes)]
    rollout = RolloutConfig(max_concurrent=arguments.episodes)
    num_answers = arguments.episodes * arguments.turns

    async def played(policy: Policy, scratch: str, name: str) -> None:
        folder = None if arguments.no_folder else RunFolder(Path(scratch) / name)
        episodes = await play(problems, policy, instant, config, folder=folder, rollout=rollout, show_progress=False)
        assert len(episodes) == arguments.episodes and all(item.finish == "turns" for item in episodes)

    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(arguments.latency, ports), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ports.get()}/v1"
    endpoint = EndpointConfig(concurrency=arguments.episodes)
    on_clock: list[float] = []
    in_cpu: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(arguments.repeats):
            asleep = Asleep(arguments.latency)
            wall, cpu = await measured("asleep", played(asleep, scratch, f"asleep{repeat}"))
            ideal = arguments.turns * arguments.latency
            print(f"        {1000 * cpu / num_answers:.2f} ms of CPU time a turn; {ideal:.3f} s of sleep")
            policies = [EndpointPolicy("m", url, endpoint) for _ in range(2)]
            wall_bare, cpu_bare = await measured("bare", bare(policies[0], asleep.recorded))
            wall, cpu = await measured("played", played(policies[1], scratch, f"played{repeat}"))
            on_clock.append(wall / wall_bare - 1)
            in_cpu.append((cpu - cpu_bare) / wall_bare)
            for policy in policies:
                await policy.close()
    server.terminate()
    print(
        f"the loop adds {statistics.median(on_clock):+.1%} on the clock, {statistics.median(in_cpu):+.1%} in CPU time"
    )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--no-folder", action="store_true")
    asyncio.run(main(parser.parse_args()))
