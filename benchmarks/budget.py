"""What a GPU's minute is spent on, and what would bring more verdicts into it: the model of docs/throughput.md.

    python benchmarks/budget.py

Verdicts are sequences of steps. Windows exclude everything else; making and ending contexts, and what the rounds have
the device compute, are done one at a time, whoever asks for it; the rest is done side by side. A window opens once no
other verdict's judge is at work (`judging.gate`): a step of the judge's own is finished first, and a command's answer
waits. Everything that may be changed is an argument of `Budget`; their defaults are figures of one H200 (docs).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

STEP = 0.0005
NUM_VERDICTS = 600
SPREAD = 0.25
"""By how much steps differ in length, up and down."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Seconds, all on one device."""

    at_once: int = 4
    series: float = 0.18
    profile: float = 0.03
    """In the window."""
    profile_beside: float = 0.0
    """Outside of it: the host's own time."""
    stopping: float = 0.03
    """Freezing all others and choosing cores, once nobody is at work."""
    handing_over: float = 0.01
    in_a_row: int = 1
    context: float = 0.06
    ending: float = 0.02
    """Of one context; a verdict makes two of them."""
    memory: float = 0.03
    """Allocating, exporting, mapping and freeing what two contestants share with the judge: a guess."""
    rounds_device: float = 0.03
    rounds_host: float = 0.14
    other: float = 0.2
    """Everything else that a verdict does outside of windows."""


@dataclass
class Verdict:
    """One under way: its steps, and how much is left of the first. `is_serial` steps are done one at a time."""

    steps: deque[tuple[str, float]]
    left: float = 0.0
    is_held: bool = False


def drawn(budget: Budget, chance: random.Random) -> Iterator[tuple[str, float]]:
    """The steps of one verdict, in order: `command`, `work` (of the judge's own) and their like on the device."""

    def around(seconds: float) -> float:
        return seconds * chance.uniform(1 - SPREAD, 1 + SPREAD)

    num = 13
    yield "command", around(0.3 * budget.other)
    yield "device work", around(0.7 * budget.memory)
    yield "device command", around(budget.context)
    for number in range(num):
        yield "command", around(budget.rounds_host * 0.8 / num)
        yield "device command", around(budget.rounds_device * 0.7 / num)
        yield "work", around(budget.rounds_host * 0.2 / num)
        yield "device work", around(budget.rounds_device * 0.3 / num)
        if number == 2:
            yield "device command", around(budget.context)
    yield "command", around(0.4 * budget.other)
    yield "work", around(0.05 * budget.other)
    yield "window", around(budget.series) + budget.profile
    yield "work", around(0.1 * budget.other)
    yield "command", around(0.1 * budget.other) + budget.profile_beside
    yield "device work", around(2 * budget.ending + 0.3 * budget.memory)
    yield "work", around(0.05 * budget.other)


@dataclass
class Device:
    """A device under way."""

    budget: Budget
    chance: random.Random
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    serial: deque[Verdict] = field(default_factory=deque[Verdict])
    asking: deque[Verdict] = field(default_factory=deque[Verdict])
    owner: Verdict | None = None
    is_stopping: bool = False
    in_a_row: int = 0
    num_done: int = 0
    num_handed: int = 0
    seconds_stopping: float = 0.0

    def run(self, num: int) -> float:
        """Judge so many; seconds."""
        seconds = 0.0
        for _ in range(self.budget.at_once):
            self.verdicts.append(Verdict(deque()))
            self._begin_step(self.verdicts[-1])
        while self.num_done < num:
            seconds += STEP
            if self.owner is not None and not self.is_stopping:
                self._in_window(self.owner)
                continue
            for verdict in self.verdicts:
                if verdict is not self.owner and not verdict.is_held and verdict not in self.asking:
                    self._beside(verdict)
            self._open()
        return seconds

    def _begin_step(self, verdict: Verdict) -> None:
        if not verdict.steps:
            verdict.steps.extend(drawn(self.budget, self.chance))
        kind, verdict.left = verdict.steps[0]
        if kind == "window":
            self.asking.append(verdict)
        elif kind.startswith("device"):
            self.serial.append(verdict)

    def _end_step(self, verdict: Verdict) -> None:
        verdict.steps.popleft()
        self.num_done += not verdict.steps
        self._begin_step(verdict)

    def _beside(self, verdict: Verdict) -> None:
        kind = verdict.steps[0][0]
        if kind.startswith("device") and self.serial[0] is not verdict:
            return
        verdict.left -= STEP
        if verdict.left > 0:
            return
        if kind.startswith("device"):
            self.serial.popleft()
        if kind.endswith("command") and self.owner is not None:
            verdict.is_held = True  # Its judge waits at the gate with the answer.
        else:
            self._end_step(verdict)

    def _open(self) -> None:
        if self.owner is None and self.asking:
            self.owner, self.is_stopping = self.asking.popleft(), True
        if self.owner is not None and self.is_stopping:
            self.seconds_stopping += STEP
            others = [verdict for verdict in self.verdicts if verdict is not self.owner and not verdict.is_held]
            if not any(verdict.steps[0][0].endswith("work") for verdict in others):
                self.is_stopping, self.in_a_row = False, 1
                self.owner.left += self.budget.stopping

    def _in_window(self, owner: Verdict) -> None:
        owner.left -= STEP
        if owner.left > 0:
            return
        self.owner = None
        if self.asking and self.in_a_row < self.budget.in_a_row:
            self.owner = self.asking.popleft()
            self.owner.left += self.budget.handing_over
            self.in_a_row, self.num_handed = self.in_a_row + 1, self.num_handed + 1
            owner.is_held = True
            return
        for verdict in self.verdicts:
            if verdict is owner or verdict.is_held:
                verdict.is_held = False
                self._end_step(verdict)


def told(name: str, budget: Budget) -> str:
    """One row."""
    device = Device(budget, random.Random(0))
    seconds = device.run(NUM_VERDICTS)
    return (
        f"{name:<62} {60 * NUM_VERDICTS / seconds:6.1f} a minute, {device.num_handed / NUM_VERDICTS:4.0%} handed over, "
        f"{device.seconds_stopping / NUM_VERDICTS:.3f} s for others to come to a stop"
    )


def main() -> None:
    old = Budget()
    new = replace(old, in_a_row=4, series=0.165, profile=0.0, profile_beside=0.03, memory=0.005)
    rows = {
        "as it was": old,
        "windows in a row": replace(old, in_a_row=4),
        "brisk rounds": replace(old, series=0.165),
        "profiles beside": replace(old, profile=0.0, profile_beside=0.03),
        "memory that serves again": replace(old, memory=0.005),
        "all four": new,
    }
    for at_once in (1, 6, 8):
        rows[f"as it was, {at_once} at once"] = replace(old, at_once=at_once)
        rows[f"all four, {at_once} at once"] = replace(new, at_once=at_once)
    cheap = {"context": 0.04, "ending": 0.0133}
    rows["all four, contexts for two thirds"] = replace(new, **cheap)
    rows["all four, series of 0.12 s"] = replace(new, series=0.12)
    rows["both"] = replace(new, **cheap, series=0.12)
    rows["both, 6 at once"] = replace(new, **cheap, series=0.12, at_once=6)
    rows["both, 6 at once, and a quarter off the device's part of rounds"] = replace(
        new, **cheap, series=0.12, at_once=6, rounds_device=0.022
    )
    for name, budget in rows.items():
        print(told(name, budget))


if __name__ == "__main__":
    main()
