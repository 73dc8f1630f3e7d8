"""The teacher: a policy that knows how kernels are written, and is as good as it is told to be.

It gets nothing but the problem's text, reads the graph out of it, and writes an answer of some level from templates.
In later turns it reads the feedback and acts on it: what does not compile, crashes or is wrong is mended, a cheat
becomes honest, what is correct but mostly the library's work is fused, what is fused is cut into better blocks.

It stands in for a language model wherever one is too slow or too dear: in tests, in demonstrations, and as the source
of the trajectories from which a small model learns.
"""

from __future__ import annotations

import math

from kerneldojo.policies.policy import Request
from kerneldojo.policies.teacher import broken, cheating
from kerneldojo.policies.teacher.config import LEVELS, Level, Quality, TeacherConfig
from kerneldojo.policies.teacher.feedback import Feedback, read_feedback
from kerneldojo.policies.teacher.tasks import Task, task_of
from kerneldojo.problems.graphs.stream import Stream
from kerneldojo.problems.source import ProblemError
from kerneldojo.schema import Answer, Problem

_CHEATS = {"decoy": 3.0, "idle": 2.0, "unused": 2.0, "replay": 2.0, "constant": 1.0}
_REPAIRS = {
    "compile": "Mend what did not compile.",
    "crash": "Mend what crashed.",
    "incorrect": "Mend what was incorrect.",
    "exploit": "Be honest this time.",
    "unparsed": "Write the code in one block.",
    "correct": "Make it faster.",
}
FUSED_COVERAGE = 0.9
"""With so much of the time in its own kernels an answer counts as fused."""


class Teacher:
    """Writes answers of a chosen quality (`policies.Policy`)."""

    def __init__(self, config: TeacherConfig | None = None) -> None:
        self.config = config or TeacherConfig()

    @classmethod
    def of(cls, quality: str) -> Teacher:
        """The teacher that `teacher:QUALITY` names: a level, `mixture`, or a mixture of one's own (`lazy=3,fused=1`).

        Raises:
            ValueError: there is no such quality, in one line.
        """
        if "=" in quality:
            return cls(TeacherConfig(shares=_shares(quality)))
        known: tuple[Quality, ...] = (*LEVELS, "mixture")
        for name in known:
            if name == quality:
                return cls(TeacherConfig(quality=name))
        raise ValueError(f"unknown quality {quality!r} of the teacher: choose one of {', '.join(known)}")

    @property
    def name(self) -> str:
        """For example `teacher:fused`, or `teacher:lazy=3,fused=1`."""
        if self.config.quality == "mixture" and self.config.shares != TeacherConfig().shares:
            return "teacher:" + ",".join(f"{level}={share:g}" for level, share in self.config.shares.items())
        return f"teacher:{self.config.quality}"

    @property
    def gives_ids(self) -> bool:
        """It knows no tokens."""
        return False

    async def answer(self, request: Request) -> Answer:
        """Write one answer; equal requests get equal answers."""
        try:
            text = self.text(request)
        except ProblemError as error:
            return Answer(text="", finish="failed", error=str(error))
        return Answer(text=text)

    async def close(self) -> None:
        """Nothing is held."""

    def text(self, request: Request) -> str:
        """The answer as text: a plan of one or two lines, then one block of code.

        Raises:
            ProblemError: the problem is not one.
        """
        problem = request.episode.problem
        stream = Stream("teacher", request.seed, len(request.episode.turns), problem.hash)
        task = task_of(problem)
        feedback = read_feedback(request)
        if feedback is None:
            level = self._first_level(stream)
        else:
            level = self._next_level(task, feedback, _last_code(request), stream)
        plan, code = write(task, level, stream)
        if feedback is not None:
            plan = f"{_REPAIRS[feedback.complaint]}\n{plan}"
        return f"<plan>\n{plan}\n</plan>\n```python\n{code}```\n"

    def _first_level(self, stream: Stream) -> Level:
        if self.config.quality == "mixture":
            return stream.weighted(self.config.shares)
        return self.config.quality

    def _next_level(self, task: Task, feedback: Feedback, code: str, stream: Stream) -> Level:
        """What to write after a verdict."""
        succeeds = stream.uniform() < self.config.repair
        last = task.level_of(code)
        if feedback.complaint == "correct":
            if not succeeds:
                return last or "lazy"
            is_fused = last in ("fused", "tuned") or (feedback.coverage or 0.0) >= FUSED_COVERAGE
            return "tuned" if is_fused else "fused"
        if not succeeds:
            return "cheating" if feedback.complaint == "exploit" else "broken"
        # Mended honestly: mostly as it was meant, and now and then with less ambition.
        return "fused" if stream.uniform() < 0.7 else "lazy"


def _shares(text: str) -> dict[Level, float]:
    """`lazy=3,fused=1` as weights."""
    known: dict[str, Level] = {level: level for level in LEVELS}
    shares: dict[Level, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        level = known.get(name.strip())
        try:
            weight = float(share)
        except ValueError:
            weight = -1.0
        if level is None or level in shares or not 0 <= weight < math.inf:
            raise ValueError(f"{part!r} is no share of a teacher's mixture: write LEVEL=SHARE of {', '.join(LEVELS)}")
        shares[level] = weight
    if not sum(shares.values()):
        raise ValueError(f"the shares of a teacher's mixture are all 0: {text!r}")
    return shares


def write(task: Task, level: Level, stream: Stream) -> tuple[str, str]:
    """Write a plan and code of one level.

    Args:
        task: the problem as it was understood.
        level: how good the answer is to be.
        stream: chooses the fault, the cheat or the operation.
    """
    if level == "broken":
        return task.plan("fused"), task.broken(stream.choose(tuple(broken.EXPECTED)), stream)
    if level == "cheating":
        kind = stream.weighted(_CHEATS)
        assert kind in cheating.EXPECTED
        return "Let the library compute and launch a kernel beside it.", task.cheating(kind)
    if level == "lazy":
        return task.plan("lazy"), task.lazy()
    return task.plan(level), task.fused(is_tuned=level == "tuned")


def teach(problem: Problem, level: Level, seed: int = 0) -> str:
    """Code of one level for a problem, without an episode around it.

    Raises:
        ProblemError: the problem is not one.
    """
    return write(task_of(problem), level, Stream("teacher", seed, problem.hash))[1]


def _last_code(request: Request) -> str:
    last = request.episode.turns[-1]
    return last.candidate.source if last.candidate else ""
