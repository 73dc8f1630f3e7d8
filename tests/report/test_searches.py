"""Searches beside a run: their records survive a killed writer, and their curves say what was announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldojo.report.budgets import MEASURES
from kerneldojo.report.searches import search_curves, search_figures
from kerneldojo.search import Budget, Spent
from kerneldojo.search.record import SearchRecord, append, read


def record(strategy: str, problem: str, *speedups: float, seed: int = 0) -> SearchRecord:
    return SearchRecord(
        strategy=strategy,
        policy="teacher:mixture",
        problem=problem,
        problem_hash=problem,
        seed=seed,
        budget=Budget(calls=len(speedups)),
        spent=Spent(calls=len(speedups)),
        speedups=speedups,
        speedup=speedups[-1] or None,
    )


def test_an_unfinished_line_is_cut_and_nothing_else_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "searches.jsonl"
    first, second = record("serial", "a", 0.0, 1.5), record("serial", "b", 1.0, 2.0)
    append(first, path)
    with path.open("ab") as file:
        file.write(b'{"strategy": "ser')
    assert list(read(path)) == [first]
    append(second, path)
    assert list(read(path)) == [first, second]
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(ValueError, match="line 1 is no record"):
        list(read(path))


def test_curves_are_means_over_the_problems_that_all_strategies_searched() -> None:
    records = [
        record("serial", "a", 0.0, 1.5),
        record("serial", "b", 1.0, 3.0),
        record("serial", "c", 9.0, 9.0),  # the other strategy did not search it
        record("parallel", "a", 0.5, 0.5),
        record("parallel", "b", 2.0, 2.0, seed=0),
        record("parallel", "b", 4.0, 4.0, seed=1),  # two searches of one problem count as their mean
    ]
    serial, parallel = search_curves(records, MEASURES)
    assert [point.calls for point in serial.points] == [1, 2]
    correct, fast, mean = serial.points[0].figures
    assert (correct.value, fast.value, mean.value) == (0.5, 0.0, 0.5)
    assert [figure.value for figure in serial.points[1].figures] == [1.0, 1.0, 2.25]
    assert parallel.points[1].figures[2].value == (0.5 + 3.0) / 2
    assert mean.low is not None and mean.high is not None and mean.low <= 0.5 <= mean.high
    assert search_curves([], MEASURES) == []


def test_figures_and_costs_of_searches() -> None:
    tokens = {"tokens": (100, 300), "verdicts": (1, 2), "spent": Spent(calls=2, verdicts=2, tokens=300, dollars=0.5)}
    records = [
        record("serial", name, *speeds).model_copy(update=tokens)
        for name, *speeds in (("a", 0.0, 1.5), ("b", 1.1, 0.0))
    ]
    degenerate = record("serial", "c", 0.0).model_copy(update={"refused": "the problem is degenerate"})
    (found,) = search_figures([*records, degenerate], (0.0, 1.0, 1.2))
    assert (found.searches, found.problems, found.best, found.budget) == (2, 2, 1.5, Budget(calls=2))
    assert [(one.name, one.p, one.value) for one in found.figures] == [
        ("correct", None, 0.5),
        ("fast", 0.0, 0.5),
        ("fast", 1.0, 0.5),
        ("fast", 1.2, 0.5),
        ("speedup mean", None, 0.75),
    ]
    assert (found.cost.calls, found.cost.answer_tokens, found.cost.dollars) == (4, 600, 1.0)
    (curve,) = search_curves(records, MEASURES)
    assert [(point.calls, point.verdicts, point.tokens) for point in curve.points] == [(1, 1, 100), (2, 2, 300)]


def test_a_search_that_ended_sooner_stays_where_it_is_and_older_records_have_calls_alone() -> None:
    by_tokens = Budget(calls=None, tokens=250)
    long = record("serial", "a", 0.0, 1.5, 2.0).model_copy(update={"budget": by_tokens, "tokens": (100, 200, 300)})
    short = record("serial", "b", 1.0).model_copy(update={"budget": by_tokens, "tokens": (250,)})
    (curve,) = search_curves([long, short], MEASURES)
    assert [(point.calls, point.tokens, point.figures[2].value) for point in curve.points] == [
        (1, 175, 0.5),
        (2, 225, 1.25),
        (3, 275, 1.5),
    ]
    assert all(point.verdicts is None for point in curve.points)
