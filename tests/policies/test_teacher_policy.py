"""The teacher as a policy: what it writes follows from the request alone, and it acts on feedback."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest
from policy_requests import SOURCE

from kerneldojo.episodes.config import PlayConfig
from kerneldojo.episodes.feedback import feedback
from kerneldojo.policies import Request, open_policy
from kerneldojo.policies.teacher import LEVELS, Teacher, TeacherConfig, teach
from kerneldojo.policies.teacher.feedback import read_feedback, read_words
from kerneldojo.policies.teacher.tasks import task_of
from kerneldojo.problems.graphs import graph_problems
from kerneldojo.schema import Answer, Candidate, Episode, Evaluation, Exploit, Message, Problem, Status, Timing, Turn

PROBLEMS = graph_problems("train", 30)
CODE = re.compile(r"^<plan>\n(.+\n){1,3}</plan>\n```python\n([^`]*)```\n$")


def asked(problem, seed=0, code=None, words="", evaluation=None):
    """A request for the first answer, or for the second one after `code` was judged."""
    turns = ()
    said = "Write a kernel."
    if code is not None:
        turn = Turn(
            index=0, answer=Answer(text="..."), candidate=Candidate(source=code), evaluation=evaluation, feedback=words
        )
        turns, said = (turn,), words
    episode = Episode(id=f"{problem.name}/0", problem=problem, turns=turns)
    return Request(episode=episode, messages=(Message(role="user", content=said),), seed=seed)


def written(teacher, request):
    answer = asyncio.run(teacher.answer(request))
    assert answer.finish == "stop" and answer.answer_ids is None
    match = CODE.match(answer.text)
    assert match, answer.text
    return match[2]


def passed(speedup, coverage):
    return Evaluation(
        status=Status.PASSED,
        correct=True,
        speedup=speedup,
        coverage=coverage,
        kernel_ms=1.0,
        reference_ms=speedup,
        timing=Timing(source="modeled", median_ms=1.0),
    )


def failed(status, message="something"):
    exploits = (Exploit(name="no_causal_kernel", evidence="right without kernels"),) if status is Status.EXPLOIT else ()
    return Evaluation(status=status, message=message, exploits=exploits)


@pytest.mark.parametrize("quality", [*LEVELS, "mixture"])
def test_equal_requests_get_equal_answers(quality):
    teacher = Teacher.of(quality)
    assert teacher.name == f"teacher:{quality}" and not teacher.gives_ids
    for seed, problem in enumerate(PROBLEMS[:6]):
        assert written(teacher, asked(problem, seed)) == written(Teacher.of(quality), asked(problem, seed))


def test_a_mixture_of_ones_own_has_a_name():
    teacher = Teacher.of("lazy=0.5,fused=2")
    assert teacher.config.shares == {"lazy": 0.5, "fused": 2.0} and teacher.config.quality == "mixture"
    assert teacher.name == "teacher:lazy=0.5,fused=2" == open_policy(teacher.name).name
    written_by = {written(teacher, asked(PROBLEMS[0], seed)) for seed in range(40)}
    assert teach(PROBLEMS[0], "fused") in written_by and len(written_by) > 1


@pytest.mark.parametrize("quality", ["lazy", "fused", "tuned"])
def test_honest_qualities_write_what_they_are_called(quality):
    for problem in PROBLEMS:
        assert written(Teacher.of(quality), asked(problem)) == teach(problem, quality)


def test_a_mixture_follows_its_shares():
    counts = Counter()
    for seed in range(40):
        for problem in PROBLEMS[:25]:
            code = written(Teacher(), asked(problem, seed))
            counts[task_of(problem).level_of(code) or "bad"] += 1
    shares = {level: count / 1000 for level, count in counts.items()}
    assert shares["lazy"] == pytest.approx(0.55, abs=0.05)
    assert shares["fused"] + shares["tuned"] == pytest.approx(0.10, abs=0.04)
    assert shares["bad"] == pytest.approx(0.35, abs=0.05)


VERDICTS = {
    "compile": failed(Status.COMPILE_ERROR, "line 3: SyntaxError: expected ':'"),
    "crash": failed(Status.RUNTIME_ERROR, "IndexError: wrong number of dimensions; the exploit of correct code"),
    "incorrect": failed(Status.INCORRECT, "12 % of the elements are wrong"),
    "exploit": failed(Status.EXPLOIT),
}


@pytest.mark.parametrize("style", ["full", "compact"])
@pytest.mark.parametrize("complaint", VERDICTS)
def test_feedback_is_understood_as_it_is_written(complaint, style):
    words = feedback(VERDICTS[complaint], PlayConfig(style=style))
    assert read_words(words).complaint == complaint, words


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.OUT_OF_MEMORY])
@pytest.mark.parametrize("style", ["full", "compact"])
def test_what_never_ends_or_is_too_large_counts_as_a_crash(status, style):
    assert read_words(feedback(failed(status, ""), PlayConfig(style=style))).complaint == "crash"


@pytest.mark.parametrize("style", ["full", "compact"])
def test_speed_and_coverage_are_understood(style):
    found = read_words(feedback(passed(1.5, 0.4), PlayConfig(style=style)))
    assert found.complaint == "correct" and found.speedup == 1.5 and found.coverage == 0.4


def test_older_verdicts_in_the_prompt_do_not_confuse():
    problem = PROBLEMS[0]
    request = asked(problem, code="x", words=feedback(VERDICTS["compile"], PlayConfig()))
    older = Message(role="user", content="Turn 1 was taken for cheating.\n\n" + request.messages[0].content)
    assert read_feedback(request.model_copy(update={"messages": (older,)})).complaint == "compile"


def test_where_words_say_nothing_the_verdict_is_read():
    request = asked(PROBLEMS[0], code="x", words="?", evaluation=VERDICTS["exploit"])
    assert read_feedback(request).complaint == "exploit"
    assert read_feedback(asked(PROBLEMS[0], code="x", words="?")) is None


@pytest.mark.parametrize("complaint", VERDICTS)
def test_what_failed_is_mended(complaint):
    teacher = Teacher(TeacherConfig(quality="broken", repair=1.0))
    words = feedback(VERDICTS[complaint], PlayConfig())
    for seed, problem in enumerate(PROBLEMS[:12]):
        code = written(teacher, asked(problem, seed, teach(problem, "broken", seed), words))
        assert task_of(problem).level_of(code) in ("lazy", "fused")


def test_what_is_lazy_is_fused_and_what_is_fused_is_tuned():
    teacher = Teacher(TeacherConfig(quality="lazy", repair=1.0))
    for problem in PROBLEMS[:12]:
        slow, fast = (feedback(passed(*pair), PlayConfig()) for pair in ((1.0, 0.3), (2.0, 1.0)))
        assert written(teacher, asked(problem, 0, teach(problem, "lazy"), slow)) == teach(problem, "fused")
        assert written(teacher, asked(problem, 0, teach(problem, "fused"), fast)) == teach(problem, "tuned")
        assert written(teacher, asked(problem, 0, teach(problem, "tuned"), fast)) == teach(problem, "tuned")


def test_repairs_succeed_as_often_as_they_are_told_to():
    words = feedback(VERDICTS["compile"], PlayConfig())
    for repair in (0.0, 0.3):
        teacher = Teacher(TeacherConfig(quality="broken", repair=repair))
        mended = [
            task_of(problem).level_of(written(teacher, asked(problem, seed, "x", words))) is not None
            for seed in range(20)
            for problem in PROBLEMS[:20]
        ]
        assert sum(mended) / len(mended) == pytest.approx(repair, abs=0.08)


def test_without_repairs_a_lazy_answer_stays_as_it_is():
    teacher = Teacher(TeacherConfig(quality="lazy", repair=0.0))
    code = teach(PROBLEMS[0], "lazy")
    assert written(teacher, asked(PROBLEMS[0], 1, code, feedback(passed(1.0, 0.3), PlayConfig()))) == code


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(ValueError, match="unknown quality 'best'") as error:
        Teacher.of("best")
    assert "\n" not in str(error.value)
    for wrong in ("best=1", "lazy=much", "lazy=-1", "lazy=1,lazy=2", "lazy=inf", "lazy=nan", "lazy=1,", "lazy=0"):
        with pytest.raises(ValueError, match="share") as error:
            Teacher.of(wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError):
        TeacherConfig(shares={"lazy": -1.0})
    with pytest.raises(ValueError):
        TeacherConfig(repair=1.5)


def test_a_problem_that_is_none_is_a_failed_answer():
    answer = asyncio.run(Teacher().answer(asked(Problem(name="bad", source="def"))))
    assert answer.finish == "failed" and "not Python" in answer.error and "\n" not in answer.error


def test_a_problem_that_is_not_understood_is_left_to_the_library():
    problem = Problem(name="other", source=SOURCE.replace("class Model: ...", "class Model(object): ..."))
    for level in ("lazy", "fused", "tuned"):
        assert "class ModelNew(Model):" in teach(problem, level)
