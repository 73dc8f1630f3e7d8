"""Rooms for the sandbox's tests: run one function inside, and get back what it returned or the errno it met."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kerneldojo.contestant.sandbox import (
    Contained,
    Ended,
    Features,
    Limits,
    Policy,
    Porter,
    launch,
    linux,
    probe,
    toolchain,
)

PORTER = Porter()
"""Forks keepers wherever the features allow that; `FORKED` does not."""
HOST = probe()
FORKED = dataclasses.replace(HOST, guests=False)
"""Everything that the host offers, with keepers and contestants forked one from the other."""
BARE = Features(pidfd=HOST.pidfd)
"""No measure at all: where an attack must work, or the test of it proves nothing."""
IS_ROOT = os.geteuid() == 0


def only(*names: str) -> Features:
    """The host's features reduced to those named."""
    wanted = {name: getattr(HOST, name) for name in names}
    if any(way == "user" for way in wanted.values()):
        wanted["user_namespace"] = True
    return dataclasses.replace(BARE, **wanted)


def has(*names: str) -> bool:
    return all(getattr(HOST, name) for name in names)


@dataclasses.dataclass(frozen=True)
class Outcome:
    value: Any
    errno: str | None
    ended: Ended

    @property
    def refused(self) -> bool:
        return self.errno is not None


def start(main: Callable[[], None], scratch: Path, features: Features = HOST, **fields: Any) -> Contained:
    fields.setdefault("readable", toolchain())
    fields.setdefault("limits", Limits(deadline_seconds=60))
    return launch(main, Policy(scratch=scratch, **fields), features, PORTER)


def inside(attempt: Callable[[], Any], scratch: Path, features: Features = HOST, **fields: Any) -> Outcome:
    """Run `attempt` as the contestant; an `OSError` that it meets is an answer, anything else it raises a failure."""
    reading, writing = os.pipe()

    def main() -> None:
        try:
            answer = {"value": attempt(), "errno": None}
        except OSError as error:
            answer = {"value": None, "errno": errno.errorcode[error.errno or 0]}
        os.write(writing, json.dumps(answer).encode())

    keep = (*fields.pop("keep_fds", ()), writing)
    contained = start(main, scratch, features, keep_fds=keep, **fields)
    os.close(writing)
    try:
        text = b"".join(iter(lambda: os.read(reading, 65536), b""))
        ended = contained.result()
    finally:
        os.close(reading)
    assert text, f"the attempt did not answer: {ended}"
    return Outcome(**json.loads(text), ended=ended)


def raw(number: int, *arguments: Any) -> int:
    return linux.syscall(number, *arguments)


SECRET = b"the judge's seed is 20261"


@dataclasses.dataclass(frozen=True)
class Victim:
    """A process of our user without capabilities (so that only the sandbox protects it) with a secret in memory."""

    pid: int
    address: int


@contextmanager
def victim() -> Iterator[Victim]:
    buffer = ctypes.create_string_buffer(SECRET)
    gate_in, gate_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.drop_capabilities()
        os.write(gate_out, b"!")
        while True:
            time.sleep(60)
    os.read(gate_in, 1)
    try:
        yield Victim(pid, ctypes.addressof(buffer))
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(gate_in)
        os.close(gate_out)


def as_ordinary_user(work: Callable[[Path], Any]) -> Any:
    """Call `work(scratch)` in a fork that is an ordinary user, whatever we are; returns its JSON-able result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer: dict[str, Any] = {}
        try:
            os.close(reading)
            if IS_ROOT:
                os.setgroups([])
                os.setresgid(12345, 12345, 12345)
                os.setresuid(12345, 12345, 12345)
                linux.prctl(linux.PR_SET_DUMPABLE, 1)  # as after any exec; the change of user cleared it
            with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
                answer["value"] = work(Path(folder))
        except BaseException:
            answer["fault"] = traceback.format_exc()
        finally:
            with os.fdopen(writing, "w") as out:
                json.dump(answer, out)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = json.load(answers)
    os.waitpid(pid, 0)
    assert "fault" not in answer, answer["fault"]
    return answer["value"]
