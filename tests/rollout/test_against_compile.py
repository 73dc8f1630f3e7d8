"""Verdicts against torch.compile beside a run: each distinct answer that passed once, whatever happens in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from small_policies import PROBLEMS, Fixed, Parity, parity

from kerneldojo.episodes import PlayConfig
from kerneldojo.rollout import RunError, RunFolder, play, play_run
from kerneldojo.rollout.against_compile import AGAINST_COMPILE, judge_against_compile, read_verdicts
from kerneldojo.schema import Evaluation, Job

CONFIG = PlayConfig(num_turns=2, style="compact", device="model:h100")


class Asked(Parity):
    """Keeps the jobs too; the first `num_bugs` end in a bug of ours."""

    def __init__(self, num_faults: int = 0, num_bugs: int = 0) -> None:
        super().__init__(num_faults)
        self.num_bugs, self.jobs = num_bugs, list[Job]()

    async def __call__(self, job: Job) -> Evaluation:
        self.jobs.append(job)
        if len(self.jobs) <= self.num_bugs:
            raise ZeroDivisionError("a bug")
        return await super().__call__(job)


def test_what_passed_is_judged_once_more_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / AGAINST_COMPILE
    episodes = asyncio.run(play(PROBLEMS, Fixed(), Parity(), CONFIG, num_samples=3))
    turns = [(episode, turn) for episode in episodes for turn in episode.turns if turn.is_correct]
    wanted = {(episode.problem.hash, turn.candidate.hash) for episode, turn in turns if turn.candidate}

    def ask(judge: Asked) -> list[Job]:
        asyncio.run(judge_against_compile(episodes, judge, path))
        return judge.jobs

    with pytest.raises(ZeroDivisionError):
        ask(Asked(num_bugs=len(wanted)))
    assert len(ask(Asked(num_faults=2))) == len(wanted)
    verdicts = read_verdicts(path)
    assert len(verdicts) == len(wanted) - 2  # faults of ours are no verdicts
    with path.open("ab") as file:
        file.write(b'{"status": "pas')
    assert read_verdicts(path) == verdicts
    jobs = ask(Asked())
    assert len(jobs) == 2 and {job.baseline for job in jobs} == {"compile"}
    verdicts = read_verdicts(path)
    assert set(verdicts) == wanted
    for job in jobs:
        assert verdicts[job.problem.hash, job.candidate.hash].speedup == parity(job).speedup
    assert ask(Asked()) == []
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(RunError, match="line 1 is no verdict"):
        ask(Asked())
    path = tmp_path / "nowhere" / AGAINST_COMPILE
    with pytest.raises(RunError, match="No such file") as refusal:
        ask(Asked())
    assert "\n" not in str(refusal.value)


def test_a_whole_run_closes_its_policy_however_it_ends(tmp_path: Path) -> None:
    class Closed(Fixed):
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

    class Broken:
        num_slots = 1

        def submit(self, job: Job) -> None:
            raise ValueError("no device of mine can serve it")

    policy = Closed()
    with pytest.raises(ValueError, match="no device of mine"):
        play_run(PROBLEMS, policy, Broken(), CONFIG, RunFolder(tmp_path))
    assert policy.is_closed
