"""How judging ends early: a ruling, raised where the decisive fact is seen and caught where the verdict is written."""

from __future__ import annotations

from typing import Literal

from kerneldojo.judging.ends import Died, Failed, HostedEnd, Late, Tampered, Unfinished
from kerneldojo.schema import Exploit, Status

LIMITS = {"processes": "processes and threads", "scratch": "files in its scratch folder"}


class Ruling(Exception):
    """A status with what the candidate's author may read.

    Args:
        status: the verdict.
        message: one or a few lines from a whitelist; nothing secret.
        exploits: evidence, exactly when the status is `EXPLOIT`.
        max_error: the error that decided, in units of the tolerance, where it was one.
        lacks: what of the device's there was too little of here, where that is why it came out so: for a problem that
            cannot be judged, or a candidate that got no more device memory, or that a device was not done for in time.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        exploits: tuple[Exploit, ...] = (),
        *,
        max_error: float | None = None,
        lacks: Literal["", "memory", "time"] = "",
    ) -> None:
        super().__init__(message)
        self.lacks: Literal["", "memory", "time"] = lacks
        self.max_error = max_error
        self.status = status
        self.message = message
        self.exploits = exploits


def exploit(name: str, evidence: str) -> Ruling:
    """The ruling for one piece of evidence."""
    return Ruling(Status.EXPLOIT, f"exploit ({name}): {evidence}", (Exploit(name=name, evidence=evidence),))


def quoted(source: str, line: int) -> str:
    """A line of a source for a message, from the judge's own copy; empty if there is no such line."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    text = "".join(char if char.isprintable() else " " for char in lines[line - 1].strip())
    return f" (line {line}: {text if len(text) <= 160 else text[:160] + ' [...]'})"


def in_source(name: str, source: str) -> str:
    """A kernel's name if all its parts stand in the source, else nothing: one made at run time can spell anything."""
    parts = [part for part in name.split(".") if part != "<locals>"]
    return name if all(part.isidentifier() and part in source for part in parts) else ""


def of_candidate(end: HostedEnd, stage: str, source: str = "") -> Ruling:
    """What it means that a contestant ended a session while it was at `stage`; `source` is the candidate's."""
    if isinstance(end, Failed):
        text = f"{stage}: {end.text}{quoted(source, end.line)}"
        if end.kind == "out_of_device_memory":
            return Ruling(Status.OUT_OF_MEMORY, text, lacks="memory")
        return Ruling(Status(end.kind), text)
    if isinstance(end, Unfinished):
        reason = f"what it had launched did not end within {end.seconds:.0f} s"
        return Ruling(Status.TIMEOUT, f"{stage}: {reason}", lacks="" if end.is_its_own else "time")
    if isinstance(end, Late):
        return Ruling(Status.TIMEOUT, f"{stage}: not finished in time")
    if isinstance(end, Tampered):
        return exploit("tampering", f"it interfered with the channel to the judge ({stage})")
    assert isinstance(end, Died)
    if end.cause == "memory":
        return Ruling(Status.OUT_OF_MEMORY, f"{stage}: it used more memory than it was given")
    if end.cause in ("processes", "scratch"):
        return Ruling(Status.RUNTIME_ERROR, f"{stage}: it exceeded its limit of {LIMITS[end.cause]}")
    how = f"was ended by signal {end.signal}" if end.signal else f"exited with code {end.exit_code}"
    return Ruling(Status.RUNTIME_ERROR, f"{stage}: its process {how}")


def of_reference(end: HostedEnd, stage: str) -> Ruling:
    """What it means that the reference runner ended: the problem cannot be judged."""
    text = end.text if isinstance(end, Failed) else of_candidate(end, stage).message.removeprefix(f"{stage}: ")
    return Ruling(Status.INVALID_PROBLEM, f"the reference failed ({stage}): {text}", lacks=_lack(end))


def _lack(end: HostedEnd) -> Literal["", "memory", "time"]:
    if isinstance(end, Late):
        return "time"
    if isinstance(end, Failed):
        return "memory" if end.kind in ("out_of_memory", "out_of_device_memory") else ""
    return "memory" if isinstance(end, Died) and end.cause == "memory" else ""
