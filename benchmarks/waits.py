"""What verdicts wait for while no window is open: their own commands, the judge, the driver, the device.

    PYTHONPATH=src python benchmarks/waits.py --at-once 4 8

Every few milliseconds each verdict's thread is asked where it is. In a command, the process that does it is asked too:
whether it runs (R), sleeps (S) or is in an uninterruptible call (D), and where in the kernel. Told are seconds a
verdict, outside of windows, by kind and then each; with *n* at once they add up to *n* times what passes between
windows. *Stopping* is from when somebody has the next window until all others stand still.

A probe beside it, a process with a context of its own that is idle in windows, says how long the driver and the device
take for next to nothing: a question about memory, an allocation, four bytes set to zero. Where they are busy with
others' things these take as much longer. `alone` is the same before anything is judged.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import cases
from judged import warmed, watch_posts, watch_windows
from next_to_nothing import probe, told
from options import options

from kerneldojo.judging.gate import Gate
from kerneldojo.judging.gated_session import GatedSession
from kerneldojo.judging.guest import Guest
from kerneldojo.schema.pace import Pace

SAMPLE_SECONDS = 0.005
MOST_ROWS = 40


class Watch:
    """How many windows are open, and what was seen while none was."""

    def __init__(self) -> None:
        self.is_open = mmap.mmap(-1, 1)
        """Shared with the probe."""
        self.states = defaultdict[str, float](float)
        """Seconds of all verdicts together."""
        self.stopping = defaultdict[str, float](float)
        """Those in which a window waited for its verdict to begin or for others to stop, by what they were at."""
        self.num_open = 0
        self.open_seconds = self.stopping_seconds = 0.0
        self.guests: dict[int, tuple[Gate, Guest]] = {}
        """By thread."""

    def begin(self) -> float:
        self.num_open += 1
        self.is_open[0] = 1
        return time.monotonic()

    def end(self, since: float) -> None:
        self.open_seconds += time.monotonic() - since
        self.num_open -= 1
        self.is_open[0] = self.num_open > 0


WATCH = Watch()


def state_of(pid: int) -> str:
    """Of the busiest thread of a process: running, in an uninterruptible call, or asleep, and where."""
    found = [state_of_task(task) for task in Path(f"/proc/{pid}/task").glob("*")]
    return min(found, key=lambda state: "RD".find(state[0]) % 3, default="gone")


def state_of_task(task: Path) -> str:
    """Of one thread."""
    with contextlib.suppress(OSError):
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        return "R" if state == "R" else f"{state} {(task / 'wchan').read_text()}"
    return "gone"


def watch_commands(pending: dict[int, tuple[str, Any]]) -> None:
    """Note which thread waits for which command of whom."""
    collect = GatedSession.collect

    def note(session: Any, name: str) -> None:
        session.noted = name

    def noted_collect(self: Any, timeout: float) -> dict[str, Any]:
        pending[threading.get_ident()] = (self.noted, self)
        try:
            return collect(self, timeout)
        finally:
            pending.pop(threading.get_ident(), None)

    watch_posts(note)
    GatedSession.collect = noted_collect  # type: ignore[method-assign]


def watch_guests() -> None:
    """Note whose verdict each thread is at."""
    made = Guest.__init__

    def noted(self: Any, gate: Gate, **named: Any) -> None:
        made(self, gate, **named)
        WATCH.guests[threading.get_ident()] = (gate, self)

    Guest.__init__ = noted  # type: ignore[method-assign]


KINDS = {
    "a hosted process runs": ("command", ", R"),
    "a hosted process waits for the driver": ("command", ", D"),
    "a hosted process waits for one that it started": ("command", "do_wait"),
    "a hosted process stands still": ("command", "signal", "freez", "refrigerator"),
    "a command was answered": ("command", ", answered"),
    "a hosted process sleeps": ("command",),
    "memory's turn": ("turns.",),
    "a context": ("blanks.",),
    "a window": ("gate.open_for",),
    "a birth or an end": ("wire.", ", S"),
    "nothing to do": ("idle,",),
    "the judge runs": (", R",),
    "the judge waits for the driver": (", D",),
}
"""Words by which what was seen is told: the first, and one of the others if there are any."""


def kind_of(state: str) -> str:
    """What a verdict waited for; what else there is waits for the interpreter or for a lock."""
    for kind, (first, *others) in KINDS.items():
        if first in state and (not others or any(word in state for word in others)):
            return kind
    return "the interpreter, or a lock"


def gate_waits(gate: Gate, guest: Guest) -> bool:
    """Whether somebody's window waits until this verdict has stopped, or until its own may begin."""
    return gate._owner is not None and (guest.is_busy or gate._owner is guest)


def place_of(frame: Any) -> str:
    """The innermost three functions of ours."""
    found: list[str] = []
    while frame is not None and len(found) < 3:
        name = frame.f_code.co_filename
        if "kerneldojo" in name:
            found.append(f"{Path(name).stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found) or "idle"


def sample(ended: threading.Event, pending: dict[int, tuple[str, Any]]) -> None:
    """Ask all verdicts' threads where they are, as long as no window is open."""
    self_tasks, before = Path("/proc/self/task"), time.monotonic()
    while not ended.wait(SAMPLE_SECONDS):
        now = time.monotonic()
        weight, before = now - before, now
        if WATCH.num_open:
            continue
        guests = dict(WATCH.guests)
        WATCH.stopping_seconds += weight * any(gate._owner is not None for gate, _ in guests.values())
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if not thread.name.startswith("ThreadPoolExecutor") or thread.ident not in frames:
                continue
            where = place_of(frames[thread.ident])
            noted = pending.get(thread.ident)
            if thread.ident in guests and gate_waits(*guests[thread.ident]):
                WATCH.stopping[where] += weight
            if noted is not None:
                is_answered = where.startswith("gate.set_busy")
                where = f"command {noted[0]}, {'answered' if is_answered else state_of(noted[1]._pid)}"
            else:
                where += f", {state_of_task(self_tasks / str(thread.native_id))}"
            WATCH.states[where] += weight


def show(num: int, seconds: float, what: str) -> None:
    print(f"{what}: {60 * num / seconds:.1f} a minute, {seconds / num:.3f} s a verdict, windows")
    print(
        f"  {WATCH.open_seconds / num:.3f} s, stopping {WATCH.stopping_seconds / num:.3f} s; between them, s a verdict:"
    )
    kinds = defaultdict[str, float](float)
    for state, total in WATCH.states.items():
        kinds[kind_of(state)] += total
    for title, sums in (("by kind", kinds), ("each", WATCH.states), ("windows waited for", WATCH.stopping)):
        print(f"  {title}:")
        for name, total in sorted(sums.items(), key=lambda row: -row[1])[:MOST_ROWS]:
            print(f"    {total / num:.3f}  {name}", flush=True)


def main() -> None:
    parser = options(__doc__, at_once=8, num=64)
    parser.add_argument("--no-probe", action="store_true")
    arguments = parser.parse_args()
    pending: dict[int, tuple[str, Any]] = {}
    watch_commands(pending)
    watch_windows(WATCH.begin, WATCH.end)
    watch_guests()
    chosen = cases(arguments.size)
    kind = multiprocessing.get_context("fork")
    beside, place = None, 0
    path = Path(tempfile.mkstemp(prefix="waits-")[1])
    if not arguments.no_probe:
        number = int(arguments.device.partition(":")[2] or 0)
        beside = kind.Process(target=probe, args=(WATCH.is_open, path, number), daemon=True)
        beside.start()
        time.sleep(2.5)
        place = told(path, 0, "alone")
    for at_once in arguments.at_once:
        with warmed(chosen, arguments.device, at_once, Pace()) as judged:
            place = path.stat().st_size
            WATCH.states.clear()
            WATCH.stopping.clear()
            WATCH.open_seconds = WATCH.stopping_seconds = 0.0
            ended = threading.Event()
            sampler = threading.Thread(target=sample, args=(ended, pending))
            sampler.start()
            start = time.monotonic()
            statuses = judged(arguments.num)
            seconds = time.monotonic() - start
            ended.set()
            sampler.join()
        show(arguments.num, seconds, f"{at_once} at once, {dict(statuses)}")
        place = told(path, place, "beside verdicts")
    if beside is not None:
        beside.kill()


if __name__ == "__main__":
    main()
