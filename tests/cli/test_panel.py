from __future__ import annotations

import io
import re

import pytest
from evaluations import HOSTILE, exploit, failed, hostile, measured, modelled, untimed
from rich.cells import cell_len
from rich.console import Console

from kerneldojo.cli.panel import MAX_KERNELS, MEANING, outcome, panel, speedup_interval
from kerneldojo.schema import Evaluation, KernelTime, Status, Timing
from kerneldojo.schema.evaluation import CAUSE_UNSHOWN

WIDTHS = (80, 120)


def drawn(evaluation: Evaluation, width: int = 80, *, colour: bool = False, title: str = "k.py for r.py") -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None).print(
        panel(evaluation, title=title)
    )
    return stream.getvalue()


def words(text: str) -> str:
    """The text without frame and line breaks, so that sentences can be looked for however they were wrapped."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_said_in_words_and_fits_the_width(status: Status, width: int) -> None:
    text = drawn(failed(status), width)
    assert status.value.upper().replace("_", " ") in text
    assert MEANING[status][1] in words(text)
    assert all(cell_len(line) == width for line in text.splitlines())
    if status not in (Status.PASSED, Status.EXPLOIT):
        assert f"the message for {status.value}" in words(text)


def test_who_passes_where_no_cause_could_be_shown_is_not_said_to_have_a_part_in_it() -> None:
    known = measured()
    text = words(drawn(known.model_copy(update={"notes": (*known.notes, CAUSE_UNSHOWN)}), 120))
    assert "whether its own kernels have a part in it nobody can say" in text
    assert CAUSE_UNSHOWN in text
    assert MEANING[Status.PASSED][1] not in text
    assert MEANING[Status.PASSED][1] in words(drawn(known, 120))


def test_a_measured_pass_shows_speedup_interval_bars_limit_coverage_and_kernels() -> None:
    text = words(drawn(measured(), 120))
    assert "2.00× as fast as eager PyTorch (95 % interval 1.90× to 2.10×)" in text
    assert "40.0 µs, 100 trials" in text
    assert "75% of the limit, 30.0 µs (memory)" in text
    assert "98% of device time in own kernels" in text
    assert "● biased_softmax" in text
    assert "○ void at::native" in text
    assert "2 launches" in text
    assert "the first call took 812 ms" in text
    assert "judged in 1.10 s: build 0.40 s · rounds 0.60 s" in text
    assert "modelled" not in text


def test_bars_are_as_long_as_the_times_that_they_show() -> None:
    lengths = {
        line.split()[1]: line.count("█")
        for line in drawn(measured(), 120).splitlines()
        if " kernel " in line or "reference " in line
    }
    assert lengths["reference"] == pytest.approx(2 * lengths["kernel"], abs=1)


@pytest.mark.parametrize("width", WIDTHS)
def test_modelled_figures_are_called_modelled_wherever_they_stand(width: int) -> None:
    text = words(drawn(modelled(), width))
    assert "Speed, modelled (not measured)" in text
    assert "(modelled: a roofline, for development only)" in text
    assert "40.0 µs modelled" in text
    assert "80.0 µs modelled" in text
    assert "Where the time went, modelled" in text
    assert "model:h100, modelled" in text
    assert "interval" not in text


def test_a_cpu_verdict_says_that_there_are_no_times_and_shows_none() -> None:
    text = words(drawn(untimed()))
    assert "No times: Triton's interpreter on a CPU has none" in text
    assert not re.search(r"\d (s|ms|µs)\b", text)
    assert "×" not in text
    assert "█" not in text


def test_an_exploit_shows_its_evidence_and_what_a_naive_evaluator_would_have_paid() -> None:
    text = words(drawn(exploit()))
    assert "no_causal_kernel" in text
    assert "The answer is right without its own kernels." in text
    assert (
        "A naive evaluator would have called it correct and credited it with 361×; here that counts for nothing."
        in text
    )
    timed = measured().model_copy(update={"message": "correct in every round; 2.00x the speed of the reference"})
    assert drawn(timed) == drawn(measured())
    repeated = exploit().model_copy(update={"message": f"exploit: {exploit().exploits[0].evidence}"})
    assert words(drawn(repeated)) == text
    assert outcome(exploit()) == "The answer is right without its own kernels."


@pytest.mark.parametrize("width", WIDTHS)
def test_text_from_a_candidate_reaches_the_terminal_spelled_out(width: int) -> None:
    text = drawn(hostile(), width, title=HOSTILE)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert r"\x1b[2J" in text
    assert r"\u202e" in words(text)
    assert "[bold green]ok[/bold green]" in words(text)
    assert all(cell_len(line) == width for line in text.splitlines())


def test_with_colour_the_only_escapes_are_our_own_styles() -> None:
    text = drawn(hostile(), colour=True, title=HOSTILE)
    assert re.search(r"\x1b\[[0-9;]+m", text)
    assert all(character.isprintable() or character == "\n" for character in re.sub(r"\x1b\[[0-9;]*m", "", text))


def test_an_unknown_coverage_is_said_and_never_drawn_as_zero() -> None:
    text = words(drawn(measured().model_copy(update={"coverage": None})))
    assert "coverage unknown" in text
    assert "0% of device time" not in text


def test_many_kernels_are_added_up_and_a_message_of_any_length_is_cut() -> None:
    kernels = tuple(KernelTime(name=f"k{index}", device_ms=1.0) for index in range(MAX_KERNELS + 5))
    text = words(drawn(measured().model_copy(update={"kernels": kernels})))
    assert "5 more" in text
    long = Evaluation(status=Status.RUNTIME_ERROR, message="x" * 100_000)
    assert "characters more" in words(drawn(long))
    assert len(drawn(long)) < 10_000


def test_the_interval_of_the_speedup_takes_both_times_at_their_worst() -> None:
    low, high = speedup_interval(measured()) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.078 / 0.041), pytest.approx(0.082 / 0.039))
    assert speedup_interval(measured().model_copy(update={"reference_timing": Timing()})) is None


def test_an_ascii_terminal_gets_bars_of_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    Console(file=stream, width=80).print(panel(measured()))
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "####" in text
    assert "2.00" in text
