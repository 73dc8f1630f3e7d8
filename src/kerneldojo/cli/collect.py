"""`dojo collect POLICY`: play episodes with any policy and record them with their verdicts, to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kerneldojo.cli.arguments import Cache, Device, folder_to_write, mendable
from kerneldojo.cli.faults import exit_on_faults
from kerneldojo.cli.judges import open_executor
from kerneldojo.cli.policies import PolicyOptions, opened, opened_as
from kerneldojo.cli.streams import say
from kerneldojo.cli.text import counted
from kerneldojo.devices import problem_size


def collect_command(
    policy: Annotated[
        str, typer.Argument(help="teacher[:QUALITY], openai:MODEL[@URL], hf:PATH, vllm:URL[#MODEL] or replay:FILE.")
    ],
    suite: Annotated[
        list[str], typer.Option("--suite", help="Problems, for example katas:1 or graphs:train; may be repeated.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            "--output",
            "-o",
            help="Run folder; a run that was killed goes on.",
            metavar="RUN",
            parser=folder_to_write,
        ),
    ],
    policy_option: PolicyOptions = None,
    device: Device = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Episodes a problem.")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="Turns an episode.")] = 1,
    style: Annotated[Literal["full", "compact"], typer.Option(help="Prompt: full, or compact for small models.")] = (
        "full"
    ),
    size: Annotated[Literal["small", "full"] | None, typer.Option(help="Size of katas and graphs.")] = None,
    protocol: Annotated[Literal["quick", "standard", "strict"], typer.Option(help="How thoroughly to judge.")] = (
        "standard"
    ),
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the policy's sampling.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 8192,
    seed: Annotated[int, typer.Option(help="Of the whole collection.")] = 0,
    service: Annotated[
        str | None,
        typer.Option("--url", "--service", help="Judge at this service instead of on this machine.", metavar="URL"),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Holds the service's token.", metavar="FILE")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Candidates judged at once on this machine.")] = None,
    cache: Cache = None,
) -> None:
    """Play episodes with POLICY over the suites and write a run folder, as JSON lines and (with pyarrow) as Parquet.

    Nothing is filtered here: `dojo train sft` chooses by verdict, so that one collection serves several mixtures.
    Exit code 3 if faults of ours ended episodes; starting the same command again goes on with them.
    """
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.problems import load_suite
    from kerneldojo.rollout import RolloutConfig, RunFolder, play_run, write_table
    from kerneldojo.schema import Status

    play = PlayConfig(
        device=device, style=style, num_turns=turns, protocol=protocol, max_answer_tokens=max_tokens, ask_plan=True
    )
    with mendable(ValueError):
        problems = load_suite(suite, size or problem_size(device, is_here=service is None))
        executor = open_executor(service, token_file, [device], slots, cache)
        try:
            episodes = play_run(
                problems,
                opened(policy, policy_option),
                executor,
                play,
                RunFolder(output),
                num_samples=samples,
                seed=seed,
                rollout=RolloutConfig(temperature=temperature),
                opened_as=opened_as(policy, policy_option),
            )
        finally:
            executor.close(drain=False)
        table = write_table(episodes, output)
    turns_played = [turn for episode in episodes for turn in episode.turns]
    counts: dict[str, int] = {}
    for turn in turns_played:
        unjudged = "policy failed" if turn.answer.finish == "failed" else "not parsed"
        name = unjudged if turn.evaluation is None else Status(turn.evaluation.status).value.replace("_", " ")
        counts[name] = counts.get(name, 0) + 1
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    say(f"{counted(len(episodes), 'episode')}, {counted(len(turns_played), 'turn')} in {output}")
    if told:
        say(told)  # A line of its own, or terminals of 80 columns break it within a word.
    if table is None:
        say("turns.parquet was not written: it needs the extra, pip install 'kerneldojo[data]'")
    exit_on_faults(episodes)
