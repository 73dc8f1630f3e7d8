"""OpenEnv's wire, spoken by a plain web socket client and plain HTTP to a real service."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_executors import verdict
from service_process import ServiceProcess
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kerneldojo.rewards import DrKernelConfig, KevinConfig, reward

TOKEN = "a-token-of-some-length"
PASSED = reward(verdict("passed"), DrKernelConfig()).value


class Socket:
    """Sends frames and reads their answers."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def ask(self, type: str, **data: Any) -> dict[str, Any]:
        return self.say(json.dumps({"type": type, "data": data}))

    def say(self, text: str | bytes) -> dict[str, Any]:
        self.connection.send(text)
        return self.read()

    def read(self) -> dict[str, Any]:
        return json.loads(self.connection.recv(timeout=30))

    def play(self, type: str, **data: Any) -> dict[str, Any]:
        reply = self.ask(type, **data)
        assert reply["type"] == "observation", reply
        return reply["data"]

    def refused(self, type: str, **data: Any) -> tuple[str, str]:
        return self.error(self.ask(type, **data))

    @staticmethod
    def error(reply: dict[str, Any]) -> tuple[str, str]:
        assert reply["type"] == "error" and len(reply["data"]["message"].splitlines()) == 1, reply
        return reply["data"]["code"], reply["data"]["message"]


@contextmanager
def socket(url: str, **headers: str) -> Iterator[Socket]:
    with connect(f"ws{url.removeprefix('http')}/ws", additional_headers=headers, max_size=None) as connection:
        yield Socket(connection)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServiceProcess(tmp_path_factory.mktemp("openenv")) as service:
        yield service.url
        assert service.stop() == 0
        assert "Traceback" not in "".join(service.lines)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a token, room for two sessions, little patience and another reward."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text(f"one:{TOKEN}\ntwo:{TOKEN}-two\n")
    told = 'max_sessions = 2\nidle_seconds = 1.0\nsuites = ["katas:1"]\n[play]\nnum_turns = 1\nstyle = "compact"\n'
    (folder / "openenv.toml").write_text(told + '[play.reward]\ntype = "kevin"\n')
    with ServiceProcess(folder, "--token-file", "tokens", "--openenv", "openenv.toml") as service:
        yield service.url
        assert service.stop() == 0


def test_an_episode_from_reset_to_its_end(url: str) -> None:
    with socket(url) as agent:
        assert agent.ask("state")["data"]["episode_id"] is None
        first = agent.play("reset", problem="softmax_rows", seed=3, episode_id="mine")
        assert (first["reward"], first["done"], first["observation"]["num_turns"]) == (None, False, 3)
        assert "class Model" in first["observation"]["prompt"] and "ModelNew" in first["observation"]["prompt"]

        second = agent.play("step", code="passed one")
        seen = second["observation"]
        assert (second["reward"], seen["status"], seen["correct"], seen["speedup"]) == (PASSED, "passed", True, 2.0)
        assert seen["feedback"].startswith("Correct.") and seen["feedback"] in seen["prompt"]
        assert [message["role"] for message in seen["messages"]] == ["user", "assistant", "user"]

        third = agent.play("step", answer="I cannot do this.")
        assert third["observation"]["status"] == "not_parsed" and third["reward"] < PASSED
        last = agent.play("step", answer="Here it is:\n```python\nexploit two\n```")
        assert (last["done"], last["observation"]["finish"], last["observation"]["messages"]) == (True, "turns", [])
        assert last["observation"]["exploits"] == ["no_causal_kernel"] and last["reward"] < PASSED

        state = agent.ask("state")["data"]
        assert (state["episode_id"], state["step_count"], state["problem"]) == ("mine", 3, "katas/1/softmax_rows")
        assert state["seed"] == 3 and state["rewards"] == [PASSED, third["reward"], last["reward"]]
        assert agent.refused("step", code="passed") == (
            "EXECUTION_ERROR",
            "the episode has ended (turns): reset first",
        )
        assert agent.play("reset", num_turns=1)["observation"]["num_turns"] == 1
        assert agent.play("step", code="passed again")["done"]
        agent.connection.send('{"type": "close"}')
        with pytest.raises(ConnectionClosed):
            agent.connection.recv(timeout=30)


def test_sockets_have_episodes_of_their_own(url: str) -> None:
    with socket(url) as one, socket(url) as two:
        first = [agent.play("reset", seed=11) for agent in (one, two)]
        assert first[0] == first[1]
        one.play("step", code="passed one")
        assert two.ask("state")["data"]["step_count"] == 0
        assert two.refused("step", code="a", answer="b")[0] == "VALIDATION_ERROR"
        assert (
            len({agent.play("reset", seed=seed)["observation"]["problem"] for seed in range(8) for agent in (one,)}) > 1
        )


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ('{"type": "step", "data": {"code": "\\ud800"}}', "INVALID_JSON"),
        (b"\xff\x00", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {}, "more": 1}', "VALIDATION_ERROR"),
        ('{"type": "mcp"}', "UNKNOWN_TYPE"),
        ('{"type": "step"}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"code": "x"}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"porblem": "softmax_rows"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"problem": "no_such"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"suite": "kernelbench:/etc"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"source": "x = 1"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"source": "x = 1", "problem": "two\\nlines"}}', "VALIDATION_ERROR"),
        (json.dumps({"type": "reset", "data": {"source": "x = a" + "()" * 100_000}}), "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"num_turns": 17}}', "VALIDATION_ERROR"),
        (json.dumps({"type": "step", "data": {"code": "x" * 300_000}}), "VALIDATION_ERROR"),
    ],
)
def test_what_is_wrong_is_one_line_and_the_session_goes_on(url: str, frame: str | bytes, code: str) -> None:
    with socket(url) as agent:
        found, message = agent.error(agent.say(frame))
        assert found == code and len(message) <= 1000
        assert agent.play("reset", problem="softmax_rows")["done"] is False


def test_a_problem_of_ones_own(url: str) -> None:
    source = (
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return x + 41\n"
        "def get_inputs():\n    return [torch.randn(4)]\ndef get_init_inputs():\n    return []\n"
    )
    with socket(url) as agent:
        seen = agent.play("reset", source=source, problem="plus", language="cuda", device="cpu")["observation"]
        assert "x + 41" in seen["prompt"] and "CUDA" in seen["prompt"] and seen["problem"] == "plus"
        agent.play("step", code="passed plus")
        task = httpx.get(f"{url}/v1/tasks", params={"limit": 1}).json()["tasks"][0]
        job = httpx.get(f"{url}/v1/tasks/{task['id']}", params={"include": "job"}).json()["job"]
        assert job["problem"]["source"] == source and (job["device"], job["candidate"]["language"]) == ("cpu", "cuda")


def test_a_fault_of_ours_is_masked_and_ends_the_episode(url: str) -> None:
    with socket(url) as agent:
        agent.play("reset")
        reply = agent.play("step", code="infrastructure_error now")
        assert (reply["reward"], reply["done"], reply["observation"]["finish"]) == (None, True, "fault")


def test_text_of_a_candidate_cannot_break_a_frame(url: str) -> None:
    with socket(url) as agent:
        agent.play("reset")
        assert agent.play("step", code="odd one")["observation"]["status"] == "runtime_error"


def test_a_cancelled_task_leaves_the_turn_unplayed(url: str) -> None:
    with socket(url) as agent:
        agent.play("reset")

        helper = threading.Thread(target=lambda: httpx.delete(f"{url}/v1/tasks/{until(url, 'running')}"))
        helper.start()
        code, message = agent.refused("step", code="sleep 2 cancelled")
        helper.join()
        assert code == "EXECUTION_ERROR" and "cancelled" in message
        assert agent.ask("state")["data"]["step_count"] == 0
        assert agent.play("step", code="passed then")["reward"] == PASSED


def test_a_client_that_leaves_leaves_no_work_behind(url: str) -> None:
    with socket(url) as agent:
        agent.play("reset", num_turns=1)
        agent.connection.send('{"type": "step", "data": {"code": "sleep 3 nobody waits"}}')
        agent.connection.send('{"type": "state"}')
        until(url, "running")
        assert agent.read()["data"]["observation"]["status"] == "compile_error"
        assert agent.read()["data"]["step_count"] == 1
        agent.play("reset")
        agent.connection.send('{"type": "step", "data": {"code": "sleep 3 nobody ever waits"}}')
        task = until(url, "running")
    assert until(url, "cancelled", task)


def until(url: str, state: str, task: str | None = None) -> str:
    """The id of a task that is in this state, as soon as there is one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        tasks = httpx.get(f"{url}/v1/tasks", params={"state": state}).json()["tasks"]
        if found := [one["id"] for one in tasks if task in (None, one["id"])]:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no task became {state}")


def test_a_token_opens_the_socket(guarded: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong-but-long-enough"}):
        with pytest.raises(InvalidStatus) as refused, socket(guarded, **headers):
            pass
        assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus), socket(guarded, Authorization=f"Bearer {TOKEN}", Origin="http://elsewhere"):
        pass
    with socket(guarded, Authorization=f"Bearer {TOKEN}") as agent:
        agent.play("reset")
        earned = agent.play("step", code="passed one")
        assert earned["reward"] == reward(verdict("passed"), KevinConfig()).value and earned["done"]
        assert agent.refused("reset", suite="katas")[1] == "suite: this service offers katas:1"
    # Not before: a session ends here after a second's silence, which making a client may take.
    task = httpx.get(f"{guarded}/v1/tasks", headers={"Authorization": f"Bearer {TOKEN}"}).json()["tasks"][0]
    assert task["client"] == "one"


def test_sessions_are_bounded_and_silent_ones_end(guarded: str) -> None:
    told = {"Authorization": f"Bearer {TOKEN}"}
    with socket(guarded, **told) as one, socket(guarded, **told) as two, socket(guarded, **told) as three:
        assert three.error(three.read())[0] == "CAPACITY_REACHED"
        assert httpx.post(f"{guarded}/reset", json={}, headers=told).status_code == 429
        for agent in (one, two):
            assert agent.error(agent.read()) == ("SESSION_ERROR", "nothing was heard for 1 seconds")
            with pytest.raises(ConnectionClosed):
                agent.connection.recv(timeout=30)
    with socket(guarded, **told) as again:
        assert again.play("reset")["done"] is False


def test_over_http_a_cookie_or_a_header_is_the_session(url: str) -> None:
    with httpx.Client(base_url=url, timeout=30) as http:
        assert http.get("/state").status_code == http.post("/step", json={"action": {"code": "x"}}).status_code == 404
        begun = http.post("/reset", json={"problem": "softmax_rows", "num_turns": 2})
        session = begun.json()["metadata"]["session_id"]
        assert begun.headers["X-Session-Id"] == session == http.cookies["dojo_session"]
        step = {"action": {"code": "passed one"}, "request_id": "first"}
        played = http.post("/step", json=step)
        assert played.json()["reward"] == PASSED and http.post("/step", json=step).json() == played.json()
        assert http.get("/state").json()["step_count"] == 1
        http.cookies.clear()
        assert http.get("/state").status_code == 404
        told = {"X-Session-Id": session}
        assert http.post("/step", json={"action": {"code": "incorrect x"}}, headers=told).json()["done"] is True
        assert http.post("/step", json={"action": {"code": "incorrect x"}}, headers=told).status_code == 409
        again = http.post("/reset", json={"seed": 1}, headers=told)
        assert again.headers["X-Session-Id"] == session and again.json()["observation"]["turn"] == 0
        # What is whose is decided by who asks.
        stranger = {**told, "X-Dojo-Client": "stranger"}
        assert http.get("/state", headers=stranger).status_code == 404


def test_a_step_that_was_given_up_is_the_same_task(url: str) -> None:
    with httpx.Client(base_url=url, timeout=30) as http:
        http.post("/reset", json={})
        step = {"action": {"code": "sleep 1.5 patiently"}}
        early = http.post("/step", json={**step, "timeout_s": 0.1})
        assert early.status_code == 409 and "no verdict yet" in early.json()["detail"]
        assert http.get("/state").json()["step_count"] == 0
        assert http.post("/step", json=step).json()["observation"]["status"] == "compile_error"
        latest = http.get("/v1/tasks", params={"limit": 2}).json()["tasks"]
        assert latest[0]["id"].startswith("openenv-") and latest[0]["attempts"] == 1
        assert latest[0]["id"].rsplit("-", 1)[1] != latest[1]["id"].rsplit("-", 1)[1]


def test_what_the_environment_says_of_itself(url: str) -> None:
    schema = httpx.get(f"{url}/schema").json()
    assert schema["action"]["required"] == ["answer"] and "code" in schema["action"]["properties"]
    assert {"prompt", "feedback", "speedup"} <= schema["observation"]["properties"].keys()
    assert {"episode_id", "step_count"} <= schema["state"]["properties"].keys()
    assert httpx.get(f"{url}/metadata").json().keys() == {"name", "description", "version"}
    assert httpx.get(f"{url}/health").json()["status"] == "healthy"


def test_a_service_with_open_sockets_ends_when_told(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--grace", "1", "--device", "cpu") as service, socket(service.url) as agent:
        # The prompt speaks of the device where there is only one.
        assert "It is not timed here" in agent.play("reset")["observation"]["prompt"]
        service.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            agent.connection.recv(timeout=30)
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [("suites = ['nothing']", "unknown suite"), ("play = 3", "play"), ("max_sessions", "openenv.toml")],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "openenv.toml").write_text(text)
    with pytest.raises(RuntimeError) as failed:
        ServiceProcess(tmp_path, "--openenv", "openenv.toml")
    assert words in str(failed.value) and "Traceback" not in str(failed.value)
