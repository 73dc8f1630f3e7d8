"""Two steps at once: no timing, kill or Ctrl-C changes what is learned, and no answer is more than one update old."""

from __future__ import annotations

import itertools
import os
import queue
import random
import signal
import threading
import time
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_world
from test_training_loop import curve, run_killed, same, steps_of
from toy_world import TextJudge

from kerneldojo.algorithms import clipped_policy_loss
from kerneldojo.algorithms.losses import ClipConfig
from kerneldojo.algorithms.staleness import stale_weights
from kerneldojo.client import ClientExecutor
from kerneldojo.pool import DeviceState
from kerneldojo.schema import Candidate, Episode, Evaluation, Job
from kerneldojo.service.records import Overview, QueueState
from kerneldojo.training.config import RLConfig
from kerneldojo.training.metering import JudgeMeter
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.rl import train_rl
from kerneldojo.training.verdicts import Verdicts


@pytest.fixture
def config(tmp_path: Path, imitator: Path):
    toy_world.write_problems(tmp_path / "problems")

    def build(name: str, *, turns: int = 2, **changes: object) -> RLConfig:
        told: dict[str, object] = {
            "staleness": 1,
            "samples_per_prompt": 4,
            "play": toy_world.PLAY.model_copy(update={"num_turns": turns}),
            "evaluation": {"problems": (f"kernelbench:{tmp_path / 'problems'}",), "num_problems": 1, "every": 2},
        }
        return toy_world.rl_config(tmp_path / name, imitator, **told | changes)

    return build


class LateJudge(TextJudge):
    """Gives its verdicts from another thread, in an order of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.queue: queue.Queue[tuple[Future[Evaluation], Evaluation] | None] = queue.Queue()
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()

    def submit(self, job: Job) -> Future[Evaluation]:
        later: Future[Evaluation] = Future()
        self.queue.put((later, super().submit(job).result()))
        return later

    def _answer(self) -> None:
        held: list[tuple[Future[Evaluation], Evaluation]] = []
        while True:
            try:
                order = self.queue.get(timeout=0.001)
            except queue.Empty:
                pass
            else:
                if order is None:
                    return
                held.append(order)
                if len(held) <= self.random.randrange(12):
                    continue
            if held:
                future, verdict = held.pop(self.random.randrange(len(held)))
                future.set_result(verdict)

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        self.queue.put(None)
        self.thread.join()


def told(run: RLConfig) -> list[dict[str, Any]]:
    """What a journal says but for durations, and orders placed: these depend on what a process remembers."""
    return [{k: v for k, v in one.items() if k != "verdicts"} for one in curve(run)]


def rollouts(run: RLConfig) -> dict[str, list[Episode]]:
    files = sorted((run.output / "rollouts").glob("*.jsonl"))
    return {one.name: [Episode.model_validate_json(line) for line in one.read_text().splitlines()] for one in files}


def last_state(run: RLConfig) -> dict[str, Any]:
    return torch.load(run.output / "checkpoints" / f"step-{run.steps:06d}" / "state.pt")


@pytest.mark.parametrize("turns", [1, 3])
def test_what_is_learned_depends_neither_on_timing_nor_on_interruptions(turns: int, config, ranks: Ranks) -> None:
    whole, late, stopped = (config(name, turns=turns, steps=3) for name in ("whole", "late", "stopped"))
    assert train_rl(whole, TextJudge(), ranks, show=False).reason == "finished"
    judge = LateJudge(seed=turns)
    train_rl(late, judge, ranks, show=False)
    judge.close()
    assert curve(late) == curve(whole)  # the numbers of orders, too
    assert rollouts(late) == rollouts(whole)

    class Interrupting(TextJudge):
        """Ctrl-C at its n-th order."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def submit(self, job: Job) -> Future[Evaluation]:
            if len(self.jobs) == self.number:
                os.kill(os.getpid(), signal.SIGINT)
            return super().submit(job)

    reasons: list[str] = []
    for number in itertools.count(5, 5):
        reasons.append(train_rl(stopped, Interrupting(number), ranks, resume=bool(reasons), show=False).reason)
        if reasons[-1] != "stopped":
            break
    assert len(reasons) >= 3 and reasons[-1] == "finished"
    assert told(stopped) == told(whole)
    assert rollouts(stopped) == rollouts(whole)
    first, second = last_state(whole), last_state(stopped)
    assert same(first["optimizer"]["state"], second["optimizer"]["state"])


def test_a_killed_run_goes_on_with_what_was_written(config, ranks: Ranks, tmp_path: Path) -> None:
    whole, killed = config("whole"), config("killed", checkpoint_every=2)
    counting = TextJudge()
    train_rl(whole, counting, ranks, show=False)
    assert run_killed(killed, tmp_path, kill_at=len(counting.jobs) * 3 // 4) == -signal.SIGKILL
    assert 1 <= len(steps_of(killed)) < 4
    assert train_rl(killed, TextJudge(), ranks, resume=True, show=False).steps == 4
    assert told(killed) == told(whole) and rollouts(killed) == rollouts(whole)


def test_answers_are_one_update_old_at_most_and_the_first_step_is_fresh(config, ranks: Ranks) -> None:
    expected = {  # by number of turns: for each step, updates that the weights had seen that wrote each turn
        1: [(0,), (0,), (1,), (2,)],
        2: [(0, 0), (0, 0), (1, 2), (2, 2)],
    }
    for turns, versions in expected.items():
        ahead = config(f"ahead-{turns}", turns=turns)
        plain = config(f"plain-{turns}", turns=turns, staleness=0, steps=1)
        train_rl(ahead, TextJudge(), ranks, show=False)
        train_rl(plain, TextJudge(), ranks, show=False)
        for step, episodes in enumerate(rollouts(ahead).values()):
            for turn, version in enumerate(versions[step]):
                assert {one.turns[turn].answer.version for one in episodes} == {version}, (turns, step, turn)
                assert 0 <= step - version <= 1
        steps = steps_of(ahead)
        shares = [sum(step - one for one in row) / turns for step, row in enumerate(versions)]
        assert [one["staleness"]["samples"] for one in steps] == pytest.approx(shares)
        first = {**steps[0]}
        corrected = first.pop("staleness")
        assert corrected == {"samples": 0.0, "ratio": 1.0, "kl": 0.0, "truncated": 0.0}
        assert first == steps_of(plain)[0] and "staleness" not in steps_of(plain)[0]
        # A policy that has moved is another policy; engine and trainer still agree about each, so MRS keeps all.
        assert any(one["staleness"]["kl"] > 1e-3 for one in steps[1:])
        assert all(one["mismatch"]["max"] < 1e-3 and one["samples"]["mrs_acceptance"] == 1.0 for one in steps)


def test_it_learns(config, ranks: Ranks) -> None:
    run = config("run", turns=1, steps=20, samples_per_prompt=12, checkpoint_every=20, evaluation={"problems": ()})
    train_rl(run, TextJudge(), ranks, show=False)
    steps = steps_of(run)
    assert sum(one["fast_1.2"] for one in steps[-3:]) > 2 * sum(one["fast_1.2"] for one in steps[:3])
    assert all(0.5 < one["staleness"]["ratio"] < 1.5 for one in steps)


def test_faults_cost_time_alone(config, ranks: Ranks) -> None:
    calm, troubled = config("calm"), config("troubled", judge={"patience_s": 60.0})
    train_rl(calm, TextJudge(), ranks, show=False)
    train_rl(troubled, TextJudge(fail_orders=range(5, 9)), ranks, show=False)
    assert sum(one["faults"]["retried"] for one in steps_of(troubled)) >= 1
    for name in ("reward", "loss", "grad_norm", "num_masked", "staleness"):
        assert [one.get(name) for one in steps_of(calm)] == [one.get(name) for one in steps_of(troubled)]


def test_nan_stops_it_and_masked_answers_teach_nothing(config, ranks: Ranks) -> None:
    poisoned = config("poisoned", steps=6, max_skipped=2, learning={"aggregation": {"scale": 1e-320}})
    outcome = train_rl(poisoned, TextJudge(), ranks, show=False)
    assert not outcome.is_good and "2 times in a row" in outcome.reason and outcome.steps < 6
    masked = config("masked", steps=2, evaluation={"problems": ()})
    train_rl(masked, TextJudge(fail_orders=range(10_000)), ranks, show=False)
    assert all(one["skipped"] for one in steps_of(masked))


def test_a_longer_run_begins_its_first_new_step_anew(config, ranks: Ranks) -> None:
    run = config("run", steps=2)
    train_rl(run, TextJudge(), ranks, show=False)
    longer = run.model_copy(update={"steps": 4})
    assert train_rl(longer, TextJudge(), ranks, resume=True, show=False).steps == 4
    assert [one["staleness"]["samples"] for one in steps_of(run)][2] == 0.0
    assert [one["step"] for one in steps_of(run)] == [1, 2, 3, 4]


def test_importance_weights_make_the_gradient_that_of_todays_policy() -> None:
    torch.manual_seed(0)
    logits, other = torch.randn(2, 7, dtype=torch.float64)
    logits.requires_grad_()
    advantages = torch.randn(7, dtype=torch.float64)
    now, then = logits.log_softmax(0), other.log_softmax(0)
    (wanted,) = torch.autograd.grad(-(now.exp() * advantages).sum(), logits)

    def gradient(cap: float) -> torch.Tensor:
        """In expectation over all seven answers as the older policy draws them."""
        now = logits.log_softmax(0)
        stale = stale_weights(now, then, cap)
        losses = clipped_policy_loss(now, now.detach(), advantages, ClipConfig()).loss
        return torch.autograd.grad((then.exp() * stale.weights.double() * losses).sum(), logits)[0]

    assert torch.allclose(gradient(1e9), wanted, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(gradient(1.0), wanted, rtol=0.05, atol=1e-3)
    capped = stale_weights(now, then, 1.5)
    assert capped.weights.max() <= 1.5 and torch.equal(capped.truncated, capped.ratio > 1.5)
    assert torch.equal(stale_weights(now, now, 2.0).weights, torch.ones(7))


def test_measurements_of_one_step_are_not_shared_with_the_next() -> None:
    class Held(TextJudge):
        """Answers when it is told to."""

        def submit(self, job: Job) -> Future[Evaluation]:
            self.jobs.append(job)
            self.futures.append(Future())
            return self.futures[-1]

        futures: list[Future[Evaluation]] = []  # noqa: RUF012

    def job(device: str) -> Job:
        return Job(problem=toy_world.problems()[0], candidate=Candidate(source="way = 3"), device=device)

    for device, orders in (("cuda:0", 2), ("model:h100", 1)):
        judge = Held()
        judge.futures = []
        verdicts = Verdicts(judge, patience=0)
        before = verdicts.order(job(device))
        assert verdicts.order(job(device)) is before
        verdicts.forget_measured()  # while it is still being judged
        after = verdicts.order(job(device))
        assert len(judge.jobs) == verdicts.num_judged == orders and (after is before) == (orders == 1)
        for future in judge.futures:
            future.set_result(toy_world.verdict(job(device)).model_copy(update={"device": device}))
        assert verdicts.wait([before, after])[after] == before.verdict == after.verdict is not None
        verdicts.forget_measured()
        verdicts.order(job(device))
        assert len(judge.jobs) == orders + (orders == 2)


def test_the_meter_tells_how_much_of_the_judges_time_was_used() -> None:
    class Half(TextJudge):
        """Two of four slots are always at work."""

        def devices(self) -> tuple[DeviceState, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
            return (DeviceState(name="model:h100", kind="model", running=("a: timing", "b: starting")),)

    with JudgeMeter(Half()) as meter:
        assert meter.take() is None  # a look or two say nothing
        time.sleep(1.0)
        assert meter.take() == pytest.approx(0.5)
    with JudgeMeter(TextJudge()) as meter:  # it has no devices to tell of
        time.sleep(0.6)
        assert meter.take() is None


def test_a_service_is_looked_at_as_often_as_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five looks two find both slots at work: whatever was seen twice would show in the mean."""
    told = Overview(
        version="1",
        now=0.0,
        uptime_seconds=0.0,
        draining=False,
        devices=(),
        queue=QueueState(queued=0, queued_bytes=0, running=0, slots=2),
        per_minute=0.0,
        per_minute_history=(),
        states={},
        statuses={},
        running=(),
        latest=(),
    )
    asked: list[bool] = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(len(asked) % 5 in (2, 4))
            running = ("a: timing", "b: starting") if asked[-1] else ()
            devices = (DeviceState(name="model:h100", kind="model", running=running),)
            body = told.model_copy(update={"devices": devices}).model_dump_json().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(ClientExecutor, "refresh_seconds", 0.15)
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with ClientExecutor(f"http://127.0.0.1:{server.server_port}") as executor:
            with JudgeMeter(executor) as meter:
                time.sleep(2.0)
            share, looks = meter.take(), asked[1:]  # the first one was made to connect
        server.shutdown()
    assert 5 <= len(looks) <= 2.0 / 0.15
    assert share == pytest.approx(sum(looks) / len(looks))
