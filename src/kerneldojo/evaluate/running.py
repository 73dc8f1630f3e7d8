"""Having it all judged: a window of jobs is out at any time, and each verdict is recorded as it comes back."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import cast

from kerneldojo.evaluate.items import Item
from kerneldojo.evaluate.names import Names
from kerneldojo.evaluate.results import Results, Settings
from kerneldojo.pool.executor import DeviceState, Executor, Lasting, Withdrawable
from kerneldojo.pool.placement import PREFERENCE
from kerneldojo.schema import Evaluation, Status

WINDOW_PER_SLOT = 4
SMALLEST_WINDOW = 640
"""A pool looks some way ahead for jobs that suit a warm worker; a shorter window would leave it nothing to choose."""
TICK_SECONDS = 0.25


def settle_device(wanted: Sequence[str], devices: Sequence[DeviceState]) -> str:
    """The one name under which every job of a run asks for its device.

    `auto` is made definite, so that a run that is continued elsewhere is not judged half on a GPU and half on a model
    of one. Several devices have to be GPUs, since times of different kinds of devices are not comparable.

    Raises:
        ValueError: the executor has none of them, or they are not comparable (in one line).
    """
    if not devices:
        raise ValueError("there is no device to judge on")
    if len(set(wanted)) > 1:
        if any(not name.startswith("cuda") for name in wanted):
            raise ValueError(f"verdicts of {' and '.join(wanted)} are not comparable: several devices have to be GPUs")
        return "cuda"
    if wanted[0] != "auto":
        names = {state.name for state in devices} | {state.name.rpartition("/")[2] for state in devices}
        if wanted[0] not in names and not (wanted[0] == "cuda" and any(state.kind == "cuda" for state in devices)):
            raise ValueError(f"there is no device {wanted[0]}; there is {', '.join(sorted(names))}")
        return wanted[0]
    kind = min((state.kind for state in devices), key=PREFERENCE.index)
    return "cuda" if kind == "cuda" else next(s.name.rpartition("/")[2] for s in devices if s.kind == kind)


def judge_all(
    items: Sequence[Item],
    settings: Settings,
    executor: Executor,
    results: Results,
    *,
    fresh: bool = False,
    stop: threading.Event | None = None,
    on_verdict: Callable[[Item, Evaluation], None] = lambda _, __: None,
    on_tick: Callable[[], None] = lambda: None,
) -> int:
    """Judge `items` and record every verdict.

    Args:
        items: what has no verdict yet.
        settings: how to judge.
        executor: who judges; not closed.
        results: where verdicts go.
        fresh: judge each even if an equal one was judged before, by an earlier run of this folder too.
        stop: once set, nothing new is begun; what runs is waited for and recorded.
        on_verdict: called after each verdict was handed to the disk.
        on_tick: called about four times a second.

    Returns:
        How many verdicts were reached, faults of ours included.

    Raises:
        RunError: verdicts can no longer be written, or the folder's id cannot.
        RuntimeError: the executor was closed.
    """
    stop = stop or threading.Event()
    names = Names(results, fresh=fresh) if isinstance(executor, Lasting) else None
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    out: dict[int, Future[Evaluation]] = {}
    window = max(SMALLEST_WINDOW, WINDOW_PER_SLOT * executor.num_slots)
    following = num_judged = 0
    is_given_up = False
    while True:
        while following < len(items) and len(out) < window and not stop.is_set():
            out[following] = future = _submit(executor, settings, items[following], fresh, names)
            future.add_done_callback(lambda _, index=following: ended.put(index))
            following += 1
        if not out:
            return num_judged
        if stop.is_set() and not is_given_up:
            is_given_up = True
            for future in list(out.values()):
                _give_up(future)
        try:
            index = ended.get(timeout=TICK_SECONDS)
        except queue.Empty:
            results.check()
            on_tick()
            continue
        future = out.pop(index)
        if not future.cancelled():
            evaluation = future.result()
            results.add(items[index], settings, evaluation)
            num_judged += 1
            on_verdict(items[index], evaluation)


def _give_up(future: Future[Evaluation]) -> None:
    """Have it not begun; what runs is left to end."""
    if isinstance(future, Withdrawable):
        future.withdraw()
    else:
        future.cancel()


def _submit(executor: Executor, settings: Settings, item: Item, fresh: bool, names: Names | None) -> Future[Evaluation]:
    try:
        job = settings.job(item, fresh=fresh)
        return executor.submit(job) if names is None else cast(Lasting, executor).submit(job, id=names.name(item, job))
    except ValueError as error:  # One job that cannot be taken (too large, say) does not end a run of thousands.
        future: Future[Evaluation] = Future()
        future.set_result(Evaluation(status=Status.INFRASTRUCTURE_ERROR, message=f"not accepted: {error}"))
        return future
