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

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import cases
from judged import warmed, watch_posts, watch_windows
from options import options
from processors import Used, machine, process

from kerneldojo.judging.processes import Session
from kerneldojo.schema.pace import Pace

SAMPLE_SECONDS = 0.004
MOST_ROWS = 24


def of_process(pid: int) -> Used:
    """What it and its children have used; nothing of one that is gone."""
    with contextlib.suppress(OSError):
        return process(pid, with_children=True)
    return Used(0.0, 0.0)


class Spent:
    """Seconds by what they were spent on; reset when the clock starts."""

    def __init__(self) -> None:
        self.commands: dict[str, list[float]] = {}
        """Number, user and system seconds."""
        self.windows = [0.0, 0.0, 0.0]
        """Wall clock, user and system seconds while one was open."""
        self.functions = Counter[str]()
        self.open_windows = 0

    def add(self, command: str, before: Used, after: Used) -> None:
        """One more of these commands; a process that is gone has used nothing."""
        row = self.commands.setdefault(command, [0, 0.0, 0.0])
        row[0] += 1
        row[1] += max(0.0, after.user - before.user)
        row[2] += max(0.0, after.system - before.system)

    def begin(self) -> tuple[float, Used]:
        """A window has opened."""
        self.open_windows += 1
        return time.monotonic(), machine()

    def end(self, begun: tuple[float, Used]) -> None:
        """It closes."""
        (since, before), after = begun, machine()
        self.open_windows -= 1
        spans = (time.monotonic() - since, after.user - before.user, after.system - before.system)
        self.windows = [total + more for total, more in zip(self.windows, spans, strict=True)]


SPENT = Spent()


def watch_commands() -> None:
    """Note what each command costs the process that does it."""
    collect = Session.collect

    def note(session: Any, name: str) -> None:
        session.noted = (name, of_process(session._pid) if session._pid else Used(0.0, 0.0))

    def noted_collect(self: Any, timeout: float) -> dict[str, Any]:
        try:
            return collect(self, timeout)
        finally:
            if self._pid:
                SPENT.add(self.noted[0], self.noted[1], of_process(self._pid))

    watch_posts(note)
    Session.collect = noted_collect  # type: ignore[method-assign]


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


def show(num: int, seconds: float, used: Used, own: Used, what: str) -> None:
    wall, *inside = SPENT.windows
    outside = [total - part for total, part in zip(used, inside, strict=True)]
    print(f"{what}: {60 * num / seconds:.1f} a minute, {seconds / num:.3f} s a verdict, windows {wall / num:.3f} s")
    for name, pair, span in (("in windows", inside, wall), ("between", outside, seconds - wall)):
        user, system = (value / num for value in pair)
        print(f"  {name:10} {user + system:.3f} s of processor time a verdict ({user:.3f} user, {system:.3f} system),")
        print(f"             {sum(pair) / span if span else 0.0:.1f} cores busy of {os.cpu_count()}")
    print(f"  the judge {own.user / num:.3f} s user, {own.system / num:.3f} s system; hosted processes, by command:")
    for command, (count, user, system) in sorted(SPENT.commands.items(), key=lambda row: -row[1][1] - row[1][2]):
        spent = f"{1000 * user / num:7.1f} ms user {1000 * system / num:7.1f} ms system"
        print(f"    {spent} {count / num:6.1f} x {command}")
    print("  the judge's threads, by function:")
    for function, ns in SPENT.functions.most_common(MOST_ROWS):
        print(f"    {ns / 1e6 / num:7.1f} ms  {function}")
    sys.stdout.flush()


def main() -> None:
    arguments = options(__doc__, at_once=8, num=48).parse_args()
    global SPENT
    watch_commands()
    watch_windows(lambda: SPENT.begin(), lambda begun: SPENT.end(begun))  # Whichever it is then.
    chosen = cases(arguments.size)
    for at_once in arguments.at_once:
        with warmed(chosen, arguments.device, at_once, Pace()) as judged:
            SPENT = Spent()
            ended = threading.Event()
            sampler = threading.Thread(target=sample, args=(ended,))
            sampler.start()
            start, before, own = time.monotonic(), machine(), os.times()
            statuses = judged(arguments.num)
            seconds, after, mine = time.monotonic() - start, machine(), os.times()
            ended.set()
            sampler.join()
        used = Used(after.user - before.user, after.system - before.system)
        what = f"{at_once} at once, {dict(statuses)}"
        show(arguments.num, seconds, used, Used(mine.user - own.user, mine.system - own.system), what)


if __name__ == "__main__":
    main()
