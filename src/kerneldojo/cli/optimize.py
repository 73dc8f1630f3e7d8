"""`dojo optimize MODEL.py`: one module in, one faster kernel out, with the proof beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kerneldojo.cli.arguments import AsJson, BadUsage, Device, ended_by, named, read_source, seconds
from kerneldojo.cli.judges import open_executor
from kerneldojo.cli.policies import PolicyOptions, opened
from kerneldojo.cli.stopping import INTERRUPTED, stopping
from kerneldojo.cli.streams import console_for, own_standard_output, print_json, say
from kerneldojo.cli.text import counted, harmless, one_line, ratio
from kerneldojo.schema import Problem

if TYPE_CHECKING:
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.policies import Policy
    from kerneldojo.rollout import AsyncJudge
    from kerneldojo.search import Budget, Found, Strategy, Winner
    from kerneldojo.search.proof import Proof
    from kerneldojo.search.tree import Node


def optimize_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.py", help="Defines Model, get_inputs, get_init_inputs.")],
    policy: Annotated[
        str, typer.Option(help="Who writes: teacher, openai:MODEL[@URL], hf:PATH, vllm:URL or replay:FILE.")
    ] = "teacher:tuned",
    policy_option: PolicyOptions = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where the kernel goes; its proof is written beside it.", metavar="FILE.py", parser=named
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="best-first, serial, parallel, sequential[:TURNS], or MxN chains as in 4x8.")
    ] = "best-first",
    calls: Annotated[int | None, typer.Option(help="Answers to ask for.", min=1)] = 32,
    verdicts: Annotated[int | None, typer.Option(help="Answers to judge.", min=1)] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens to generate.", min=1)] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--seconds", help="Wall time.", callback=seconds, metavar="SECONDS")
    ] = None,
    device: Device = "auto",
    language: Annotated[Literal["triton", "cuda"], typer.Option(help="What to write kernels in.")] = "triton",
    baseline: Annotated[Literal["eager", "compile"], typer.Option(help="What the speedup is against.")] = "eager",
    protocol: Annotated[
        Literal["quick", "standard", "strict"], typer.Option(help="Of the verdicts during the search.")
    ] = "standard",
    temperature: Annotated[float, typer.Option(help="Of the policy's sampling.", min=0)] = 1.0,
    at_once: Annotated[int, typer.Option(help="Answers under way at most.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    url: Annotated[str | None, typer.Option(help="Judge at this service instead of on this machine.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Holds the service's token.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for one faster kernel, and write the best that passes twice, with its proof.

    The kernel is chosen by one verdict and its figure comes from another one, with fresh seeds and the strict
    protocol. Ctrl-C ends the search with the best so far; a second one leaves it. Exit code 0 if a kernel was written,
    1 if none was faster, 2 for bad usage or a problem that cannot be judged, 3 for a fault of ours, 130 if it was
    stopped before anything was faster.
    """
    target = out or model.with_name(f"{model.stem}_optimized.py")
    _check_target(target)
    limits = {"calls": calls, "verdicts": verdicts, "tokens": tokens, "seconds": max_seconds}
    rules = {"device": device, "language": language, "baseline": baseline, "protocol": protocol}
    problem = Problem(name=model.stem, source=read_source(model))
    plan = _plan(problem, lambda: opened(policy, policy_option), strategy, limits, rules)
    with own_standard_output() as output:
        with closing_judge(url, token_file, device) as judge, stopping() as stop:
            found, winner = asyncio.run(_search(plan, judge, temperature, at_once, seed, stop.is_set))
        if stop.is_set():
            say(f"stopped after {counted(len(found.tree), 'answer')}")
        for fault in filter(None, (found.fault, winner.fault)):
            say(one_line(fault))
        proof = _proof(found, winner)
        if proof is None:
            if as_json:
                print_json(_nothing(found, winner), output)
            say(_why_nothing(found, winner))
            nothing = INTERRUPTED if stop.is_set() else 1
            raise typer.Exit(3 if found.fault or winner.fault else 2 if found.refused else nothing)
        beside = _write(proof, target)
        if as_json:
            print_json(proof, output)
        else:
            _show(console_for(output), proof, target, beside)


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise BadUsage(f"cannot write {target}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK) or target.is_dir():
        raise BadUsage(f"cannot write {target}: a file in a folder that can be written is needed")


@dataclass(frozen=True)
class Plan:
    """What is to be searched and how, checked before anything is started."""

    problem: Problem
    policy: Policy
    strategy: Strategy
    budget: Budget
    config: PlayConfig


def _plan(
    problem: Problem, policy: Callable[[], Policy], strategy: str, limits: dict[str, Any], rules: dict[str, Any]
) -> Plan:
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.problems import check_source
    from kerneldojo.search import Budget, parse_strategy

    try:
        check_source(problem.source)
        chosen, budget, config = parse_strategy(strategy), Budget(**limits), PlayConfig(**rules)
        return Plan(problem, policy(), chosen, budget, config)
    except ValueError as error:
        raise BadUsage(one_line(str(error))) from error


async def _search(
    plan: Plan, judge: AsyncJudge, temperature: float, at_once: int, seed: int, stop: Callable[[], bool]
) -> tuple[Found, Winner]:
    from kerneldojo.search import choose, search

    try:
        with _Display(plan.budget.calls) as display:
            found = await search(
                plan.problem,
                plan.policy,
                judge,
                plan.strategy,
                plan.budget,
                plan.config,
                seed=seed,
                temperature=temperature,
                num_at_once=at_once,
                on_answer=display.update,
                stop=stop,
            )
            display.tell("judging the best again, with fresh seeds")
            return found, await choose(found, judge)
    finally:
        await plan.policy.close()


@contextmanager
def closing_judge(url: str | None, token_file: Path | None, device: str) -> Generator[AsyncJudge]:
    """Verdicts for as long as the block lasts.

    Raises:
        BadUsage: there is no judge to be had.
    """
    from kerneldojo.rollout import from_executor

    executor = open_executor(url, token_file, [device], None, None)
    try:
        yield from_executor(executor)
    finally:
        executor.close(drain=False)


class _Display:
    """A bar on standard error: answers so far, and the best of them by its first verdict."""

    def __init__(self, calls: int | None) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("searching", total=calls)

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, found: Found, node: Node) -> None:
        best = found.tree.best()
        last = node.evaluation.status.value if node.evaluation else "no code"
        text = f"best {ratio(best.speedup)} (unconfirmed)" if best and best.speedup else "nothing passed yet"
        self._progress.update(self._task, advance=1, description=f"{text}; last: {last}")

    def tell(self, text: str) -> None:
        self._progress.update(self._task, description=text)


def _proof(found: Found, winner: Winner) -> Proof | None:
    """The proof, unless nothing passed twice or what did is no faster than the reference."""
    from kerneldojo.search.proof import proof_of

    if winner.speedup is None:
        return None
    timed = winner.second is not None and winner.second.speedup is not None
    return proof_of(found, winner) if winner.speedup > 1 or not timed else None


def _nothing(found: Found, winner: Winner) -> BaseModel:
    """What `--json` prints where no kernel was written: a proof's fields as far as they apply, and why."""
    from kerneldojo.search.proof import Nothing

    return Nothing(
        problem=found.tree.root.episode.problem,
        speedup=winner.speedup,
        message=_why_nothing(found, winner),
        num_finalists=len(winner.finalists),
        strategy=found.strategy,
        policy=found.tree.root.episode.policy,
        seed=found.tree.root.episode.seed,
        budget=found.budget,
        spent=found.spent,
    )


def _why_nothing(found: Found, winner: Winner) -> str:
    if found.refused:
        return f"nothing was written: {one_line(found.refused)}"
    if winner.speedup is not None:
        return f"nothing was written: the best of {len(found.tree)} answers reaches {ratio(winner.speedup)}, no gain"
    if winner.finalists:
        return f"nothing was written: none of {len(winner.finalists)} answers that passed once passed again"
    counts: dict[str, int] = {}
    for node in found.tree:
        name = node.evaluation.status.value if node.evaluation else "no code"
        counts[name] = counts.get(name, 0) + 1
    told = ", ".join(f"{number} {name}" for name, number in sorted(counts.items(), key=lambda item: -item[1]))
    return f"nothing was written: of {len(found.tree)} answers none passed ({told or 'none came'})"


def _write(proof: Proof, target: Path) -> Path:
    from kerneldojo.search.proof import write

    try:
        return write(proof, target)
    except OSError as error:
        raise ended_by(error, f"cannot write {target}: {error.strerror or error}") from error


def _show(console: Console, proof: Proof, target: Path, beside: Path) -> None:
    from kerneldojo.cli.panel import panel

    console.print(panel(proof.second, title=f"{harmless(target.name)} for {harmless(proof.problem.name)}"))
    spent = proof.spent
    timed = f"{ratio(proof.speedup)}, judged again after the choice" if proof.second.speedup else "right, not timed"
    console.print(
        f"{timed}; {spent.calls} answers by {harmless(proof.policy)} ({proof.strategy}), the winner was number "
        f"{proof.found_after_calls}; {spent.seconds:.0f} s."
    )
    console.print(f"kernel: {target}\nproof:  {beside}")
