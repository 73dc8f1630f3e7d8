"""Which problems of a suite a command is about: `--subset 1-10,14` by number, `--ids` by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.schema import Problem


def numbers(text: str) -> set[int]:
    """The numbers that `1-10,14` names.

    Raises:
        BadUsage: if it is written otherwise.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise BadUsage(f"--subset {text!r}: write numbers and ranges, for example 1-10,14")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def select(problems: Sequence[Problem], subset: str | None, ids: Sequence[str]) -> list[Problem]:
    """The problems that both options leave.

    A number is KernelBench's own (`23_Softmax` is 23); elsewhere it is the place in the suite's order, from 1. An id is
    a problem's name, its `LEVEL/NAME`, or its number.

    Raises:
        BadUsage: a number or an id that no problem has.
    """
    from kerneldojo.problems import problem_names, problem_number

    numbered = [
        (problem_number(problem.name) if problem.suite == "kernelbench" else place, problem)
        for place, problem in enumerate(problems, 1)
    ]
    chosen = list(problems)
    if subset is not None:
        wanted = numbers(subset)
        chosen = [problem for number, problem in numbered if number in wanted]
        if not chosen:
            raise BadUsage(f"--subset {subset!r}: no such problem in the suite")
    if ids:
        by_id = {one: [problem for problem in chosen if one in problem_names(problem)] for one in ids}
        missing = [one for one, found in by_id.items() if not found]
        if missing:
            raise BadUsage(f"--ids: no problem {missing[0]!r} in the suite (see `dojo problems list`)")
        names = {(problem.level, problem.name) for found in by_id.values() for problem in found}
        chosen = [problem for problem in chosen if (problem.level, problem.name) in names]
    return chosen
