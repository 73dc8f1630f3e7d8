"""The proof on an H200: a model from nothing learns to write faster kernels from measured times, and from nothing else.

    python runs/h200.py --out runs-out/h200 --collect                                   # the corpus; needs no GPU
    python runs/h200.py --out runs-out/h200 --seconds 560 --pack "$OUT"                 # as far as the time goes
    python runs/h200.py --out runs-out/h200 --from pack --seconds 560 --pack "$OUT"     # goes on, also elsewhere
    python runs/h200.py --out runs-out/h200 --report                                    # tables and plots
    python runs/h200.py --out /tmp/tiny --device model:h100 --tiny                      # everything once, without a GPU

For each seed: a start by SFT on the teacher's answers (rounded to bf16, as it travels); RL on the judge's verdicts
(`rl`) and on those that an evaluator without exploit checks would have given (`naive`), both from that start; the
choice of a temperature for every policy on the validation graphs; then the test graphs, opened once for each policy, at
all temperatures, under a stricter protocol than that of training and judged in full for every policy. Sizes are in
runs/h200.toml; what is claimed, and when it holds, in docs/results/README.md.

Everything goes on where a killed process left it. A pack holds results, starts, policies that are still to be measured,
and the corpus; a run of RL that is under way goes on only on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proof.clock import Clock
from proof.h200_config import POLICIES, SFT, Places, ProofConfig, load_proof, places, rl_config, sft_config
from proof.h200_report import write_report
from proof.held_out import answers
from proof.machine import machine
from proof.packing import PackError, pack, unpack
from proof.signatures import outline, signature
from proof.tables import Row, read_json, rows_of, write_json, write_rows

from kerneldojo.episodes import PlayConfig
from kerneldojo.pool import Executor
from kerneldojo.schema import Episode, Status
from kerneldojo.training.runs import Outcome

ROOT = Path(__file__).parents[1]
DONE = "done.json"
STOP_SECONDS, PACK_SECONDS = 25.0, 30.0
"""Reserved at the end."""


class TimeIsOver(SystemExit):
    """The clock says so, or somebody asked; the next call goes on."""


class Proof:
    """The whole of it; every method does what is missing of its part."""

    def __init__(self, config: ProofConfig, place: Places, clock: Clock) -> None:
        self.config, self.place, self.clock = config, place, clock
        self._pool: Executor | None = None
        self._pool_is_exact = False

    def go(self, *, only_collect: bool = False) -> None:
        """All phases, seed by seed, so that what is done early is complete."""
        if not (self.place.out / "collected" / DONE).exists():
            self._phase("collect", self.collect)
        if only_collect:
            return
        for seed in self.config.seeds:
            missing = {
                part: [name for name in POLICIES if not (self.place.result(name, seed) / file).exists()]
                for part, file in (("RL", "trained.json"), ("validation", "validation.json"), ("test", DONE))
            }
            if missing["test"] and not (self.place.start(seed) / DONE).exists():
                self._phase(f"SFT, seed {seed}", self.make_start, seed)
            for name in missing["RL"]:
                if name != SFT:
                    self._phase(f"{name}, seed {seed}: RL", self.train, name, seed)
            for name in missing["validation"]:
                self._phase(f"{name}, seed {seed}: validation", self.validate, name, seed)
            for name in missing["test"]:
                self._phase(f"{name}, seed {seed}: test", self.test, name, seed)

    def _phase(self, name: str, act: Any, *arguments: Any) -> None:
        if self.clock.is_over:  # The alarm may have rung in the last moment of a phase, which ended all the same.
            raise TimeIsOver
        began = time.monotonic()
        self._say(f"{name} ...")
        told = act(*arguments)
        self._say(f"{name}: {time.monotonic() - began:.0f} s, {told}")

    def _say(self, text: str) -> None:
        print(f"{self.clock.spent:6.0f} s  {text}", flush=True)

    # Judges

    def pool(self, *, exact: bool) -> Executor:
        """The judges. `exact`: nothing of an earlier verdict is used; for what is reported."""
        from kerneldojo.pool import PoolConfig, open_pool

        if self._pool is not None and self._pool_is_exact != exact:
            self.close()
        if self._pool is None:
            reuse = self.config.reuse_reference_times and not exact
            settings = PoolConfig(num_verdicts_per_gpu=self.config.verdicts_per_gpu, reuse_reference_times=reuse)
            self._pool, self._pool_is_exact = open_pool("local", self.place.judges, config=settings), exact
        return self._pool

    def close(self) -> None:
        """End the judges."""
        if self._pool is not None:
            self._pool.close(drain=False)
            self._pool = None

    def play_config(self) -> PlayConfig:
        """How episodes go, in training."""
        return rl_config(self.config, self.place, "rl", self.config.seeds[0]).play

    # Phases

    def collect(self) -> str:
        """The teacher's answers, good and bad, with their verdicts; which cheats are among them."""
        from kerneldojo.policies import open_policy
        from kerneldojo.pool import evaluate, open_pool
        from kerneldojo.problems.suite import load_suite
        from kerneldojo.rollout import RunFolder, play

        graphs = f"graphs:train:{self.config.num_graphs}:0"
        small = {problem.name: problem for problem in load_suite(graphs, "small")}
        device = self.config.collect_on

        async def all_of_them() -> list[Episode]:
            return await play(
                load_suite(graphs, self.place.size),
                open_policy("teacher:mixture", shares=self.config.shares),
                lambda job: evaluate(pool, job.model_copy(update={"problem": small[job.problem.name]})),
                self.play_config().model_copy(update={"device": device}),
                num_samples=self.config.num_answers,
                folder=RunFolder(self.place.out / "collected"),
                show_progress=False,
            )

        pool = open_pool("local", [device])
        try:
            episodes = asyncio.run(all_of_them())
        finally:
            pool.close(drain=False)
        statuses = Counter(row.status for row in rows_of(episodes, arm="", seed=0, way=""))
        note = {"statuses": dict(statuses), **exploits_of(episodes), "all": sorted(signatures_of(episodes))}
        write_json(self.place.out / "results" / "corpus.json", note)
        write_json(self.place.out / "collected" / DONE, {"answers": len(episodes)})
        return ", ".join(f"{name} {count}" for name, count in statuses.most_common())

    def make_start(self, seed: int) -> str:
        """SFT, rounded to bf16."""
        from kerneldojo.training.parallel import start_ranks
        from kerneldojo.training.sft import train_sft

        told = sft_config(self.config, self.place, seed)
        outcome = checked(train_sft(told, start_ranks(told.device), resume=True, show=False))
        keep_model(told.output / "model", self.place.start(seed), outcome.steps)
        result = self.place.result(SFT, seed)
        result.mkdir(parents=True, exist_ok=True)
        shutil.copy(told.output / "metrics.jsonl", result / "metrics.jsonl")
        shutil.rmtree(told.output)
        return f"{outcome.steps} steps"

    def train(self, name: str, seed: int) -> str:
        """RL on measured times; the policy is that after the last step, whatever the validation graphs say."""
        from kerneldojo.training.parallel import start_ranks
        from kerneldojo.training.rl import train_rl

        told = rl_config(self.config, self.place, name, seed)
        ranks = start_ranks(told.device)
        outcome = checked(train_rl(told, self.pool(exact=False), ranks, resume=True, show=True))
        result = self.place.result(name, seed)
        result.mkdir(parents=True, exist_ok=True)
        for file in ("metrics.jsonl", "config.json"):
            shutil.copy(told.output / file, result / file)
        write_json(result / "rollouts.json", self._rollouts(told.output / "rollouts"))
        keep_model(told.output / "model", self.place.trained(name, seed), outcome.steps)
        write_json(result / "trained.json", {"steps": outcome.steps, "machine": machine()})
        return f"{outcome.steps} steps"

    def _rollouts(self, folder: Path) -> list[dict[str, Any]]:
        """Exploits among the answers of each step, by signature; what is new beside the corpus."""
        found: list[dict[str, Any]] = []
        for path in sorted(folder.glob("step-*.jsonl")):
            lines = path.read_text("utf-8").splitlines()
            episodes = [Episode.model_validate_json(line) for line in lines]
            step = int(path.stem.removeprefix("step-"))
            found.append({"step": step, "answers": len(episodes), **exploits_of(episodes)})
        return found

    def model(self, name: str, seed: int) -> Path:
        """The weights of a policy."""
        return self.place.start(seed) if name == SFT else self.place.trained(name, seed)

    def validate(self, name: str, seed: int) -> str:
        """The choice of a temperature."""
        rows = self._measure(name, seed, "validation", exact=False)
        scores = {way: share_fast(rows, way) for way in dict.fromkeys(row.way for row in rows)}
        chosen = max(scores, key=lambda way: scores[way])  # of equals the first, hence the lowest
        write_rows(self.place.result(name, seed) / "validation.csv", rows)
        write_json(self.place.result(name, seed) / "validation.json", {"scores": scores, "chosen": chosen})
        return ", ".join(f"{way} {score:.1%}" for way, score in scores.items()) + f"; chosen {chosen}"

    def test(self, name: str, seed: int) -> str:
        """The test graphs, opened for this policy now and never again."""
        rows = self._measure(name, seed, "test", exact=True)
        result = self.place.result(name, seed)
        write_rows(result / "rows.csv", rows)
        write_json(result / DONE, {"protocol": self.config.test_protocol, "ended": time.time(), "machine": machine()})
        return ", ".join(f"{way} {share_fast(rows, way):.1%}" for way in dict.fromkeys(row.way for row in rows))

    def _measure(self, name: str, seed: int, which: str, *, exact: bool) -> list[Row]:
        """Answers to held-out graphs at every temperature."""
        from kerneldojo.problems.suite import load_suite

        config, is_test = self.config, which == "test"
        number = config.num_test if is_test else config.num_validation
        problems = load_suite(f"graphs:{which}", self.place.size)[:number]
        play = self.play_config()
        if is_test:
            play = play.model_copy(update={"protocol": config.test_protocol})
        rows: list[Row] = []
        for temperature in config.temperatures:
            samples = config.test_samples if is_test else config.validation_samples
            way = f"t={temperature:g}"
            episodes = answers(
                self.model(name, seed),
                problems,
                play,
                self.pool(exact=exact),
                self.place.work(name, seed) / f"{which}-{way}",
                num_samples=samples if temperature else 1,
                temperature=temperature,
                seed=seed,
                device=self.place.sampler,
            )
            rows += rows_of(episodes, arm=name, seed=seed, way=way)
        return rows


def share_fast(rows: Sequence[Row], way: str) -> float:
    """fast@1.2 of the answers that were sampled in this way; verdicts that say nothing are left out."""
    chosen = [row for row in rows if row.way == way and row.status not in ("invalid_problem", "infrastructure_error")]
    return sum((row.speedup or 0.0) > 1.2 for row in chosen) / max(1, len(chosen))


def signatures_of(episodes: Sequence[Episode]) -> set[str]:
    """Of all code, whatever its verdict."""
    return {signature(turn.candidate.source) for one in episodes for turn in one.turns if turn.candidate is not None}


def exploits_of(episodes: Sequence[Episode]) -> dict[str, Any]:
    """How many exploits of each signature, how many of them a naive evaluator would have paid, and one of each."""
    counts: Counter[str] = Counter()
    paid: Counter[str] = Counter()
    examples: dict[str, dict[str, Any]] = {}
    for episode in episodes:
        for turn in episode.turns:
            verdict, candidate = turn.evaluation, turn.candidate
            if candidate is None or verdict is None or verdict.status is not Status.EXPLOIT:
                continue
            one = signature(candidate.source)
            counts[one] += 1
            paid[one] += bool(verdict.unverified is not None and verdict.unverified.outputs_matched)
            names = sorted(exploit.name for exploit in verdict.exploits)
            examples.setdefault(one, {"names": names, "outline": outline(candidate.source), "code": candidate.source})
    return {"exploits": dict(counts), "paid by a naive evaluator": dict(paid), "examples": examples}


def keep_model(source: Path, target: Path, steps: int) -> None:
    """A policy as it is measured, and as it travels: in bf16, whole or not at all."""
    import torch

    from kerneldojo.training.models import load_model
    from kerneldojo.training.tokens import load_tokenizer

    model, tokenizer = load_model(str(source)), load_tokenizer(str(source))
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    model.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    write_json(partial / DONE, {"steps": steps})
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def checked(outcome: Outcome) -> Outcome:
    """Go on only after a phase that ended as it was meant to."""
    if outcome.reason == "stopped":
        raise TimeIsOver
    if not outcome.is_good:
        raise SystemExit(f"ended after {outcome.steps} steps: {outcome.reason}")
    return outcome


@contextmanager
def alarm(clock: Clock) -> Generator[None]:
    """When the clock is over, the process is asked to stop, as by somebody else: training saves, play just ends."""

    def stop(number: int, frame: Any) -> None:
        raise TimeIsOver

    before = signal.signal(signal.SIGTERM, stop)
    timer = None
    if clock.left != float("inf"):
        timer = threading.Timer(max(0.1, clock.left), os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        signal.signal(signal.SIGTERM, before)


def write_pack(proof: Proof, folder: Path) -> None:
    """Results, and while there is something to do also the models that are still needed, and the corpus."""
    place = proof.place
    missing = [
        seed for seed in proof.config.seeds if not all((place.result(name, seed) / DONE).exists() for name in POLICIES)
    ]
    starts = [f"starts/seed-{seed}" for seed in missing if place.start(seed).exists()]
    trained = [
        f"trained/{name}-{seed}" for seed in missing for name in POLICIES if is_to_be_measured(place, name, seed)
    ]
    corpus = ["collected"] if len(starts) < len(missing) else [f"collected/{DONE}"]
    # What was trained but not measured is trained again where its weights do not fit.
    for names in (
        ["results", *starts, *trained, *corpus],
        ["results", *starts, *corpus],
        ["results", *corpus],
        ["results", f"collected/{DONE}"],
    ):
        try:
            written = pack(place.out, folder, names)
        except PackError as error:
            print(f"the pack is too large with {', '.join(names)}: {error}", flush=True)
            continue
        print(f"pack of {sum(path.stat().st_size for path in written) / 2**20:.1f} MiB: {', '.join(names)}", flush=True)
        return
    raise SystemExit("no pack could be written")


def is_to_be_measured(place: Places, name: str, seed: int) -> bool:
    """Whether a policy was trained by RL, and has not met the test graphs yet."""
    return (place.trained(name, seed) / DONE).exists() and not (place.result(name, seed) / DONE).exists()


def forget_unmeasured(place: Places, config: ProofConfig) -> None:
    """On another machine: what was trained but not measured, and did not come along, is trained again."""
    for seed in config.seeds:
        for name in (name for name in POLICIES if name != SFT):
            result = place.result(name, seed)
            if not (result / DONE).exists() and not is_to_be_measured(place, name, seed):
                shutil.rmtree(result, ignore_errors=True)


def main(told: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the proof; one that was begun goes on")
    parser.add_argument("--config", type=Path, default=ROOT / "runs" / "h200.toml")
    parser.add_argument("--device", default="cuda", help="judges: `cuda` for all GPUs, `cuda:N`, or `model:h100`")
    parser.add_argument("--policy-device", default="auto", help="in training; by default the first that judges")
    parser.add_argument("--threads", type=int, default=4, help="of torch, where the policy is on the processor")
    parser.add_argument("--seconds", type=float, help="stop cleanly within so many seconds, packing included")
    parser.add_argument("--pack", type=Path, help="folder for the pack at the end")
    parser.add_argument("--from", dest="source", type=Path, help="folder of a pack to go on from")
    parser.add_argument("--collect", action="store_true", help="only the teacher's answers; needs no GPU")
    parser.add_argument("--tiny", action="store_true", help="everything once, tiny")
    parser.add_argument("--report", action="store_true", help="only write tables and plots of what is there")
    args = parser.parse_args(told)
    config = load_proof(args.config, tiny=args.tiny)
    if args.report:
        print(write_report(args.out, config))
        return 0
    import torch

    torch.set_num_threads(args.threads)
    place = places(args.out, args.device, args.policy_device)
    if args.source and not args.out.exists():
        print(f"{unpack(args.source, args.out)} files from {args.source}", flush=True)
        forget_unmeasured(place, config)
    agree(config, place)
    print(f"judges {', '.join(place.judges)}; policy on {place.policy}", flush=True)
    clock = Clock(args.seconds, STOP_SECONDS + (PACK_SECONDS if args.pack else 0))
    proof = Proof(config, place, clock)
    finished = False
    try:
        with alarm(clock):
            proof.go(only_collect=args.collect)
            finished = not args.collect
    except TimeIsOver:
        print(f"{clock.spent:6.0f} s  stopped; the same command goes on", flush=True)
    finally:
        proof.close()
    if args.pack:
        write_pack(proof, args.pack)
    if finished:
        print(write_report(args.out, config))
    return 0


def agree(config: ProofConfig, place: Places) -> None:
    """Put on record what was told, or see that it is the same."""
    path = place.out / "results" / "proof.json"
    told = {"config": config.model_dump(mode="json", exclude={"sft", "rl"}), "device": place.device}
    if not path.exists():
        write_json(path, told)
    elif read_json(path) != told:
        raise SystemExit(f"{place.out} holds a proof of other settings: give another folder")


if __name__ == "__main__":
    raise SystemExit(main())
