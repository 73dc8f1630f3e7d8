"""The nouns travel: what one process writes, another reads back the same; what is impossible is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from kerneldojo.schema import Answer, Candidate, Episode, Evaluation, Exploit, Job, Problem, Status, Timing, Turn

PROBLEM = Problem(name="square", source="class Model: ...")
CANDIDATE = Candidate(source="class ModelNew: ...")


def test_an_evaluation_is_read_back_as_it_was_written() -> None:
    evaluation = Evaluation(status=Status.PASSED, correct=True, speedup=1.5, timing=Timing(source="modeled"))
    assert '"timing_source":"modeled"' in evaluation.model_dump_json()
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation
    assert Evaluation.model_validate(evaluation.model_dump(mode="json")) == evaluation


def test_what_lies_within_stages_is_no_stage() -> None:
    times = {"rounds": 0.5, "timing": 0.2, "held": 0.3, "stopping": 0.1, "alone": 0.2, "total": 0.8}
    found = Evaluation(status=Status.PASSED, correct=True, stage_seconds=times)
    assert found.stages == {"rounds": 0.5, "timing": 0.2}
    assert found.stage_seconds == times


def test_an_episode_is_read_back_as_it_was_written() -> None:
    verdict = Evaluation(status=Status.EXPLOIT, exploits=(Exploit(name="decoy", evidence="it never ran"),))
    answer = Answer(text="code", prompt_ids=(1, 2), answer_ids=(3,), log_probs=(-0.5,))
    turn = Turn(index=0, answer=answer, candidate=CANDIDATE, evaluation=verdict, reward=0.0)
    episode = Episode(id="katas/square/0", problem=PROBLEM, turns=(turn,), finish="turns")
    assert Episode.model_validate_json(episode.model_dump_json()) == episode
    assert answer.is_trainable


def test_impossible_states_are_refused() -> None:
    with pytest.raises(ValidationError, match="cannot go with status"):
        Evaluation(status=Status.INCORRECT, correct=True)
    with pytest.raises(ValidationError, match="only a passed candidate has a speedup"):
        Evaluation(status=Status.TIMEOUT, speedup=2.0)
    with pytest.raises(ValidationError, match="one log-probability for each answer id"):
        Answer(text="", answer_ids=(1, 2), log_probs=(0.0,))
    with pytest.raises(ValidationError, match="without gaps"):
        Episode(id="x", problem=PROBLEM, turns=(Turn(index=1, answer=Answer(text="")),))


def test_a_job_is_known_by_what_decides_its_verdict() -> None:
    job = Job(problem=PROBLEM, candidate=CANDIDATE)
    assert job.hash == Job(problem=PROBLEM.model_copy(update={"name": "other"}), candidate=CANDIDATE).hash
    assert job.hash == job.model_copy(update={"fresh": True}).hash
    changes = {"device": "cpu", "protocol": "quick", "baseline": "compile", "precision": "ieee", "timeout": 3.0}
    others = {job.model_copy(update={key: value}).hash for key, value in changes.items()}
    others.add(job.model_copy(update={"allow_degenerate": True}).hash)
    others.add(Job(problem=PROBLEM.model_copy(update={"irreducible": True}), candidate=CANDIDATE).hash)
    assert len(others | {job.hash}) == len(changes) + 3


def test_the_light_part_imports_nothing_heavy() -> None:
    heavy = ["torch", "triton", "numpy", "ray", "transformers", "fastapi", "openai", "pyarrow"]
    rooms = ["schema", "rewards", "episodes", "policies", "rollout", "search", "client"]
    code = (
        f"import sys\nfor room in {rooms!r}: __import__('kerneldojo.' + room)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
