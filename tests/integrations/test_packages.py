"""The real packages, in throwaway environments, with a real service: OpenEnv's client, verifiers, TRL's trainer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_executors import verdict
from service_process import ServiceProcess
from throwaway import environment, needs_packages, run_there

from kerneldojo.rewards import DrKernelConfig, reward

pytestmark = needs_packages

TOKEN = "a-token-of-some-length"
PASSED, FAILED = (reward(verdict(word), DrKernelConfig()).value for word in ("passed", "incorrect"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in "".join(process.lines)


def printed(*requirements: str, script: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    return json.loads(run_there(environment(*requirements), script, *arguments).splitlines()[-1])


def judged(url: str) -> list[str]:
    tasks = httpx.get(f"{url}/v1/tasks").json()["tasks"]
    jobs = [httpx.get(f"{url}/v1/tasks/{task['id']}", params={"include": "job"}).json()["job"] for task in tasks]
    return sorted(job["candidate"]["source"].strip() for job in jobs)


def test_openenv_plays_with_its_own_client(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"agent:{TOKEN}\n")
    with ServiceProcess(tmp_path, "--token-file", "tokens") as service:
        found = printed("openenv==0.10.0", script="package_openenv.py", arguments=(service.url, TOKEN))
        assert service.stop() == 0
    outcomes = {"passed one": [PASSED, "passed"], "sleep 0.2 two": [FAILED, "compile_error"]}
    outcomes["incorrect 3"] = [FAILED, "incorrect"]
    for (code, (earned, status)), seen in zip(outcomes.items(), found["several"], strict=True):
        begun, no_code, played, state, refused, last = seen
        assert begun == [None, False, "", 0] and no_code == [FAILED, False, "not_parsed", 1]
        assert played == [earned, False, status, 2] and state == [code, 2]
        assert "VALIDATION_ERROR" in refused and last == [FAILED, True, "exploit", 3]
    assert found["sync"] == [[None, False, "", 0], [PASSED, True, "passed", 1], [None, False, "", 0]]
    assert "403" in found["stranger"]


def test_verifiers_plays_its_taskset(service: ServiceProcess) -> None:
    requirements = ("verifiers==0.4.0", "uv")
    found = printed(*requirements, script="package_verifiers.py", arguments=(service.url,))
    assert (found["environment"], found["names"][0]) == ("KernelEnv", "katas/1/argmin_columns")
    assert found["num_tasks"] > 20 and found["wire"] == "argmin_columns"
    climb, cheat, cut, fault = (found[name] for name in ("climb", "cheat", "cut", "fault"))
    assert climb["ok"] and (climb["reward"], climb["rewards"]) == (pytest.approx(PASSED), ["kernel"])
    assert climb["metrics"] == {"correct": 1, "exploit": 0, "speedup": 2, "coverage": 0.4, "turns": 3}
    assert [turn["status"] for turn in climb["info"]["turns"]] == ["not_parsed", "incorrect", "passed"]
    assert cheat["metrics"]["exploit"] == 1 and cheat["info"]["turns"][1]["reward"] == FAILED
    # Cut at the limit of tokens: not judged, and no figure that nobody measured.
    assert cut["reward"] == FAILED and cut["metrics"] == {"correct": 0, "exploit": 0, "turns": 3}
    assert not fault["ok"] and fault["rewards"] == [] and "not scored" in fault["errors"][0]
    opening, second, third = found["prompts"]
    assert len(opening) == 1 and opening[0].startswith("Make a PyTorch module faster")
    assert "No code was found" in second[2] and "its answer is wrong" in third[4]


def test_trl_takes_a_step(service: ServiceProcess) -> None:
    found = printed("trl==1.16.0", script="package_trl.py", arguments=(service.url,))
    # Two rollouts of one problem, wrong then right, and an exploit: the reward of each, and a step that moved.
    assert sorted(found["rewards"]) == pytest.approx([FAILED, PASSED])
    assert judged(service.url) == ["compile_error one", "exploit one", "passed two"]
    assert found["tools/call_frequency"] == 1.5 and found["tools/failure_frequency"] == 0
    assert found["grad_norm"] > 0 and found["num_changed"] > 0
    assert "class Model" in found["prompt"] and "It could not be read or compiled." in found["completions"]
