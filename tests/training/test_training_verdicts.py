"""Verdicts: once for equal answers, again after our own faults, never made up."""

from __future__ import annotations

from pathlib import Path

import toy_world
from toy_world import TextJudge

from kerneldojo.schema import Candidate, Job, Status
from kerneldojo.training.judges import open_executor
from kerneldojo.training.verdicts import Verdicts


def job(way: int) -> Job:
    source = f"class ModelNew:\n    way = {way}\n"
    return Job(problem=toy_world.problems()[0], candidate=Candidate(source=source), device="model:h100")


def test_equal_answers_are_judged_once() -> None:
    judge = TextJudge()
    verdicts = Verdicts(judge, patience=0)
    hashes = [verdicts.order(job(way)) for way in (1, 3, 1, 1)]
    found = verdicts.wait(hashes)
    assert [found[one].speedup for one in hashes] == [1.0, 2.0, 1.0, 1.0]
    assert len(judge.jobs) == verdicts.num_judged == 2 and verdicts.num_asked == 4
    verdicts.forget_measured()  # modelled ones stay
    verdicts.wait([verdicts.order(job(3))])
    assert len(judge.jobs) == 2


def test_an_order_that_fails_is_placed_again() -> None:
    judge = TextJudge(fail_orders=range(2))
    verdicts = Verdicts(judge, patience=60)
    one = verdicts.order(job(3))
    assert verdicts.wait([one])[one].speedup == 2.0
    assert len(judge.jobs) == 3 and judge.jobs[-1].fresh and verdicts.num_faults == 2


def test_a_fault_is_handed_on_when_patience_ends_and_not_remembered() -> None:
    judge = TextJudge(fail_orders=range(1))
    verdicts = Verdicts(judge, patience=0)
    one = verdicts.order(job(3))
    assert verdicts.wait([one])[one].status is Status.INFRASTRUCTURE_ERROR
    assert verdicts.wait([verdicts.order(job(3))])[one].status is Status.PASSED


WRONG = """import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def add_nothing(x, out):
    tl.store(out + tl.arange(0, 4), tl.load(x + tl.arange(0, 4)))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_nothing[(1,)](x, out)
        return out
"""


def test_a_run_that_goes_on_gets_the_verdicts_that_it_had(tmp_path: Path) -> None:
    order = Job(
        problem=toy_world.problems(2)[1], candidate=Candidate(source=WRONG), device="model:h100", protocol="quick"
    )
    config = toy_world.rl_config(tmp_path / "run", tmp_path / "model", judge={"slots": 1})
    told: list[str] = []
    for _ in range(2):
        executor = open_executor(config)
        told.append(executor.submit(order).result(120).message)
        executor.close()
    assert "the worst, at" in told[0] and told[0] == told[1], "it tells of what the judge drew secretly"
    assert (tmp_path / "run" / "verdicts").is_dir()
