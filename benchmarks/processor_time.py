"""What verdicts spend processor time on: by process and command, in windows and between them.

    PYTHONPATH=src python benchmarks/processor_time.py --at-once 1 8

While a window is open everybody else stands still, so whatever is to be done for others has the cores in between only:
how many of them are busy then says whether more verdicts at once could be quicker. Told are

* the machine's busy cores (user and system) while a window is open, and while none is;
* of hosted processes, seconds a verdict from each command until its answer, by command, user and system;
* of the judge's own threads, by the function of ours that they are in, sampled every few milliseconds.

What is not in a command (births, ends, fork servers, the kernel's own threads) is the difference to the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.004
MOST_ROWS = 24


def machine() -> tuple[float, float]:
    """Seconds of all cores so far: user and system."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, soft = (int(word) / TICKS for word in words[1:8])
    return user + nice, system + irq + soft


def process(pid: int) -> tuple[float, float]:
    """Seconds of a process so far and of the children that it has waited for: user and system."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    user, system, child_user, child_system = (int(word) / TICKS for word in words[11:15])
    return user + child_user, system + child_system


class Spent:
    """Seconds by what they were spent on; reset when the clock starts."""

    def __init__(self) -> None:
        self.commands: dict[str, list[float]] = {}
        """Number, user and system seconds."""
        self.windows = [0.0, 0.0, 0.0]
        """Wall clock, user and system seconds while one was open."""
        self.functions = Counter[str]()
        self.open_windows = 0

    def add(self, command: str, before: tuple[float, float], after: tuple[float, float]) -> None:
        row = self.commands.setdefault(command, [0, 0.0, 0.0])
        row[0] += 1
        row[1] += max(0.0, after[0] - before[0])
        row[2] += max(0.0, after[1] - before[1])


SPENT = Spent()


def watch_commands() -> None:
    """Note what each command costs the process that does it."""
    from kerneldojo.judging.processes import Session

    post, collect = Session.post, Session.collect

    def noted_post(self: Any, operation: str, *given: Any, **fields: Any) -> None:
        name = operation if operation != "platform" else f"{operation}: {fields['what']}"
        self.noted = (name, process(self._pid) if self._pid else (0.0, 0.0))
        post(self, operation, *given, **fields)

    def noted_collect(self: Any, timeout: float) -> dict[str, Any]:
        try:
            return collect(self, timeout)
        finally:
            if self._pid:
                SPENT.add(self.noted[0], self.noted[1], process(self._pid))

    Session.post = noted_post  # type: ignore[method-assign]
    Session.collect = noted_collect  # type: ignore[method-assign]


def watch_windows() -> None:
    """Note what the machine does while a window is open."""
    from kerneldojo.judging.gate import Guest

    window = Guest.window

    @contextlib.contextmanager
    def noted(self: Guest) -> Generator[None]:
        with window(self):
            begun, before = time.monotonic(), machine()
            SPENT.open_windows += 1
            try:
                yield
            finally:
                SPENT.open_windows -= 1
                after = machine()
                for index, value in enumerate((time.monotonic() - begun, after[0] - before[0], after[1] - before[1])):
                    SPENT.windows[index] += value

    Guest.window = noted  # type: ignore[method-assign]


def function_of(frame: Any) -> str:
    """The innermost function, and the innermost of ours if that is another."""
    top = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
    while frame is not None:
        name = frame.f_code.co_filename
        if "kerneldojo" in name:
            ours = f"{Path(name).stem}.{frame.f_code.co_name}"
            return ours if ours == top else f"{ours} > {top}"
        frame = frame.f_back
    return top


def sample(ended: threading.Event) -> None:
    """Charge what each thread of this process has run since the last look to where it is now."""
    before: dict[int, int] = {}
    while not ended.wait(SAMPLE_SECONDS):
        frames = sys._current_frames()
        python = {thread.native_id: thread.ident for thread in threading.enumerate()}
        for tid in os.listdir("/proc/self/task"):  # noqa: PTH208 - names are all that is needed
            with contextlib.suppress(OSError):
                ran = int(Path(f"/proc/self/task/{tid}/schedstat").read_text().split()[0])
                if (delta := ran - before.get(int(tid), ran)) > 0:
                    frame = frames.get(python.get(int(tid)) or 0)
                    what = "no thread of Python" if frame is None else function_of(frame)
                    when = "window" if SPENT.open_windows else "between"
                    SPENT.functions[f"{when}: {what}"] += delta
                before[int(tid)] = ran


def show(num: int, seconds: float, used: tuple[float, float], own: tuple[float, float], what: str) -> None:
    wall, *inside = SPENT.windows
    outside = [total - part for total, part in zip(used, inside, strict=True)]
    print(f"{what}: {60 * num / seconds:.1f} a minute, {seconds / num:.3f} s a verdict, windows {wall / num:.3f} s")
    for name, pair, span in (("in windows", inside, wall), ("between", outside, seconds - wall)):
        user, system = (value / num for value in pair)
        print(f"  {name:10} {user + system:.3f} s of processor time a verdict ({user:.3f} user, {system:.3f} system),")
        print(f"             {sum(pair) / span if span else 0.0:.1f} cores busy of {os.cpu_count()}")
    print(f"  the judge {own[0] / num:.3f} s user, {own[1] / num:.3f} s system; hosted processes, by command:")
    for command, (count, user, system) in sorted(SPENT.commands.items(), key=lambda row: -row[1][1] - row[1][2]):
        spent = f"{1000 * user / num:7.1f} ms user {1000 * system / num:7.1f} ms system"
        print(f"    {spent} {count / num:6.1f} x {command}")
    print("  the judge's threads, by function:")
    for function, ns in SPENT.functions.most_common(MOST_ROWS):
        print(f"    {ns / 1e6 / num:7.1f} ms  {function}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--at-once", type=int, nargs="+", default=[8])
    parser.add_argument("--num", type=int, default=48)
    parser.add_argument("--size", choices=["full", "small"], default="full")
    arguments = parser.parse_args()
    from cases import cases

    from kerneldojo.judging import Judge
    from kerneldojo.pool.worker import SWITCH_SECONDS
    from kerneldojo.schema.pace import Pace

    global SPENT
    watch_commands()
    watch_windows()
    sys.setswitchinterval(SWITCH_SECONDS)
    chosen = cases(arguments.size)
    for at_once in arguments.at_once:
        judge = Judge(num_verdicts=at_once, reuse_reference_times=True, pace=Pace())

        def status(number: int, judge: Judge = judge) -> str:
            case = chosen[number % len(chosen)]
            return judge.judge(case.problem, case.candidate(number, "triton"), device=arguments.device).status.value

        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(status, range(90_000, 90_000 + len(chosen) + at_once)))  # warm
            SPENT = Spent()
            ended = threading.Event()
            sampler = threading.Thread(target=sample, args=(ended,))
            sampler.start()
            start, before, own = time.monotonic(), machine(), os.times()
            statuses = Counter(threads.map(status, range(arguments.num)))
            seconds, after, mine = time.monotonic() - start, machine(), os.times()
            ended.set()
            sampler.join()
        used = (after[0] - before[0], after[1] - before[1])
        what = f"{at_once} at once, {dict(statuses)}"
        show(arguments.num, seconds, used, (mine.user - own.user, mine.system - own.system), what)
        judge.close()


if __name__ == "__main__":
    main()
