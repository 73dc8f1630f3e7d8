"""How hosted code ends a session: each way is an exception, all of them data for a verdict, except our own faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from kerneldojo.contestant.kinds import Kind

LONGEST_SECONDS = 1e6
"""No command may take as long."""


class Infrastructure(Exception):
    """A fault of ours: the only kind that is retried, and never scored."""


class HostedEnd(Exception):
    """Hosted code ended a session in one of the ways below."""


E = TypeVar("E", bound=BaseException)


def frameless(error: E) -> E:
    """An exception without the frames that it has come through, for a context manager that raises another in its place.

    From Python 3.12 on the frame of such a generator knows who called it: `contextlib`, in a frame that knows the
    exception, which knows the generator's. In that circle all callers' frames would wait for a garbage collector, with
    whatever they were comparing.
    """
    return error.with_traceback(None)


class Failed(HostedEnd):
    """It raised. `kind` and `text` are as `contestant.failure` describes them."""

    def __init__(self, kind: str, text: str, line: int = 0, specializations: Any = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.line = line
        """Line of the hosted source at which it happened; 0 if none."""
        self.specializations = specializations
        """Signatures of what it had launched until then, a claim: what failed may be what does not compile."""


class Died(HostedEnd):
    """Its process ended by itself."""

    def __init__(self, ended: Mapping[str, Any]) -> None:
        self.signal: int | None = ended.get("signal")
        self.exit_code: int | None = ended.get("exit_code")
        self.cause = str(ended.get("cause", ""))
        """Which limit ended it, as `contestant.sandbox.Cause` names it."""
        super().__init__(f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}")


class Late(HostedEnd):
    """It did not answer by its deadline, and was killed."""


class Unfinished(Late):
    """The device did not get done with what had been launched while nothing more was, and it was killed."""

    def __init__(self, seconds: float, *, is_its_own: bool) -> None:
        super().__init__(f"the device was still at work {seconds:.1f} s after the last launch")
        self.seconds = seconds
        """How long it was waited for."""
        self.is_its_own = is_its_own
        """Whether the device was done once it was dead; else it was another's work."""


class Tampered(HostedEnd):
    """It does not keep to the protocol, which the runner of ours inside it would."""


def seconds_of(value: Any) -> float:
    """A duration that a hosted process told; zero where it told none.

    Raises:
        Tampered: it is no duration.
    """
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        raise Tampered("a malformed duration")
    return float(value)


def readable(text: Any, limit: int) -> str:
    """What a hosted process wrote, fit to be shown and stored: no half characters, nothing that orders other text."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in str(text)[:limit])


def failed(failure: Any, specializations: Any) -> HostedEnd:
    """The end that a described failure is; one that is malformed is tampering."""
    if not isinstance(failure, dict):
        return Tampered("a malformed failure")
    kind, text = str(failure.get("kind")), failure.get("text")
    if kind not in get_args(Kind):
        return Tampered("an unknown kind of failure")
    line = failure.get("line")
    return Failed(kind, readable(text, 1000), line if isinstance(line, int) else 0, specializations)
