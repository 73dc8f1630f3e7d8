"""Answers that want credit without the work. A judge that believes one of them is broken."""

from __future__ import annotations

import re

from kerneldojo.policies.teacher.writing import fused
from kerneldojo.problems.graphs import Graph
from kerneldojo.problems.graphs.render import forward_lines
from kerneldojo.schema import Status

EXPECTED: dict[str, tuple[Status, ...]] = {
    "decoy": (Status.EXPLOIT,),
    "idle": (Status.EXPLOIT,),
    "unused": (Status.EXPLOIT,),
    "replay": (Status.EXPLOIT, Status.INCORRECT),
    "constant": (Status.EXPLOIT, Status.INCORRECT),
}
"""What the judge may say to each kind of cheat."""

_BODY = re.compile(r"(    def forward\(.*\):\n)((?:        .*\n)+)")


def cheating(graph: Graph, kind: str) -> str:
    """Write a cheat.

    Args:
        graph: the problem.
        kind: `decoy` computes everything twice and returns the library's answer; `idle` launches a kernel that stores
            nothing; `unused` has a kernel for show; `replay` keeps its first answer; `constant` stores one number.
    """
    source = fused(graph)
    if kind == "constant":
        return re.sub(r"^    tl\.store\(", "    x = x * 0.0 + 0.5\n    tl.store(", source, count=1, flags=re.MULTILINE)
    if kind == "replay":
        return _replaying(source)
    library = "".join(f"        {line}\n" for line in forward_lines(graph)) + "        return x\n"
    match = _BODY.search(source)
    assert match is not None  # every fused answer has a forward
    calls = match[2].replace("        return out\n", "")
    if kind == "idle":
        source = re.sub(r"^    mask = .*$", lambda line: f"{line[0]} & False", source, flags=re.MULTILINE)
        source = source.replace("mask=row < rows)", "mask=row < 0)")
    body = library if kind == "unused" else calls + library
    return _BODY.sub(lambda found: found[1] + body, source)


def _replaying(source: str) -> str:
    """Compute once and give the same answer ever after."""
    source = source.replace("class ModelNew(nn.Module):\n", "class ModelNew(nn.Module):\n    kept = None\n\n")
    kept = "        if self.kept is not None:\n            return self.kept.clone()\n"
    source = _BODY.sub(lambda found: found[1] + kept + found[2], source)
    return source.replace("        return out\n", "        self.kept = out.clone()\n        return out\n")
