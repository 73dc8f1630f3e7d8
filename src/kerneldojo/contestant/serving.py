"""A hosted process from its first moment to its last: it moves in, and answers commands until the door is closed."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path
from typing import Any, NoReturn

from kerneldojo.contestant.flavours import open_platform
from kerneldojo.contestant.kinds import Failure
from kerneldojo.contestant.runner import Runner
from kerneldojo.contestant.source import parse
from kerneldojo.contestant.wire import Channel, ChannelClosed
from kerneldojo.contestant.workshop import Line

IDLE_SECONDS = 3600.0
"""A contestant that hears nothing for so long ends."""


def main(
    flavour: str, door_fd: int, arena_fds: list[int], scratch: Path, device: str, workshop: Line | None = None
) -> None:
    """Serve the judge until it closes the door."""
    gc.enable()  # The fork server had it off; see there.
    _move_in(scratch)
    channel = Channel(socket.socket(fileno=door_fd))
    try:
        first: dict[str, Any] | None = None
        if flavour == "cuda":  # Not even a platform for a source that is not Python.
            first = channel.receive(IDLE_SECONDS)
            if first["op"] == "parse":
                answer = parse(first, str(scratch / "candidate.py"))
                channel.send(answer, timeout=IDLE_SECONDS)
                if "failure" in answer:
                    return
                first = None
        _answer_all(channel, Runner(open_platform(flavour, arena_fds, device, workshop), scratch), first)
    except ChannelClosed:
        return


def _move_in(scratch: Path) -> None:
    """Have whatever is written by habit written there."""
    (scratch / "home").mkdir(exist_ok=True)  # The others are made by whoever uses them: few candidates do.
    os.environ.update(
        TMPDIR=str(scratch / "tmp"),
        HOME=str(scratch / "home"),
        TRITON_CACHE_DIR=str(scratch / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"),  # torch sets it by itself, to where the fork server was.
        TORCH_EXTENSIONS_DIR=str(scratch / "extensions"),
    )
    os.chdir(scratch / "home")


def _answer_all(channel: Channel, runner: Runner, first: dict[str, Any] | None) -> NoReturn:
    """Carry out command after command, `first` before others if it has come; raises `ChannelClosed`."""
    command = first
    while True:
        command = command or channel.receive(IDLE_SECONDS)
        if descriptors := channel.take_descriptors():
            command["descriptors"] = descriptors
        answer = runner.answer(command)
        try:
            channel.send(answer, timeout=IDLE_SECONDS)
        except ValueError as error:  # A call of too many operations: its failure, and not the channel's end.
            failure: Failure = {"kind": "runtime_error", "text": f"too much to tell: {error}", "line": 0}
            channel.send({"number": answer["number"], "failure": failure}, timeout=IDLE_SECONDS)
        command = None
