"""A model in this process as a policy: concurrent requests share batches; a checkpoint folder opens."""

from __future__ import annotations

import asyncio
import math

import pytest
import torch
from policy_requests import request
from tiny_models import tiny
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kerneldojo.policies import open_policy, require_trainable
from kerneldojo.policies.answers import answer_of
from kerneldojo.policies.local import LocalConfig, LocalPolicy
from kerneldojo.policies.rows import Row, Sampled
from kerneldojo.policies.sampler import Sampler, SamplerConfig

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}go{% endif %}"
)


def words_tokenizer():
    """97 words: w0 to w91, and those of the chat."""
    words = ["<end>", "system", "user", "assistant", "go", *(f"w{i}" for i in range(92))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="w0")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def ask(policy, *requests):
    async def play():
        try:
            return await asyncio.gather(*(policy.answer(each) for each in requests))
        finally:
            await policy.close()

    return asyncio.run(play())


def test_concurrent_requests_are_sampled_as_they_would_be_alone():
    model, tokenizer = tiny("qwen3"), words_tokenizer()
    prompts = [(5, 6, 7 + i % 3) for i in range(9)]
    config = LocalConfig(sampler=SamplerConfig(max_rows=4))
    policy = LocalPolicy(model, tokenizer, config=config)
    policy.version = 12
    requests = [request(prompt_ids=p, max_tokens=5 + 3 * i, seed=i, temperature=0.9) for i, p in enumerate(prompts)]
    answers = ask(policy, *requests)
    limits = [each.max_tokens for each in requests]
    alone = Sampler(model, [0]).generate(prompts, max_tokens=limits, temperature=0.9, seeds=range(9))
    assert {answer.finish for answer in answers} == {"stop", "length"}
    for answer, prompt, sampled in zip(answers, prompts, alone, strict=True):
        assert answer.answer_ids == sampled.ids and answer.prompt_ids == prompt and answer.finish == sampled.finish
        assert answer.log_probs == pytest.approx(sampled.log_probs, abs=1e-4)
        assert answer.version == 12 and answer.is_trainable and answer.usage.answer_tokens == len(sampled.ids)
        assert "<end>" not in answer.text and len(answer.text.split()) == len(sampled.ids) - (answer.finish == "stop")


def test_the_chat_template_renders_what_comes_without_ids():
    tokenizer = words_tokenizer()
    (answer,) = ask(LocalPolicy(tiny("llama"), tokenizer), request("w3 w4", max_tokens=4))
    assert answer.prompt_ids == tuple(tokenizer.encode("system w0 w0 w0 user w3 w4 go"))
    tokenizer.chat_template = None
    (answer,) = ask(LocalPolicy(tiny("llama"), tokenizer), request("w3 w4", max_tokens=4))
    assert answer.finish == "failed" and "no chat template" in answer.error


def test_a_prompt_that_does_not_fit_fails_and_the_others_do_not():
    policy = LocalPolicy(tiny("llama"), words_tokenizer(), name="hf:tiny")
    long, fine = ask(policy, request(prompt_ids=(3,) * 200), request(prompt_ids=(3,) * 100, max_tokens=5))
    assert long.finish == "failed" and "200 tokens" in long.error
    assert fine.finish in ("stop", "length")
    (late,) = ask(policy, request(prompt_ids=(3,)))
    assert late.finish == "failed" and "closed" in late.error


def test_a_model_that_breaks_fails_its_requests_and_not_the_policy():
    model = tiny("llama")
    policy = LocalPolicy(model, words_tokenizer(), end_ids=())

    async def play():
        weight = model.lm_head.weight
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(97, 5))
        broken = await asyncio.gather(*(policy.answer(request(prompt_ids=(3, i), max_tokens=4)) for i in range(3)))
        model.lm_head.weight = weight
        mended = await policy.answer(request(prompt_ids=(3, 4), max_tokens=4))
        await policy.close()
        return broken, mended

    broken, mended = asyncio.run(play())
    assert all(answer.finish == "failed" and "RuntimeError" in answer.error for answer in broken)
    assert mended.finish == "length" and len(mended.answer_ids) == 4


def test_a_model_that_gives_no_numbers_fails_in_one_line():
    """A log-probability that is none cannot be kept: a run folder that held one could not be read again."""
    model = tiny("llama")
    model.lm_head.weight.data.fill_(math.nan)
    (answer,) = ask(LocalPolicy(model, words_tokenizer(), end_ids=()), request(prompt_ids=(3, 4), max_tokens=4))
    assert answer.finish == "failed" and "not finite" in answer.error and answer.log_probs is None


@pytest.mark.parametrize(("finish", "ids"), [("stop", (5, 0, 6, 0)), ("length", (5, 0, 6))])
def test_the_text_is_all_but_the_end_token(finish, ids):
    """Also for training: an answer that is code only without its special tokens would be no code in a benchmark."""
    answer = answer_of(Row((3,), 9), Sampled(ids, (-0.5,) * len(ids), finish), words_tokenizer(), version=2)
    assert answer.text == "w0 <end> w1" and answer.answer_ids == ids and answer.is_trainable
    assert answer.usage.answer_tokens == len(ids) and answer.version == 2


def test_who_has_gone_is_not_waited_for_and_weights_may_change_in_between():
    model = tiny("qwen3").train()
    policy = LocalPolicy(model, words_tokenizer(), end_ids=())

    async def play():
        first = await policy.answer(request(prompt_ids=(3, 4), max_tokens=6))
        gone = asyncio.ensure_future(policy.answer(request(prompt_ids=(3, 4), max_tokens=60)))
        await asyncio.sleep(0)
        gone.cancel()
        with torch.no_grad():
            model.model.embed_tokens.weight.mul_(-1)
        policy.version = 1
        second = await policy.answer(request(prompt_ids=(3, 4), max_tokens=6))
        await policy.close()
        return first, second

    first, second = asyncio.run(play())
    assert first.version is None and second.version == 1 and first.answer_ids != second.answer_ids
    assert model.training


def test_an_answer_is_of_one_version():
    """A new version waits until what is under way has ended."""
    policy = LocalPolicy(tiny("qwen3"), words_tokenizer(), end_ids=(), config=LocalConfig(window=0))

    async def play():
        running = [asyncio.ensure_future(policy.answer(request(prompt_ids=(3, i), max_tokens=90))) for i in range(3)]
        while not policy._running:
            await asyncio.sleep(0.001)
        policy.version = 1
        late = [asyncio.ensure_future(policy.answer(request(prompt_ids=(3, i), max_tokens=3))) for i in range(3)]
        answers = await asyncio.gather(*running, *late)
        await policy.close()
        return [answer.version for answer in answers], [answer.finish for answer in answers]

    versions, finishes = asyncio.run(play())
    assert versions[0] is None and versions[3:] == [1, 1, 1] and finishes == ["length"] * 6


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny("qwen3", eos_token_id=0).save_pretrained(folder)
    words_tokenizer().save_pretrained(folder)
    return folder


def test_a_checkpoint_folder_opens(checkpoint):
    policy = open_policy(f"hf:{checkpoint}", device="cpu", sampler={"max_rows": 2})
    require_trainable(policy)
    with pytest.raises(ValueError, match="temperature above 0"):
        require_trainable(policy, temperature=0)
    assert policy.name == f"hf:{checkpoint.name}" and policy.end_ids == (0,)
    assert next(policy.model.parameters()).dtype == torch.float32
    (answer,) = ask(policy, request(prompt_ids=(5, 6), max_tokens=10, seed=4))
    expected = Sampler(tiny("qwen3"), [0]).generate([(5, 6)], max_tokens=10, seeds=[4])[0]
    assert answer.answer_ids == expected.ids
    low = open_policy(f"hf:{checkpoint}", dtype="bfloat16")
    assert next(low.model.parameters()).dtype == torch.bfloat16
    (answer,) = ask(low, request(prompt_ids=(5, 6), max_tokens=10, seed=4))
    assert answer.is_trainable


def test_an_adapter_is_merged(checkpoint, tmp_path):
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(tiny("qwen3"), LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear"))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    policy = open_policy(f"hf:{checkpoint}", adapter=str(tmp_path / "adapter"))
    (answer,) = ask(policy, request(prompt_ids=(5, 6), max_tokens=8, seed=4))
    expected = Sampler(adapted, [0]).generate([(5, 6)], max_tokens=8, seeds=[4])[0]
    assert answer.answer_ids == expected.ids
    with pytest.raises(ValueError, match="cannot load the adapter"):
        open_policy(f"hf:{checkpoint}", adapter=str(tmp_path / "nothing"))
