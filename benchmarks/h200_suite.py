"""The suite of exploits on a GPU: every attack, fault and honest kernel, several at once, each verdict kept."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from h200_run import Found, Run, Unfinished, open_pool

SUITE = Path(__file__).parents[1] / "tests" / "exploits"
sys.path.insert(0, str(SUITE))


NATIVE_EVERY = 6
"""Each build of a native form takes many seconds of several cores: every so many attacks has one."""


def suite(run: Run, section: str, kind: str, repeats: int = 1, forms: str = "plain") -> Found:
    """Judge every entry of a kind; verdicts are kept as they come, and those that are there are not judged again.

    Args:
        run, section: see there.
        kind: of entries.
        repeats: how often each is judged.
        forms: `plain`, or for attacks `rotating` (one other form each), `native` or `every` other form.
    """
    import test_suite
    from catalogue import SUITE as ENTRIES

    at = run.exact_device if run.on_gpu else "cpu"
    left_behind, test_suite.assert_nothing_left = test_suite.assert_nothing_left, lambda: None
    entries = [entry for entry in ENTRIES[kind] if entry.runs_on(at.partition(":")[0])]
    by_file = {entry.file: entry for entry in ENTRIES["attack"]}
    path = run.out / f"{section}.jsonl"
    rows = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    until = time.monotonic() + run.seconds - 15
    pool = open_pool(replace(run, device=at), run.at_once)
    honest = next(entry for entry in ENTRIES["honest"] if entry.name == "swish")
    wanted = [one for one in listed(entries, forms, repeats) if re.search(run.match, one[0])]
    wanted = wanted[: run.some(1_000_000, 3 * repeats)]
    num_wanted = len(wanted) * (2 if kind == "fault" else 1)  # Each fault, and who comes next.

    def submit(entry: Any, mutation: str | None = None) -> Future[Any]:
        from kerneldojo.schema import Job

        timeout = test_suite.deadline(entry)
        return pool.submit(
            Job(
                problem=test_suite.problem(entry.problem),
                candidate=entry.candidate(mutation),
                device=at,
                protocol=entry.protocol,
                timeout=timeout,
                fresh=True,
            )
        )

    noting = threading.Lock()

    def note(identity: str, entry: Any, evaluation: Any) -> None:
        if time.monotonic() > until:  # The pool is being stopped: this may be no verdict.
            return
        row = told(identity, entry, evaluation, at)
        with noting, path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            rows[identity] = row

    def judge_one(identity: str, entry: Any, mutation: str | None) -> None:
        if entry.after is not None:  # What it builds upon comes first.
            submit(by_file[entry.after]).result()
        note(identity, entry, submit(entry, mutation).result())
        if kind == "fault":
            note(f"{identity} next", honest, submit(honest).result())

    todo = [one for one in wanted if one[0] not in rows or (kind == "fault" and f"{one[0]} next" not in rows)]
    if side_by_side(judge_one, todo, run.at_once, until):
        pool.close(drain=False)
        left_behind()
    else:
        print("out of time", flush=True)  # The pool ends with this process: what runs in it is not waited for.
    asked = {identity for one, *_ in wanted for identity in (one, f"{one} next")}
    rows = {identity: row for identity, row in rows.items() if identity in asked}
    wrong = [f"{row['id']}: {row['status']}: {row['wrong']}" for row in rows.values() if row["wrong"]]
    statuses = [row["status"] for row in rows.values()]
    found = {"judged": len(rows), "wanted": num_wanted, "statuses": {one: statuses.count(one) for one in set(statuses)}}
    if len(rows) < num_wanted:
        raise Unfinished(found, wrong)
    return found, wrong


def listed(entries: Sequence[Any], forms: str, repeats: int) -> Iterator[tuple[str, Any, str | None]]:
    """What is judged: a name of its own, the entry, its form."""
    import mutations
    from catalogue import rotating_mutation

    if forms == "plain":
        for number in range(repeats):
            yield from ((f"{entry.name}#{number}", entry, None) for entry in entries)
        return
    every = NATIVE_EVERY if forms == "native" else 1
    for entry in [entry for entry in entries if entry.mutate][::every]:
        kinds = {
            "rotating": [rotating_mutation(entry)],
            "native": list(mutations.NATIVE_KINDS),
            "every": list(mutations.KINDS),
        }[forms]
        for kind in kinds:
            if kind is not None and entry.source(kind) != entry.source():
                yield f"{entry.name}-{kind}", entry, kind


def told(identity: str, entry: Any, evaluation: Any, at: str) -> dict[str, Any]:
    """A verdict as it is kept, and what the suite says against it."""
    import test_suite

    try:
        test_suite.assert_verdict(entry, evaluation, at)
        wrong = ""
    except AssertionError as error:
        wrong = str(error)[:1000] or "refused by the suite"
    kept = {"status", "message", "speedup", "coverage", "timing", "reference_timing", "stage_seconds", "notes"}
    exploits = [one.name for one in evaluation.exploits]
    return {"id": identity, "wrong": wrong, **evaluation.model_dump(mode="json", include=kept), "exploits": exploits}


def side_by_side(work: Callable[..., None], todo: Sequence[tuple[Any, ...]], at_once: int, until: float) -> bool:
    """Call `work` with the arguments of each of `todo`, some at once; False if they are not done in time.

    Raises:
        whatever `work` raised first.
    """
    left = deque(todo)

    def take() -> tuple[Any, ...] | None:
        with contextlib.suppress(IndexError):
            return left.popleft()
        return None

    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def lane() -> None:
        try:
            while (one := take()) is not None:
                work(*one)
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    for _ in range(at_once):
        threading.Thread(target=lane, daemon=True).start()  # Not waited for when the time is over.
    for _ in range(at_once):
        try:
            error = ended.get(timeout=max(0.1, until - time.monotonic()))
        except Empty:
            return False
        if error is not None:
            raise error
    return True
