"""The sampler against the model's own full forward and against transformers' `generate`."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny
from transformers import AutoConfig, AutoModelForCausalLM

from kerneldojo.policies import agreement
from kerneldojo.policies.sampler import Sampler, SamplerConfig, end_ids_of

LENGTHS = [5, 1, 17, 9, 5, 30, 2, 12]
PROMPTS = [[(7 * i + 3 * j + 1) % 97 for j in range(n)] for i, n in enumerate(LENGTHS)]
PROMPTS[4] = PROMPTS[0]
SEEDS = list(range(100, 100 + len(PROMPTS)))


def full_log_probs(model, prompt, ids, temperature):
    """Log-probabilities of `ids` after `prompt`, from one forward of everything."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.float() / temperature, -1)[torch.arange(len(ids)), torch.tensor(ids)]


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("max_rows", [3, 64])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_those_of_a_full_forward(kind, max_rows, temperature):
    model = tiny(kind).eval()
    sampler = Sampler(model, [1, 2, 3], SamplerConfig(max_rows=max_rows, prefill_tokens=20))
    samples = sampler.generate(PROMPTS, max_tokens=25, temperature=temperature, seeds=SEEDS)
    assert {sample.finish for sample in samples} == {"stop", "length"}
    for prompt, sample in zip(PROMPTS, samples, strict=True):
        expected = full_log_probs(model, prompt, sample.ids, temperature)
        torch.testing.assert_close(torch.tensor(sample.log_probs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_greedy_is_that_of_generate(kind):
    model = tiny(kind).eval()
    samples = Sampler(model, []).generate(PROMPTS, max_tokens=20, temperature=0, seeds=SEEDS)
    for prompt, sample in zip(PROMPTS, samples, strict=True):
        inputs = torch.tensor([prompt])
        expected = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=20, do_sample=False, pad_token_id=0
        )
        assert sample.ids == tuple(expected[0, len(prompt) :].tolist())
        assert set(sample.log_probs) == {0.0}


def samples_of(sampler, order=None, **settings):
    order = list(range(len(PROMPTS))) if order is None else order
    settings = {"max_tokens": 25, **settings}
    found = sampler.generate([PROMPTS[i] for i in order], seeds=[SEEDS[i] for i in order], **settings)
    return dict(zip(order, found, strict=True))


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_a_sample_depends_on_its_seed_and_not_on_its_neighbours(max_rows):
    model = tiny("qwen3")
    together = samples_of(Sampler(model, [1, 2, 3]))
    apart = samples_of(Sampler(model, [1, 2, 3], SamplerConfig(max_rows=max_rows, look_every=3)), order=[6, 2, 7, 0, 4])
    for index, sample in apart.items():
        assert sample.ids == together[index].ids and sample.finish == together[index].finish
        assert sample.log_probs == pytest.approx(together[index].log_probs, abs=1e-4)


def test_seeds_decide():
    model = tiny("llama")
    sampler = Sampler(model, [])
    first, again, other = (
        sampler.generate([PROMPTS[2]] * 3, max_tokens=20, seeds=seeds)
        for seeds in ([5, 6, -7], [5, 6, -7], [6, 5, 1 << 40])
    )
    assert first == again
    assert first[0].ids == other[1].ids and first[1].ids == other[0].ids
    assert len({sample.ids for sample in [*first, other[2]]}) == 4


def test_a_longer_limit_continues_the_same_answer():
    sampler = Sampler(tiny("qwen3"), [])
    short, long = (sampler.generate(PROMPTS, max_tokens=n, seeds=SEEDS) for n in (7, 19))
    assert all(a.ids == b.ids[:7] and len(b.ids) == 19 for a, b in zip(short, long, strict=True))


def test_an_end_token_ends_an_answer_and_belongs_to_it():
    found = samples_of(Sampler(tiny("llama"), [4, 5, 6]), max_tokens=20)
    assert {sample.finish for sample in found.values()} == {"stop", "length"}
    for sample in found.values():
        assert len(sample.ids) == len(sample.log_probs) <= 20
        ends = [token in range(4, 7) for token in sample.ids]
        assert not any(ends[:-1])
        assert ends[-1] == (sample.finish == "stop")
        assert sample.finish == "stop" or len(sample.ids) == 20


def test_limits_and_temperatures_of_their_own():
    model = tiny("qwen3").eval()
    limits, temperatures = [3, 9, 1, 30, 2, 5, 8, 4], [0.0, 1.0, 0.5, 2.0, 1.0, 0.0, 1.0, 0.7]
    sampler = Sampler(model, [], SamplerConfig(max_rows=3))
    samples = sampler.generate(PROMPTS, max_tokens=limits, temperature=temperatures, seeds=SEEDS)
    assert [len(sample.ids) for sample in samples] == limits
    for prompt, temperature, sample in zip(PROMPTS, temperatures, samples, strict=True):
        if temperature == 0:
            assert set(sample.log_probs) == {0.0}
        else:
            expected = full_log_probs(model, prompt, sample.ids, temperature)
            torch.testing.assert_close(torch.tensor(sample.log_probs), expected, atol=1e-4, rtol=0)


def test_answers_end_where_the_model_has_no_more_positions():
    model = tiny("llama")
    sample = Sampler(model, []).generate([[3] * 120], max_tokens=50, seeds=[0])[0]
    assert len(sample.ids) == 8 and sample.finish == "length"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": [[]], "max_tokens": 3, "seeds": [0]}, "at least one token"),
        ({"prompts": [[1] * 128], "max_tokens": 3, "seeds": [0]}, "does not fit a model of 128 positions"),
        ({"prompts": [[1]], "max_tokens": 0, "seeds": [0]}, "max_tokens >= 1"),
        ({"prompts": [[1]], "max_tokens": 3, "seeds": [0], "temperature": -1}, "temperature >= 0"),
        ({"prompts": [[1]], "max_tokens": 3, "seeds": [0], "top_p": 0}, "top_p"),
        ({"prompts": [[1]], "max_tokens": 3, "seeds": [0, 1]}, "as many seeds"),
        ({"prompts": [[1]], "max_tokens": [3, 4], "seeds": [0]}, "as many values"),
    ],
)
def test_bad_requests_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as refused:
        Sampler(tiny("llama"), []).generate(**arguments)
    assert "\n" not in str(refused.value)


def test_sliding_windows_are_refused():
    model = tiny("qwen3", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    with pytest.raises(ValueError, match="sliding_attention"):
        Sampler(model, [])


def test_nothing_to_sample():
    assert Sampler(tiny("llama"), []).generate([], max_tokens=3, seeds=[]) == []


def test_training_mode_comes_back_and_dropout_stays_off_in_between():
    model = tiny("qwen3", attention_dropout=0.5).train()
    first = samples_of(Sampler(model, []))
    assert model.training
    assert first == samples_of(Sampler(model.eval(), []))


def test_new_weights_count_at_once():
    model = tiny("qwen3")
    sampler = Sampler(model, [])
    before = samples_of(sampler)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    after = samples_of(sampler)
    assert before != after and after == samples_of(Sampler(model, []))


@pytest.mark.parametrize("tied", [False, True])
def test_a_low_precision_copy_computes_as_autocast_does(tied):
    model = tiny("qwen3", tie_word_embeddings=tied).eval()
    sampler = Sampler(model, [], SamplerConfig(dtype="bfloat16", max_rows=3))
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)  # After the copy was made: it must be refreshed.
    for index, sample in samples_of(sampler).items():
        with torch.autocast("cpu", torch.bfloat16):
            expected = full_log_probs(model, PROMPTS[index], sample.ids, 1.0)
        exact = full_log_probs(model, PROMPTS[index], sample.ids, 1.0)
        ours = torch.tensor(sample.log_probs)
        assert (ours - expected).abs().mean() < 0.01
        assert (ours - exact).abs().max() > 1e-4  # It really is another precision.
        assert (ours - exact).abs().mean() < 0.1


def test_adapters_are_sampled_with():
    from peft import LoraConfig, get_peft_model

    model = tiny("llama")
    plain = samples_of(Sampler(model, []))
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear"))
    assert samples_of(Sampler(adapted, [])) == plain  # Adapters begin as nothing.
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    sampled = samples_of(Sampler(adapted, []))
    assert sampled != plain
    expected = full_log_probs(adapted.eval(), PROMPTS[2], sampled[2].ids, 1.0)
    torch.testing.assert_close(torch.tensor(sampled[2].log_probs), expected, atol=1e-4, rtol=0)


def test_rows_join_a_running_batch_and_memory_grows():
    """Rows come one after the other, longer and longer, while earlier ones run."""
    model = tiny("qwen3")
    alone = samples_of(Sampler(model, [1, 2]), max_tokens=40)
    sampler = Sampler(model, [1, 2], SamplerConfig(max_rows=4))
    order = sorted(range(len(PROMPTS)), key=lambda i: len(PROMPTS[i]))
    coming = [sampler.row(PROMPTS[i], 40, seed=SEEDS[i], tag=i) for i in order]
    seen, most = {}, 0

    def take(free, idle):
        nonlocal most
        most = max(most, 4 - free)
        return [coming.pop(0)] if coming else None

    sampler.serve(take, lambda row, sample: seen.__setitem__(row.tag, sample))
    assert {i: sample.ids for i, sample in seen.items()} == {i: sample.ids for i, sample in alone.items()}
    assert most >= 2


def test_a_bound_on_the_cache_is_kept():
    model = tiny("llama")
    sampler = Sampler(model, [], SamplerConfig(max_cache_tokens=150))
    found = samples_of(sampler)
    assert found == samples_of(Sampler(model, [], SamplerConfig(max_rows=2)))
    cache = sampler._state.cache
    assert cache.num_slots * cache.length <= 150
    sampler.generate([[3] * 70], max_tokens=20, seeds=[0])
    cache = sampler._state.cache
    assert cache.length >= 89 and cache.num_slots * cache.length <= 150


def test_release_gives_memory_back_and_sampling_goes_on():
    sampler = Sampler(tiny("llama"), [])
    first = samples_of(sampler)
    sampler.release()
    assert sampler._state is None and samples_of(sampler) == first


def test_end_ids_are_found():
    class Holder:
        eos_token_id = 7

    model = tiny("llama", eos_token_id=[3, 5])
    assert end_ids_of(model, Holder()) == (3, 5, 7)
    assert end_ids_of(tiny("llama")) == ()


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
def test_grouped_attention_is_attention(heads, shared):
    from kerneldojo.policies.attention import grouped_attention

    torch.manual_seed(0)
    query, key, value = torch.randn(3, heads, 1, 8), torch.randn(3, shared, 11, 8), torch.randn(3, shared, 11, 6)
    mask = torch.arange(11) <= torch.tensor([[0], [4], [10]])
    output, _ = grouped_attention(torch.nn.Module(), query, key, value, mask[:, None, None, :], scaling=0.3)
    repeated = [each.repeat_interleave(heads // shared, 1) for each in (key, value)]
    scores = (query @ repeated[0].mT * 0.3).masked_fill(~mask[:, None, None, :], -torch.inf)
    torch.testing.assert_close(output, (scores.softmax(-1) @ repeated[1]).transpose(1, 2))


def test_the_model_keeps_its_own_attention():
    model = tiny("qwen3")
    samples_of(Sampler(model, []))
    assert model.config._attn_implementation == "sdpa"


SMALL = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
OTHERS = {
    "gpt2": {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "opt": {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "gpt_neox": {**SMALL, "intermediate_size": 48},
    "qwen2_moe": {
        **SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    },
    "falcon": SMALL,
    "bloom": {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gpt_neo": {
        "vocab_size": 97, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4,
        "attention_types": [[["global", "local"], 1]],
    },
}  # fmt: skip


def other(kind):
    """A model of another architecture, in whose logits every layer counts."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **OTHERS[kind])).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return model


@pytest.mark.parametrize("kind", ["gpt2", "opt", "gpt_neox", "qwen2_moe"])
@pytest.mark.parametrize("dtype", ["model", "bfloat16"])
def test_a_model_that_is_decoded_as_it_reads_is_trusted(kind, dtype):
    Sampler(other(kind), [], SamplerConfig(dtype=dtype)).check()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_rounding_is_told_from_a_model_that_is_decoded_wrongly(attention):
    model = tiny("qwen3")
    model.config._attn_implementation = attention
    for dtype, most in (("model", 1e-5), ("bfloat16", agreement.MOST / 5)):
        sampler = Sampler(model, [], SamplerConfig(dtype=dtype))
        with sampler._evaluating():
            assert agreement.disagreement(sampler.model) < most


@pytest.mark.parametrize(
    ("kind", "told"),
    [("falcon", "they are off by"), ("gpt_neo", "they are off by"), ("bloom", "cannot decode bloom: ")],
)
def test_a_model_that_is_decoded_wrongly_is_refused_in_one_line(kind, told):
    with pytest.raises(ValueError, match=told) as refused:
        Sampler(other(kind), []).check()
    assert kind in str(refused.value) and "\n" not in str(refused.value)
