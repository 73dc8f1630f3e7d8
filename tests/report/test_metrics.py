from __future__ import annotations

import math
import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import episode, run, turn, verdict

from kerneldojo.episodes import PlayConfig
from kerneldojo.report import (
    Metrics,
    MetricsConfig,
    NotComparable,
    compare,
    measure,
    read_run,
    sampling_of,
    write_all,
)
from kerneldojo.report.bootstrap import Bootstrap
from kerneldojo.report.page import _fast_curves
from kerneldojo.rollout import Manifest, RunFolder
from kerneldojo.schema import Episode

QUICK = MetricsConfig(num_draws=200)
outcomes = st.one_of(
    st.floats(0.1, 9.0),
    st.sampled_from(["incorrect", "exploit", "compile_error", "no_code", "timeout", "infrastructure_error", "failed"]),
)


@st.composite
def runs(draw: st.DrawFn) -> list[Episode]:
    episodes: list[Episode] = []
    for number in range(draw(st.integers(1, 4))):
        for sample in range(draw(st.integers(1, 4))):
            episodes.append(episode(f"kata_{number}", sample, draw(st.lists(outcomes, min_size=1, max_size=3))))
    return episodes


def value(metrics: Metrics, name: str, **wanted: object) -> float | None:
    figure = metrics.find(name, **wanted)  # type: ignore[arg-type]
    assert figure is not None, (name, wanted)
    return figure.value


@settings(max_examples=40, deadline=None)
@given(runs())
def test_figures_agree_with_each_other(episodes: list[Episode]) -> None:
    metrics = measure(episodes, QUICK)
    for last in ("last turn", "best of history"):
        fast = [value(metrics, "fast", p=p, turn=last) for p in QUICK.thresholds]
        assert fast[0] == value(metrics, "correct", turn=last)
        known = [one for one in fast if one is not None]
        assert known == sorted(known, reverse=True)
        geometric = value(metrics, "speedup geometric", failures="left out", turn=last)
        arithmetic = value(metrics, "speedup mean", failures="left out", turn=last)
        assert geometric is None or geometric <= arithmetic + 1e-9  # type: ignore[operator]
    best, final = value(metrics, "correct", turn="best of history"), value(metrics, "correct")
    assert best is None or best >= final  # type: ignore[operator]
    for figure in metrics.figures:
        if figure.value is not None:
            assert math.isfinite(figure.value)
            is_share = figure.name in ("correct", "fast")
            if figure.low is None or figure.high is None:  # of one problem alone, or of speedups that are all alike
                assert figure.low is figure.high
                assert figure.unit == "sample" or figure.count == 1 or not is_share
                continue
            assert figure.low <= figure.high
            if is_share:
                assert 0 <= figure.low <= figure.value <= figure.high <= 1
                assert figure.low < figure.high, "no number of problems leaves no doubt"
            assert metrics.counts.problems > 1 and figure.count > 1
    assert metrics == measure(episodes, QUICK)
    assert Metrics.model_validate_json(metrics.model_dump_json()) == metrics


@pytest.mark.parametrize(("solved", "expected"), [(1.0, (0.631, 1.0)), (0.0, (0.0, 0.369)), (0.5, (0.315, 0.685))])
def test_problems_that_are_all_alike_do_not_exclude_others(solved: float, expected: tuple[float, float]) -> None:
    """Clopper and Pearson's interval for 8 of 8, and for none of 8."""
    import numpy as np

    draws, ones = Bootstrap(8), np.ones(8)
    about = partial(pytest.approx, abs=1e-3)
    assert draws.ratio(ones * solved, ones, bounds=(0.0, 1.0)) == about((solved, *expected))
    assert draws.ratio(ones * 3 * solved, ones) == (3 * solved, None, None)
    assert draws.ratio(ones * 0.0, ones, bounds=(-1.0, 1.0)) == about((0.0, -0.369, 0.369))
    more = Bootstrap(100).ratio(np.full(100, solved), np.ones(100), bounds=(0.0, 1.0))
    assert more is not None and more[1] is not None and more[2] is not None
    assert more[2] - more[1] == about(0.0362)


def test_fast_is_strict_as_kernelbench_scores_and_a_lazy_answer_is_not_faster() -> None:
    episodes = [episode("a", 0, [1.0]), episode("a", 1, [1.2]), episode("a", 2, ["incorrect"]), episode("a", 3, [3.0])]
    assert value(measure(episodes, QUICK), "fast", p=1.0) == 0.5
    assert value(measure(episodes, QUICK), "fast", p=1.2) == 0.25
    lenient = measure(episodes, MetricsConfig(strictly=False, num_draws=200))
    assert value(lenient, "fast", p=1.0) == 0.75
    assert value(lenient, "fast", p=1.2) == 0.5


def test_means_of_speedups_by_hand() -> None:
    metrics = measure([episode("a", 0, [2.0]), episode("a", 1, [8.0]), episode("b", 0, ["timeout"])], QUICK)
    assert value(metrics, "speedup mean", failures="zero") == pytest.approx(10 / 3)
    assert value(metrics, "speedup mean", failures="left out") == pytest.approx(5.0)
    assert value(metrics, "speedup geometric", failures="left out") == pytest.approx(4.0)
    assert value(metrics, "speedup geometric", failures="one") == pytest.approx(16 ** (1 / 3))
    assert value(metrics, "speedup geometric", failures="zero") == 0.0


def test_per_sample_and_per_problem_differ_and_say_so() -> None:
    # Kevin's table counts problems with one good trajectory among k, Dr. Kernel's counts samples.
    episodes = [episode("a", sample, [2.0 if sample == 0 else "incorrect"]) for sample in range(4)]
    episodes += [episode("b", sample, ["incorrect"]) for sample in range(4)]
    metrics = measure(episodes, QUICK)
    sample, problem = (
        metrics.find("correct"),
        metrics.find("correct", unit="problem", aggregate="best", k=4, turn="best of history"),
    )
    assert sample is not None
    assert problem is not None
    assert (sample.value, sample.unit, sample.count) == (1 / 8, "sample", 8)
    assert (problem.value, problem.unit, problem.count) == (1 / 2, "problem", 2)
    assert value(metrics, "correct", unit="problem", aggregate="best", k=2) == pytest.approx(1 / 4)
    assert value(metrics, "correct", unit="problem", aggregate="average", k=4) == pytest.approx(1 / 8)
    speed = value(metrics, "speedup mean", failures="zero", unit="problem", aggregate="best", k=4)
    assert speed == pytest.approx(1.0)  # "performance": best speedup, 0 where all fail, mean over problems


def test_turns_are_chosen_as_named() -> None:
    metrics = measure([episode("a", 0, [1.5, 3.0, "incorrect"])], QUICK)
    found = {
        turn_: value(metrics, "speedup mean", failures="zero", turn=turn_)
        for turn_ in ("turn 1", "turn 2", "turn 3", "last turn", "best of history", "best of turns 1-1")
    }
    assert list(found.values()) == [1.5, 3.0, 0.0, 0.0, 3.0, 1.5]


def test_our_faults_are_masked_and_counted_and_an_answer_without_code_is_a_failure() -> None:
    episodes = [
        episode("a", 0, [2.0, "failed"]),
        episode("a", 1, ["infrastructure_error"]),
        episode("a", 2, ["no_code"]),
    ]
    metrics = measure(episodes, QUICK)
    assert metrics.counts.masked_turns == 2
    assert metrics.counts.cut_episodes == 1
    correct = metrics.find("correct")
    assert correct is not None
    assert (correct.value, correct.count) == (0.5, 2)


def test_an_attempt_whose_first_prompt_does_not_fit_is_a_failure_in_every_figure() -> None:
    cut = [episode("b", sample, [], finish="budget") for sample in range(2)]
    episodes = [episode("a", 0, [2.0, 3.0]), episode("a", 1, [2.0], finish="budget"), *cut]
    metrics = measure(episodes, QUICK)
    counts = metrics.counts
    assert (counts.turns, counts.cut_episodes, counts.too_long_samples, counts.too_long_problems) == (3, 3, 2, 1)
    for turn_ in ("turn 1", "last turn", "best of history"):
        assert value(metrics, "correct", turn=turn_) == 0.5
        assert value(metrics, "fast", p=1.0, turn=turn_) == 0.5
    assert value(metrics, "correct", turn="turn 2") == pytest.approx(1 / 3)  # the other cut one was not played so far
    assert value(metrics, "correct", unit="problem", aggregate="best", k=2, turn="best of history") == 0.5
    assert "prompt_too_long" not in {one.name for one in metrics.statuses}
    only = measure(cut, QUICK)
    assert (value(only, "correct"), only.counts.turns_each, only.budgets) == (0.0, 0, ())
    (pair,) = compare(cut, [episode("b", 0, [2.0])], config=QUICK).problems
    assert (pair.correct_a, pair.winner) == (0.0, "b")


def test_without_times_there_are_no_speedups_but_correctness() -> None:
    metrics = measure([episode("a", 0, ["untimed"]), episode("a", 1, ["incorrect"])], QUICK)
    assert value(metrics, "fast", p=0.0) == 0.5
    assert value(metrics, "speedup mean", failures="left out") is None
    assert metrics.timing_sources == ()
    # The failure alone would make fast_1 and the mean 0, and the geometric mean 1: figures that nobody measured.
    of_speed = [one for one in metrics.figures if one.name != "correct" and one.p != 0]
    assert of_speed and all(one.value is None and one.count == 0 for one in of_speed)
    names = {one.name for one in compare([episode("a", 0, ["untimed"])], [episode("a", 0, ["incorrect"])]).differences}
    assert names == {"correct"}
    assert value(measure([episode("a", 0, ["incorrect"])], QUICK), "fast", p=1.0) == 0.0


def test_a_run_says_what_is_missing_of_it(tmp_path: Path) -> None:
    played = [episode("a", 0, [2.0]), episode("a", 1, [1.0]), episode("b", 0, ["failed"]), episode("b", 1, [3.0])]
    manifest = Manifest(settings={"num_samples": 2}, problems={name: name for name in ("a", "b", "c")})
    with RunFolder(tmp_path).open(manifest) as folder:
        for one in played:
            folder.add_episode(one)
    metrics = write_all(tmp_path, read_run(tmp_path), QUICK)
    assert (metrics.counts.episodes, metrics.counts.planned_episodes, metrics.counts.num_missing) == (4, 6, 2)
    assert (metrics.num_complete_problems, metrics.counts.problems) == (1, 2)
    assert measure(played, QUICK).counts.num_missing == 0


def test_the_page_draws_fast_p_as_the_figures_have_it(tmp_path: Path) -> None:
    played = [episode("a", 0, [1.0]), episode("a", 1, ["untimed"]), episode("a", 2, ["incorrect"])]
    for strictly in (True, False):
        metrics = measure(played, QUICK.model_copy(update={"strictly": strictly}))
        drawn = _fast_curves(played, metrics.config)
        assert drawn["last turn"][drawn["p"].index(1.0)] == value(metrics, "fast", p=1.0) == (0.0 if strictly else 0.5)


def test_a_problem_that_one_run_has_masked_answers_of_is_won_by_nobody() -> None:
    a = [episode("a", 0, [2.0]), episode("b", 0, [2.0])]
    b = [episode("a", 0, ["failed"]), episode("b", 0, [1.0])]
    found = compare(a, b, config=QUICK)
    assert found.unscored == ("katas/1/a",) and found.wins == {"a": 1, "b": 0, "tie": 0}
    assert [one.problem for one in found.problems] == ["katas/1/b"]


def test_exploits_statuses_and_coverage() -> None:
    metrics = measure([episode("a", 0, ["exploit", 2.0]), episode("b", 0, ["exploit", "timeout"])], QUICK)
    assert [(one.name, one.count, one.share) for one in metrics.exploits] == [("no_causal_kernel", 2, 0.5)]
    assert metrics.statuses_by_turn == ({"exploit": 2}, {"passed": 1, "timeout": 1})
    assert metrics.coverage.mean == pytest.approx(0.9)


def test_budgets_set_serial_beside_parallel_under_equal_calls() -> None:
    metrics = measure([episode("a", 0, [1.0, 4.0]), episode("a", 1, [2.0, "incorrect"])], QUICK)
    parallel, serial, both = metrics.budgets
    assert [(point.calls, point.figures[2].value) for point in parallel.points] == [(1, 1.5), (2, 2.0)]
    assert [(point.calls, point.figures[2].value) for point in serial.points] == [(1, 1.5), (2, 3.0)]
    assert [(point.calls, point.figures[2].value) for point in both.points] == [(2, 3.0), (4, 4.0)]
    assert [(point.verdicts, point.tokens) for point in serial.points] == [(1, 412), (2, 824)]
    assert [(point.verdicts, point.tokens) for point in both.points] == [(2, 824), (4, 1648)]


def test_what_a_run_cost() -> None:
    cost = measure([episode("a", 0, [1.0, "no_code"]), episode("a", 1, ["failed"])], QUICK).cost
    assert (cost.calls, cost.verdicts, cost.prompt_tokens, cost.answer_tokens) == (3, 1, 900, 412)
    assert (cost.seconds, cost.dollars) == (1.5, 0.0)


def test_against_compile_uses_its_own_verdicts() -> None:
    played = episode("a", 0, [3.0])
    candidate = played.turns[0].candidate
    assert candidate is not None
    slower = verdict(0.5)
    metrics = measure([played], QUICK, against_compile={(played.problem.hash, candidate.hash): slower})
    assert value(metrics, "fast", p=1.0) == 1.0
    assert value(metrics, "fast", p=1.0, against="compile") == 0.0
    assert value(metrics, "correct", against="compile") == 1.0
    assert metrics.against_compile is not None and not metrics.against_compile.is_partial
    partial = measure([played], QUICK, against_compile={}).against_compile
    assert partial is not None and partial.is_partial and (partial.judged, partial.passed) == (0, 1)


def test_the_bootstrap_draws_problems_and_covers() -> None:
    import numpy as np

    one = Bootstrap(50, seed=3)
    shares = np.array([1.0] * 20 + [0.0] * 30) * 8
    found = one.ratio(shares, np.full(50, 8.0))
    assert found is not None
    assert found[0] == 0.4
    # Binomial with n = 50 problems, however many samples each has: 0.4 +- 1.96 * 0.0693.
    assert found[1] == pytest.approx(0.264, abs=0.03)
    assert found[2] == pytest.approx(0.536, abs=0.03)
    assert found == Bootstrap(50, seed=3).ratio(shares, np.full(50, 8.0))


def test_figures_do_not_depend_on_the_order_in_which_episodes_ended() -> None:
    episodes = run(7, 3, 2)
    shuffled = random.Random(1).sample(episodes, len(episodes))
    assert measure(shuffled, QUICK).figures == measure(episodes, QUICK).figures
    faster = run(7, 3, 2, boost=1.1)
    differences = compare(shuffled, faster, config=QUICK).differences
    assert differences == compare(episodes, faster, config=QUICK).differences


def test_one_problem_has_no_interval_and_decides_nothing() -> None:
    figure = measure(run(1, 4, 2), QUICK).find("correct")
    assert figure is not None and figure.value is not None and (figure.low, figure.high) == (None, None)
    found = compare(run(1, 4, 2), run(1, 4, 2, boost=3.0), config=QUICK)
    assert found.differences and all(one.low is None and not one.is_clear for one in found.differences)


def test_a_run_compared_with_itself_differs_nowhere_and_a_faster_one_clearly() -> None:
    a, b = run(12, 2, 2), run(12, 2, 2, boost=2.0)
    same = compare(a, a, config=QUICK)
    assert all(one.difference == 0 and not one.is_clear for one in same.differences)
    assert same.wins == {"a": 0, "b": 0, "tie": 12}
    other = compare(a, b, config=QUICK)
    speed = [one for one in other.differences if one.name == "speedup mean"]
    assert all(one.is_clear and one.difference > 0 for one in speed)
    assert other.wins["a"] == 0
    assert other.wins["b"] > 0


def test_runs_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(NotComparable, match="share no problem"):
        compare([episode("a", 0, [1.0])], [episode("b", 0, [1.0])])
    with pytest.raises(NotComparable, match="baseline"):
        protocol = verdict(2.0).protocol.model_copy(update={"baseline": "compile"})
        other = turn(0, 2.0).model_copy(update={"evaluation": verdict(2.0, protocol=protocol)})
        compare([episode("a", 0, [1.0])], [episode("a", 0, [], turns=(other,))])


def test_runs_of_different_devices_are_compared_only_when_asked_for_and_differences_are_told() -> None:
    def played(device: str, **settings: object) -> list[Episode]:
        judged = turn(0, 2.0).model_copy(update={"evaluation": verdict(2.0, device=device)})
        return [episode("a", 0, [], turns=(judged,), settings=PlayConfig.model_validate(settings).model_dump())]

    one, other = played("model:h100"), played("model:a100", num_turns=5, context={"type": "best", "window": 2})
    with pytest.raises(NotComparable, match=r"device \(model:h100 against model:a100\).*--anyway"):
        compare(one, other, config=QUICK)
    found = compare(one, other, config=QUICK, anyway=True).unlike
    assert [(item.setting, item.is_of_verdicts) for item in found] == [
        ("device", True),
        ("turns", False),
        ("context", False),
    ]
    assert found[2].words == "context (everything against best, window 2, keep last no)"
    with pytest.raises(NotComparable, match=r"protocol \(quick against standard\)"):
        silent = [episode("a", 0, ["no_code"], settings=PlayConfig(protocol="quick").model_dump())]
        compare(silent, [episode("a", 0, [2.0])], config=QUICK)
    assert compare(played("cuda:0 (NVIDIA H200)"), played("cuda:3 (NVIDIA H200)"), config=QUICK).unlike == ()
    unread = turn(0, "compile_error")
    failed = verdict("compile_error").model_copy(update={"device": "cuda:0"})
    unread = unread.model_copy(update={"evaluation": failed})
    assert compare(played("cuda:0 (NVIDIA H200)"), [episode("a", 0, [], turns=(unread,))], config=QUICK).unlike == ()
    more = compare(one, [*one, one[0].model_copy(update={"sample": 1})], config=QUICK).unlike
    assert [item.words for item in more] == ["samples (1 against 2)"]


def test_how_answers_were_drawn_is_told_where_it_differs(tmp_path: Path) -> None:
    folders = tmp_path / "cold", tmp_path / "warm"
    for folder, temperature in zip(folders, (0.0, 1.0), strict=True):
        asked = {"sampling": {"temperature": temperature, "top_p": 1.0}}
        with RunFolder(folder).open(Manifest(settings=asked, seed=0, policy="teacher", problems={})):
            pass
    drawn = sampling_of(folders[0]), sampling_of(folders[1])
    run = [episode("a", 0, [1.0])]
    (told,) = compare(run, run, config=QUICK, sampling=drawn).unlike
    assert told.words == "temperature (0.0 against 1.0)" and not told.is_of_verdicts
    assert compare(run, run, config=QUICK, sampling=(drawn[0], {})).unlike == ()


def test_a_problem_whose_source_changed_is_left_out() -> None:
    a = [episode("a", 0, [1.0]), episode("b", 0, [1.0])]
    changed = a[0].problem.model_copy(update={"source": "another"})
    b = [episode("a", 0, [2.0]).model_copy(update={"problem": changed}), episode("b", 0, [2.0])]
    found = compare(a, b, config=QUICK)
    assert found.changed == ("katas/1/a",)
    assert [one.problem for one in found.problems] == ["katas/1/b"]
    with pytest.raises(NotComparable, match="share no problem, and of 1 with equal names the sources differ"):
        compare(a[:1], b[:1], config=QUICK)
