"""The endpoint policy against a real HTTP server that speaks the protocol, well and badly."""

from __future__ import annotations

import asyncio
import logging
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from policy_requests import request

from endpoint_server import EndpointServer, running
from kerneldojo.policies import require_trainable
from kerneldojo.policies.endpoint import EndpointConfig, EndpointPolicy
from kerneldojo.policies.rates import Allowance
from kerneldojo.policies.retrying import RetryConfig
from kerneldojo.schema import Answer

QUICK = RetryConfig(first_delay=0.01, longest_delay=0.05, attempts=3, timeout=5)
KEY = "sk-secret-1234567890"


@pytest.fixture(scope="module")
def served():
    server = EndpointServer()
    with running(server) as address:
        yield server, address


@pytest.fixture
def server(served, monkeypatch):
    fresh = EndpointServer()
    for name, value in vars(fresh).items():
        if name != "app":
            setattr(served[0], name, value)
    monkeypatch.setenv("DOJO_TEST_KEY", KEY)
    served[0].address = served[1]
    return served[0]


def ask(server, *requests, **settings):
    """Answers to requests that are made at once, and the policy that gave them."""

    async def play():
        config = EndpointConfig(**{"retry": QUICK, "api_key_env": "DOJO_TEST_KEY", **settings})
        policy = EndpointPolicy("some-model", f"{server.address}/v1", config)
        try:
            return await asyncio.gather(*(policy.answer(each) for each in requests or [request()])), policy
        finally:
            await policy.close()

    return asyncio.run(play())


@pytest.mark.parametrize("streaming", [False, True])
def test_a_plain_answer(server, streaming):
    (answer,), policy = ask(
        server,
        request(max_tokens=77, temperature=0.6, top_p=0.9, seed=1 << 40),
        streaming=streaming,
        input_price=2.0,
        output_price=10.0,
        extra_body={"reasoning_effort": "low"},
    )
    assert answer.text == server.reply["content"] and answer.finish == "stop" and not answer.is_trainable
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens) == (1000, 200)
    assert answer.usage.dollars == pytest.approx(0.004) and answer.usage.seconds > 0
    assert policy.tally.model_dump() == {
        "requests": 1,
        "retries": 0,
        "failures": 0,
        "prompt_tokens": 1000,
        "answer_tokens": 200,
        "dollars": pytest.approx(0.004),
    }
    sent = server.seen[0]
    assert sent["model"] == "some-model" and sent["max_tokens"] == 77 and sent["reasoning_effort"] == "low"
    assert (sent["temperature"], sent["top_p"]) == (0.6, 0.9) and 0 <= sent["seed"] < 1 << 31
    assert sent["messages"][1] == {"role": "user", "content": "Write a kernel."}
    assert sent["_key"] == f"Bearer {KEY}"
    assert bool(sent.get("stream")) == streaming


def test_settings_that_an_endpoint_refuses_are_left_out(server):
    ask(server, send_seed=False, send_temperature=False, max_tokens_field="max_completion_tokens")
    assert {"seed", "temperature", "top_p", "max_tokens"}.isdisjoint(server.seen[0])
    assert server.seen[0]["max_completion_tokens"] == 8192


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_as_thought(server, streaming, field):
    server.reply["extra"] = {field: "First, tile it. "}
    (answer,), _ = ask(server, streaming=streaming)
    assert answer.text == f"<think>\nFirst, tile it.\n</think>\n\n{server.reply['content']}"
    (answer,), _ = ask(server, streaming=streaming, keep_reasoning=False)
    assert answer.text == server.reply["content"]


@pytest.mark.parametrize("streaming", [False, True])
def test_an_answer_that_was_cut(server, streaming):
    server.reply["finish_reason"] = "length"
    (answer,), _ = ask(server, streaming=streaming)
    assert answer.finish == "length"


def test_an_endpoint_that_counts_no_tokens(server):
    server.usage = None
    for streaming in (False, True):
        (answer,), _ = ask(server, streaming=streaming, input_price=2.0)
        assert answer.finish == "stop" and answer.usage.prompt_tokens == 0 and answer.usage.dollars == 0


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 429},
        {"status": 500},
        {"status": 503},
        {"status": 408},
        {"body": "{'this': is no JSON"},
        {"body": '{"choices": []}'},
        {"body": '{"choices": "none"}'},
        {"body": '{"choices": [{"index": 0, "message": {"role": "assistant", "content": {"a": 1}}}]}'},
        {"body": "[1, 2]"},
        {"body": "null"},
        {"body": "<html>gateway</html>", "media_type": "text/html"},
        {"drop": True},
        {"finish_reason": "error"},
        {"finish_reason": "insufficient_system_resource"},
    ],
    ids=str,
)
def test_what_passes_is_tried_again(server, trouble):
    server.plan = [trouble, trouble]
    (answer,), policy = ask(server)
    assert answer.text == server.reply["content"] and answer.finish == "stop"
    assert policy.tally.retries == 2 and policy.tally.failures == 0 and len(server.seen) == 3


@pytest.mark.parametrize(
    "trouble",
    [{"break_stream": True}, {"end_stream": True}, {"finish_reason": "error"}, {"body": "data: {not json\n\n"}],
)
def test_a_stream_that_breaks_is_begun_again(server, trouble):
    if "body" in trouble:
        trouble["media_type"] = "text/event-stream"
    server.plan = [trouble]
    (answer,), policy = ask(server, streaming=True)
    assert answer.text == server.reply["content"] and policy.tally.retries == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_halves_of_a_character_are_joined_or_replaced_so_that_every_answer_can_be_kept(server, streaming):
    server.reply["content"] = "fast: \ud83d\ude80 and half \ud83d"  # JSON spells halves; the stream cuts between two
    (answer,), _ = ask(server, streaming=streaming)
    assert answer.text == "fast: \U0001f680 and half \ufffd"
    assert Answer.model_validate_json(answer.model_dump_json()) == answer


@pytest.mark.parametrize("streaming", [False, True])
def test_a_refusal_is_an_answer(server, streaming):
    server.reply.update(content="", extra={"refusal": "I cannot help with kernels."})
    (answer,), policy = ask(server, streaming=streaming)
    assert (answer.text, answer.finish, policy.tally.retries) == ("I cannot help with kernels.", "stop", 0)


def test_of_several_choices_the_first_counts_alone(server):
    server.plan = [{"second_choice": True}]
    (answer,), _ = ask(server, streaming=True, extra_body={"n": 2})
    assert answer.text == server.reply["content"]


@pytest.mark.parametrize("count", [10**25, -1, 1.5, None, [1]], ids=str)
def test_what_is_no_count_of_tokens_counts_none(server, count):
    server.usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
    (answer,), policy = ask(server, input_price=2.0)
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens, policy.tally.dollars) == (0, 0, 0.0)


def test_a_slow_reply_is_given_up_and_asked_for_again(server):
    server.plan = [{"sleep": 2}]
    (answer,), policy = ask(server, retry=QUICK.model_copy(update={"timeout": 0.3}))
    assert answer.finish == "stop" and policy.tally.retries == 1


def test_trouble_is_told_once_until_an_answer_comes(server, caplog):
    server.plan = [{"drop": True}, {"status": 500}, {}, {"drop": True}]

    async def one_after_another():
        config = EndpointConfig(retry=QUICK, api_key_env="DOJO_TEST_KEY")
        policy = EndpointPolicy("some-model", f"{server.address}/v1", config)
        answers = [await policy.answer(request()) for _ in range(2)]
        await policy.close()
        return answers

    assert all(answer.finish == "stop" for answer in asyncio.run(one_after_another()))
    told = [record.getMessage() for record in caplog.records if "trying again" in record.getMessage()]
    assert len(told) == 2
    assert all(line.startswith("openai:") and "\n" not in line and KEY not in line for line in told)


def test_in_the_end_a_failure_says_why(server):
    for trouble, reason in [
        ({"status": 500, "message": "the sky\nfell"}, "HTTP 500"),
        ({"drop": True}, ""),
        ({"body": "garbage"}, ""),
        ({"sleep": 1}, "timed out"),
    ]:
        server.plan = [trouble] * 3
        (answer,), policy = ask(server, retry=QUICK.model_copy(update={"timeout": 0.2}))
        assert answer.finish == "failed" and answer.text == "" and reason in answer.error
        assert "try 3 of 3" in answer.error and "\n" not in answer.error
        assert policy.tally.failures == 1 and policy.tally.retries == 2


@pytest.mark.parametrize(
    "trouble", [{"status": 400}, {"status": 401}, {"status": 404}, {"status": 429, "code": "insufficient_quota"}]
)
def test_what_does_not_pass_is_not_tried_again(server, trouble):
    server.plan = [trouble] * 3
    (answer,), _ = ask(server)
    assert answer.finish == "failed" and f"HTTP {trouble['status']}" in answer.error and len(server.seen) == 1


def test_nobody_listens():
    async def play():
        policy = EndpointPolicy("m", "http://127.0.0.1:9/v1", EndpointConfig(retry=QUICK))
        try:
            return await policy.answer(request())
        finally:
            await policy.close()

    answer = asyncio.run(play())
    assert answer.finish == "failed" and "connection failed" in answer.error


@pytest.mark.parametrize("form", ["seconds", "milliseconds", "date"])
def test_the_server_says_how_long_to_wait(server, form):
    headers = {
        "seconds": {"retry-after": "0.4"},
        "milliseconds": {"retry-after-ms": "400"},
        "date": {"retry-after": formatdate(time.time() + 3, usegmt=True)},
    }[form]
    server.plan = [{"status": 429, "headers": headers}]
    ask(server)
    assert server.times[1] - server.times[0] >= 0.4


def test_no_more_than_so_many_at_once(server):
    server.plan = [{"sleep": 0.05}] * 12
    answers, _ = ask(server, *[request()] * 12, concurrency=3)
    assert all(answer.finish == "stop" for answer in answers)
    assert server.most_active == 3


def test_the_key_is_nowhere(server, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    server.plan = [{"status": 401, "message": f"Incorrect API key provided: {KEY}"}]
    (answer,), policy = ask(server)
    everything = [
        answer.model_dump_json(),
        policy.config.model_dump_json(),
        policy.name,
        caplog.text,
        *capfd.readouterr(),
    ]
    assert "***" in answer.error and not any(KEY in text for text in everything)


FOREIGN = [
    'upstream said: {"Authorization": "Bearer abcDEF.ghi-123"}',
    "Incorrect API key provided: abcdef****wxyz. You can find yours at https://example.com",
    '{"api_key": "0123456789"}',
    "api-key=0123456789&x=1",
    "x-api-key: 0123456789",
    "key sk-proj-0123456789 has no credit",
    "key gsk_0123456789abc is blocked",
    "token hf_0123456789abc is expired",
    "access_token=0123456789abc",
    "could not reach https://user:0123456789@proxy.example/v1",
    "JWT eyJhbGciOi.0123456789.x_y-z is expired",
    "the key 0123456789abcdef0123456789abcdef is unknown",
]


@pytest.mark.parametrize("message", FOREIGN)
def test_nobody_elses_key_is_kept_either(server, caplog, capfd, message):
    server.plan = [{"status": 500, "message": message}, {"status": 400, "message": message}]
    (answer,), _ = ask(server)
    told = [record.getMessage() for record in caplog.records if record.name.startswith("kerneldojo")]
    assert told and "HTTP 400" in answer.error and "***" in answer.error
    for text in (answer.model_dump_json(), *told, *capfd.readouterr()):
        assert not any(part in text for part in ("0123456789", "abcDEF", "wxyz"))


def test_what_an_endpoint_says_is_bounded_and_no_key_is_cut_in_half(server):
    for length in range(230, 300, 7):
        server.plan = [{"status": 400, "message": "no " * (length // 3) + KEY + " x" * 100_000}]
        (answer,), _ = ask(server)
        assert len(answer.error) < 350 and KEY[:6] not in answer.error
    server.plan = [{"status": 400, "message": "max_tokens: 8192 is more than this model's 4096 (request req_17)"}]
    (answer,), _ = ask(server)
    assert "max_tokens: 8192 is more than this model's 4096 (request req_17)" in answer.error


def test_a_key_with_a_line_break_is_refused_without_repeating_it(server, monkeypatch):
    monkeypatch.setenv("DOJO_TEST_KEY", f"{KEY}\n")
    (answer,), _ = ask(server, retry=QUICK.model_copy(update={"attempts": 1}))
    assert answer.finish == "failed" and KEY not in answer.model_dump_json()


def test_a_provider_needs_a_key_and_a_server_an_address(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
        EndpointPolicy("gpt-5")
    with pytest.raises(ValueError, match="http://"):
        EndpointPolicy("gpt-5", "localhost:8000")


def test_it_is_refused_for_rl_in_one_line():
    policy = EndpointPolicy("some-model", "http://user:word@127.0.0.1:9/v1")
    with pytest.raises(ValueError, match=r"openai:some-model@127\.0\.0\.1:9 gives no token ids") as refused:
        require_trainable(policy)
    assert "\n" not in str(refused.value)


def test_an_allowance_is_kept(monkeypatch):
    """Against a clock that sleeping alone moves: the room's own, since other tests' threads sleep too."""
    now = [100.0]

    async def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr("kerneldojo.policies.rates.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("kerneldojo.policies.rates.asyncio", SimpleNamespace(sleep=sleep, Lock=asyncio.Lock))

    async def take(allowance, *amounts):
        times = []
        for amount in amounts:
            await allowance.take(amount)
            times.append(now[0])
        return times

    # A minute's worth at once, then one a second.
    assert asyncio.run(take(Allowance(60), *[1] * 62))[-3:] == pytest.approx([100, 101, 102])
    # More than a minute's worth: not for ever refused, but paid for afterwards.
    now[0] = 0.0
    assert asyncio.run(take(Allowance(60), 90, 30)) == pytest.approx([0, 60])
    # What was estimated too high comes back, what was too low is paid.
    now[0] = 0.0
    allowance = Allowance(60)
    asyncio.run(take(allowance, 60))
    allowance.settle(-60)
    assert asyncio.run(take(allowance, 60)) == [0]
    allowance.settle(60)
    assert asyncio.run(take(allowance, 60)) == pytest.approx([120])
    assert asyncio.run(take(Allowance(None), 1e12)) == [120.0]


def test_limits_per_minute_hold_requests_back(server):
    """Two requests of half a minute's tokens and a little more: the second has to wait for that little."""
    server.usage = {"prompt_tokens": 3_000, "completion_tokens": 300_000, "total_tokens": 303_000}
    started = time.monotonic()  # Not the first one's arrival: a busy machine may hold that back.
    ask(server, *[request(max_tokens=303_000)] * 2, tokens_per_minute=600_000)
    assert server.times[1] - started >= 0.6
