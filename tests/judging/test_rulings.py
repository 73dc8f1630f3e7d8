"""Each way in which hosted code ends has one verdict, and says no more than its author may read."""

from __future__ import annotations

import pytest

from kerneldojo.judging.ends import Died, Failed, HostedEnd, Late, Tampered, Unfinished
from kerneldojo.judging.ruling import exploit, in_source, of_candidate, of_reference, quoted
from kerneldojo.schema import Exploit, Status

ENDS: list[tuple[HostedEnd, Status, str, str]] = [
    (Failed("runtime_error", "ValueError: no"), Status.RUNTIME_ERROR, "round 1: ValueError: no", ""),
    (Failed("compile_error", "NameError", line=2), Status.COMPILE_ERROR, "round 1: NameError (line 2: b = 2)", ""),
    (Failed("out_of_memory", "no room"), Status.OUT_OF_MEMORY, "round 1: no room", ""),
    (Failed("out_of_device_memory", "no room"), Status.OUT_OF_MEMORY, "round 1: no room", "memory"),
    (Late("x"), Status.TIMEOUT, "round 1: not finished in time", ""),
    (
        Unfinished(8.0, is_its_own=True),
        Status.TIMEOUT,
        "round 1: what it had launched did not end within 8 s",
        "",
    ),
    (
        Unfinished(8.0, is_its_own=False),
        Status.TIMEOUT,
        "round 1: what it had launched did not end within 8 s",
        "time",
    ),
    (Died({"cause": "memory"}), Status.OUT_OF_MEMORY, "round 1: it used more memory than it was given", ""),
    (
        Died({"cause": "processes", "signal": 9}),
        Status.RUNTIME_ERROR,
        "round 1: it exceeded its limit of processes and threads",
        "",
    ),
    (
        Died({"cause": "scratch"}),
        Status.RUNTIME_ERROR,
        "round 1: it exceeded its limit of files in its scratch folder",
        "",
    ),
    (Died({"signal": 11}), Status.RUNTIME_ERROR, "round 1: its process was ended by signal 11", ""),
    (Died({"exit_code": 3}), Status.RUNTIME_ERROR, "round 1: its process exited with code 3", ""),
]


@pytest.mark.parametrize(("end", "status", "message", "lacks"), ENDS)
def test_of_a_candidate(end: HostedEnd, status: Status, message: str, lacks: str) -> None:
    ruling = of_candidate(end, "round 1", "a = 1\nb = 2\n")
    assert (ruling.status, ruling.message, ruling.lacks, ruling.exploits) == (status, message, lacks, ())


def test_who_interferes_with_the_channel_is_convicted() -> None:
    ruling = of_candidate(Tampered("a malformed frame"), "round 1")
    assert ruling.status is Status.EXPLOIT
    assert [one.name for one in ruling.exploits] == ["tampering"]
    assert "malformed" not in ruling.message, "what was noticed is not told"


@pytest.mark.parametrize(
    ("end", "text", "lacks"),
    [
        (Failed("runtime_error", "ValueError: no"), "ValueError: no", ""),
        (Failed("out_of_memory", "no room"), "no room", "memory"),
        (Failed("out_of_device_memory", "no room"), "no room", "memory"),
        (Late("x"), "not finished in time", "time"),
        (Died({"cause": "memory"}), "it used more memory than it was given", "memory"),
        (Died({"signal": 11}), "its process was ended by signal 11", ""),
    ],
)
def test_of_a_reference_none_is_the_candidates_fault(end: HostedEnd, text: str, lacks: str) -> None:
    ruling = of_reference(end, "audit")
    assert (ruling.status, ruling.lacks) == (Status.INVALID_PROBLEM, lacks)
    assert ruling.message == f"the reference failed (audit): {text}"


def test_evidence_is_in_the_message_and_beside_it() -> None:
    ruling = exploit("stub", "it did nothing")
    assert ruling.message == "exploit (stub): it did nothing"
    assert ruling.exploits == (Exploit(name="stub", evidence="it did nothing"),)


def test_a_line_is_quoted_from_the_judges_own_copy() -> None:
    source = "first\n  second\u202e \x1b[31m\n" + 200 * "x"
    assert quoted(source, 1) == " (line 1: first)"
    assert quoted(source, 2) == " (line 2: second   [31m)", "nothing that turns a terminal's text around"
    assert quoted(source, 3) == f" (line 3: {160 * 'x'} [...])"
    assert quoted(160 * "x", 1) == f" (line 1: {160 * 'x'})"
    assert [quoted(source, line) for line in (-1, 0, 4)] == ["", "", ""]


def test_a_name_that_was_made_at_run_time_is_not_repeated() -> None:
    source = "def outer():\n    def kernel(): ..."
    assert in_source("outer.<locals>.kernel", source) == "outer.<locals>.kernel"
    for name in ("outer.secret", "secret.kernel", "kernel()", "def outer"):
        assert in_source(name, source) == ""
