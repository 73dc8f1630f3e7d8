"""`dojo bench`: play a policy over a suite, and say what it is worth in figures, a table and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kerneldojo.cli.arguments import BadUsage, Cache, Device, folder_to_write, mendable
from kerneldojo.cli.faults import exit_on_faults
from kerneldojo.cli.judges import open_executor
from kerneldojo.cli.policies import PolicyOptions, opened, opened_as
from kerneldojo.cli.report import show
from kerneldojo.cli.searching import plan, search_all
from kerneldojo.cli.selecting import select
from kerneldojo.cli.streams import own_standard_output, say
from kerneldojo.cli.text import counted, one_line
from kerneldojo.devices import problem_size

if TYPE_CHECKING:
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.schema import Problem


def bench_command(
    suite: Annotated[
        list[str],
        typer.Option(
            "--suite",
            help="katas:2, graphs:validation|test|extrapolation or kernelbench:FOLDER[:LEVEL]; may be repeated.",
        ),
    ],
    policy: Annotated[
        str, typer.Option(help="teacher[:QUALITY], openai:MODEL[@URL], hf:PATH, vllm:URL[#MODEL] or replay:FILE.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", help="Run folder; a run that was killed goes on.", metavar="RUN", parser=folder_to_write),
    ],
    policy_option: PolicyOptions = None,
    samples: Annotated[int, typer.Option(min=1, help="Attempts at each problem.")] = 8,
    turns: Annotated[int, typer.Option(min=1, help="Turns of an attempt.")] = 3,
    device: Device = "auto",
    size: Annotated[Literal["small", "full"] | None, typer.Option(help="Size of katas and graphs.")] = None,
    subset: Annotated[str | None, typer.Option(help="Problems by number, for example 1-10,14.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--ids", help="A problem by name; may be repeated.")] = None,
    protocol: Annotated[
        Literal["quick", "standard", "strict"], typer.Option(help="How thoroughly to judge.")
    ] = "standard",
    precision: Annotated[
        Literal["tf32", "ieee"], typer.Option(help="Class of arithmetic that float32 problems allow.")
    ] = "tf32",
    language: Annotated[Literal["triton", "cuda"], typer.Option(help="What kernels are to be written in.")] = "triton",
    baseline: Annotated[Literal["eager", "compile"], typer.Option(help="What prompts and verdicts compare with.")] = (
        "eager"
    ),
    also_compile: Annotated[
        bool, typer.Option("--also-compile", help="Judge what passed against torch.compile too, and report both.")
    ] = False,
    style: Annotated[
        Literal["full", "compact"], typer.Option(help="Prompt: full, or compact for small models trained on it.")
    ] = "full",
    ask_plan: Annotated[bool, typer.Option("--ask-plan", help="Ask for a plan first, as `dojo collect` does.")] = False,
    context: Annotated[
        str,
        typer.Option(
            help="What of earlier turns is in the prompt: everything, summaries[:CHARACTERS], or the best[:TURNS] by "
            "reward, as in best:4."
        ),
    ] = "everything",
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Hard limit of a prompt; earlier turns leave until it holds."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 8192,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the policy's sampling.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of the probability sampled from.")] = 1.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes under way at once.")] = 512,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            help="Search the problems too: best-first, serial, parallel, sequential[:TURNS], or MxN chains as in 4x8; "
            "may be repeated.",
        ),
    ] = None,
    calls: Annotated[
        int | None, typer.Option(min=1, help="Answers of each search.", show_default="16 if nothing else bounds it")
    ] = None,
    verdicts: Annotated[int | None, typer.Option(min=1, help="Answers of each search that are judged.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens that each search generates.")] = None,
    seed: Annotated[int, typer.Option(help="Of the run, and of the bootstrap.")] = 0,
    url: Annotated[str | None, typer.Option(help="Judge at this service instead of on this machine.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Holds the service's token.", metavar="FILE")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Candidates judged at once on this machine.")] = None,
    cache: Cache = None,
    at_least: Annotated[bool, typer.Option("--at-least", help="fast_p asks for at least p, not more than p.")] = False,
    credited: Annotated[
        bool, typer.Option("--credited", help="A measured speedup whose interval contains 1 counts as 1.")
    ] = False,
    allow_degenerate: Annotated[
        bool, typer.Option("--allow-degenerate", help="Judge problems that fail their audit, and say so.")
    ] = False,
) -> None:
    """Play a policy over a suite, write the run folder, its figures and its page, and print the table.

    Exit code 3 if faults of ours ended episodes or searches; starting the same command again goes on with them. Answers
    that cannot be judged (a degenerate problem, a language that the device lacks) are left out and said; exit code 1 if
    there are no others. A problem whose first prompt does not fit is a failure.
    """
    from kerneldojo.episodes import parse_context
    from kerneldojo.report import MetricsConfig, write_all
    from kerneldojo.rollout import RolloutConfig, RunError, RunFolder, play_run

    if also_compile and baseline == "compile":
        raise BadUsage("--also-compile asks for a second baseline, and --baseline compile is the same: leave one out")
    with mendable(ValueError):
        remembered = parse_context(context)
    problems = _problems(suite, size or problem_size(device, is_here=url is None), subset, ids or [])
    limits = {"calls": calls, "verdicts": verdicts, "tokens": tokens}
    searches = plan(strategy or [], limits, problems, out, seed)  # now, not when the whole run has been played
    with own_standard_output() as output:
        play = _play_config(
            language=language,
            device=device,
            num_turns=turns,
            style=style,
            ask_plan=ask_plan,
            context=remembered,
            max_prompt_tokens=max_prompt_tokens,
            max_answer_tokens=max_tokens,
            protocol=protocol,
            baseline=baseline,
            precision=precision,
            allow_degenerate=allow_degenerate,
        )
        executor = open_executor(url, token_file, [device], slots, cache)
        try:
            with mendable(ValueError, ConnectionError):
                episodes = play_run(
                    problems,
                    opened(policy, policy_option),
                    executor,
                    play,
                    RunFolder(out),
                    num_samples=samples,
                    seed=seed,
                    rollout=RolloutConfig(temperature=temperature, top_p=top_p, max_concurrent=concurrency),
                    also_compile=also_compile,
                    opened_as=opened_as(policy, policy_option),
                )
            sampling = {"temperature": temperature, "top_p": top_p}
            num_given_up = search_all(
                searches, lambda: opened(policy, policy_option), executor, play, seed=seed, **sampling
            )
        finally:
            executor.close(drain=False)
        config = MetricsConfig(strictly=not at_least, credited=credited, seed=seed)
        with mendable(RunError):
            metrics = write_all(out, episodes, config)
        show(out, metrics, output)
    exit_on_faults(episodes)
    if num_given_up:
        say(f"searches given up: {num_given_up:,}; start the same command again to go on")
        raise typer.Exit(3)
    if metrics.refusals and metrics.counts.masked_turns == metrics.counts.turns:
        for one in metrics.refusals:
            answers = f"{counted(one.answers, 'answer')} to {counted(one.problems, 'problem')}"
            say(f"{answers} left out, {one.status.replace('_', ' ')}: {one_line(one.first_reason)}")
        raise typer.Exit(1)


def _problems(
    suite: list[str], size: Literal["small", "full"], subset: str | None, ids: Sequence[str]
) -> list[Problem]:
    from kerneldojo.problems.source import ProblemError
    from kerneldojo.problems.suite import Refused, load_suite, none_usable

    refused: list[Refused] = []
    with mendable(ProblemError):
        problems = load_suite(suite, size, refused.append)
    # What is refused is chosen with the others: whoever asks for it learns why, and nobody else is told of it.
    bad = {id(one.problem): one for one in refused}
    chosen = select([*problems, *(one.problem for one in refused)], subset, ids)
    left_out = [bad[id(problem)] for problem in chosen if id(problem) in bad]
    usable = [problem for problem in chosen if id(problem) not in bad]
    if not usable:
        raise BadUsage(none_usable(left_out))
    if left_out:
        say(f"{counted(len(left_out), 'problem')} left out: {one_line(left_out[0].reason)}")
    return usable


def _play_config(**settings: Any) -> PlayConfig:
    from pydantic import ValidationError

    from kerneldojo.episodes import PlayConfig

    try:
        return PlayConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadUsage(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
