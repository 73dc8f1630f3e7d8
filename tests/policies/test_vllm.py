"""The vLLM policy against a real HTTP server that speaks vLLM's completions protocol."""

from __future__ import annotations

import asyncio

import pytest
from policy_requests import request

from endpoint_server import EndpointServer, running
from kerneldojo.policies import require_trainable
from kerneldojo.policies.retrying import RetryConfig
from kerneldojo.policies.vllm import VllmConfig, VllmPolicy

QUICK = RetryConfig(first_delay=0.01, longest_delay=0.05, attempts=3, timeout=5)


@pytest.fixture(scope="module")
def served():
    server = EndpointServer()
    with running(server) as address:
        yield server, address


@pytest.fixture
def server(served):
    for name, value in vars(EndpointServer()).items():
        if name != "app":
            setattr(served[0], name, value)
    served[0].address = served[1]
    return served[0]


def ask(server, *requests, model=None, version=None, **settings):
    async def play():
        policy = VllmPolicy(server.address, model, VllmConfig(**{"retry": QUICK, **settings}))
        policy.version = version
        try:
            return await asyncio.gather(*(policy.answer(each) for each in requests))
        finally:
            await policy.close()

    return asyncio.run(play())


def test_tokens_in_tokens_out(server):
    (answer,) = ask(server, request(prompt_ids=(10, 20, 30), max_tokens=50, seed=7), model="my-model", version=3)
    assert answer.prompt_ids == (10, 20, 30) and answer.answer_ids == (11, 21, 31, 2)
    assert answer.log_probs == pytest.approx((-0.511, -0.521, -0.531, -0.502))
    assert answer.text == "11 21 31" and answer.finish == "stop" and answer.version == 3 and answer.is_trainable
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens) == (3, 4)
    sent = server.seen[0]
    assert sent["model"] == "my-model" and sent["prompt"] == [10, 20, 30] and sent["seed"] == 7
    assert sent["return_token_ids"] is True and sent["logprobs"] == 1 and sent["max_tokens"] == 50
    # What is not said is taken from the model's generation settings: everything is said.
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (
        1,
        1,
        -1,
        0,
        1,
    )


def test_an_answer_that_was_cut(server):
    (answer,) = ask(server, request(prompt_ids=(10, 20, 30), max_tokens=2))
    assert answer.finish == "length" and answer.answer_ids == (11, 21)


def test_the_model_is_the_one_that_is_served(server):
    ask(server, request(prompt_ids=(1,)))
    assert server.seen[0]["model"] == "served-model"


def test_without_ids_the_server_renders_the_chat(server):
    (answer,) = ask(server, request("Hello"))
    assert answer.prompt_ids == (5, 6, 7) and answer.answer_ids == (6, 7, 8, 2)
    assert server.seen[0]["messages"][1]["content"] == "Hello" and server.seen[0]["add_generation_prompt"] is True


def test_an_older_server_gives_ids_as_names_of_tokens(server):
    server.gives_token_ids = False
    (answer,) = ask(server, request(prompt_ids=(10,)))
    assert answer.answer_ids == (11, 2) and answer.is_trainable


def test_raw_log_probs_are_given_only_where_they_are_those_of_the_sampled_distribution(server):
    for settings, expected in [
        ({}, True),
        ({"temperature": 0.6}, False),
        ({"top_p": 0.9}, False),
    ]:
        for mode in ("raw", "processed"):
            (answer,) = ask(server, request(prompt_ids=(1,), **settings), logprobs_mode=mode)
            assert answer.is_trainable == (expected or mode == "processed")
            assert answer.answer_ids == (2, 2) and answer.finish == "stop"


NOT_A_NUMBER = "NaN"
"""As the server spells it, which is no JSON but is read as such."""


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 429},
        {"status": 500},
        {"body": "{bad"},
        {"body": '{"choices": []}'},
        {"drop": True},
        {"token_ids": [1]},
        {"token_ids": ["a", "b"]},
        {"token_ids": [-1, 2]},
        {"logprobs": [-0.1, None]},
        {"logprobs": [-0.1]},
        {"logprobs": [-0.1, NOT_A_NUMBER]},
        {"finish_reason": "abort"},
    ],
    ids=str,
)
def test_what_passes_is_tried_again_and_nothing_garbled_is_learned_from(server, trouble):
    server.plan = [trouble]
    (answer,) = ask(server, request(prompt_ids=(10,)))
    assert answer.answer_ids == (11, 2) and answer.is_trainable and len(server.seen) == 2
    server.plan = [trouble] * 3
    (answer,) = ask(server, request(prompt_ids=(10,)))
    assert answer.finish == "failed" and "try 3 of 3" in answer.error and "\n" not in answer.error


def test_a_bad_request_is_not_tried_again(server):
    server.plan = [{"status": 400, "message": "too long"}]
    (answer,) = ask(server, request(prompt_ids=(10,)))
    assert answer.finish == "failed" and "too long" in answer.error and len(server.seen) == 1


def test_rl_takes_a_server_only_if_it_gives_ids(server):
    policy = VllmPolicy(f"{server.address}/v1/")
    assert policy.gives_ids
    require_trainable(policy)
    with pytest.raises(ValueError, match="processed_logprobs"):
        require_trainable(policy, temperature=0.7)
    require_trainable(VllmPolicy(server.address, config=VllmConfig(logprobs_mode="processed")), temperature=0.7)
    server.gives_token_ids = None
    refused = VllmPolicy(server.address)
    assert not refused.gives_ids
    with pytest.raises(ValueError, match="gives no token ids") as error:
        require_trainable(refused)
    assert "\n" not in str(error.value)


def test_a_server_that_is_not_there_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with pytest.raises(ValueError, match="cannot be asked: connection failed") as error:
        require_trainable(VllmPolicy("http://127.0.0.1:9"))
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="http://"):
        VllmPolicy("127.0.0.1:8000")


def test_names():
    assert VllmPolicy("http://key:word@host:8000/v1", "m").name == "vllm:host:8000#m"
