"""A narrow residual stream and compiled layers change how fast a model is, and its numbers by rounding at most."""

from __future__ import annotations

import copy

import pytest
import torch
from test_sampler import PROMPTS, full_log_probs, samples_of
from tiny_models import tiny
from torch._dynamo.testing import CompileCounterWithBackend

from kerneldojo.policies import layers
from kerneldojo.policies.layers import compile_decoding, compile_layers, layers_of, narrow_residual
from kerneldojo.policies.sampler import Sampler, SamplerConfig
from kerneldojo.policies.weights import SamplingCopy

LOW = SamplerConfig(dtype="bfloat16", max_rows=3)
IDS = torch.arange(40).view(2, 20)


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


def streams(model, ids=IDS):
    """What each layer hands on, and the end of it."""
    found = []
    handles = [
        layer.register_forward_hook(
            lambda _, __, output: found.append(output if torch.is_tensor(output) else output[0])
        )
        for layer in layers_of(model)
    ]
    with torch.no_grad(), autocast():
        found.append(model.get_decoder()(ids).last_hidden_state)
    for handle in handles:
        handle.remove()
    return found


@pytest.fixture
def counted(monkeypatch):
    """Compile with a counter of graphs instead of a backend."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    prepare = layers.compiler
    monkeypatch.setattr(layers, "compiler", lambda backend: {**prepare("eager"), "backend": counter})
    yield counter
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_the_stream_is_narrow_under_autocast_and_only_there(kind):
    model = tiny(kind).eval()
    names, plain = list(model.state_dict()), model(IDS).logits
    assert {one.dtype for one in streams(model)} == {torch.float32}
    narrow_residual(model)
    assert {one.dtype for one in streams(model)} == {torch.bfloat16}
    assert torch.equal(model(IDS).logits, plain)
    assert list(model.state_dict()) == names
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_the_copy_to_sample_from_computes_what_the_model_does_bit_for_bit(tied, narrow):
    model = tiny("qwen3", tie_word_embeddings=tied).eval()
    if narrow:
        narrow_residual(model)
    mirror = SamplingCopy(model, torch.bfloat16)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(1.3)
        model.model.layers[1].mlp.up_proj.weight.mul_(1.2)
        model.model.norm.weight.add_(0.01)
        mirror.refresh()
        with autocast():
            assert torch.equal(mirror.model(IDS).logits, model(IDS).logits)
    embeddings = mirror.model.get_input_embeddings().weight
    assert embeddings.dtype == (torch.bfloat16 if narrow else torch.float32)
    assert (embeddings is mirror.model.lm_head.weight) == (tied and narrow)  # nothing is held twice


@pytest.mark.parametrize("narrow", [False, True])
def test_samples_have_the_trainers_log_probs(narrow):
    model = tiny("qwen3").eval()
    if narrow:
        narrow_residual(model)
    for index, sample in samples_of(Sampler(model, [], LOW)).items():
        with autocast():
            expected = full_log_probs(model, PROMPTS[index], sample.ids, 1.0)
        assert (torch.tensor(sample.log_probs) - expected).abs().mean() < 0.012


def test_gradients_of_a_narrow_stream_are_those_of_float32_as_far_as_bfloat16_goes():
    def gradients(narrow, low):
        model = tiny("qwen3", initializer_range=0.1)
        if narrow:
            narrow_residual(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            hidden = model.model(IDS).last_hidden_state
        (hidden.float() * torch.sin(torch.arange(hidden.numel())).view_as(hidden)).sum().backward()
        found = [parameter.grad for parameter in model.model.parameters()]
        assert {one.dtype for one in found} == {torch.float32}
        return torch.cat([one.flatten() for one in found])

    exact = gradients(False, False)
    away = {narrow: (gradients(narrow, True) - exact).norm() / exact.norm() for narrow in (False, True)}
    assert away[False] < 0.02 and away[True] < 0.04


def run(model, rows=2, length=20, *, masked=False, gradients=True):
    positions = torch.arange(length)[None].expand(rows, length)
    with torch.set_grad_enabled(gradients), autocast():
        found = model.get_decoder()(
            input_ids=torch.arange(rows * length).view(rows, length) % 97,
            position_ids=positions % 7 if masked else positions,
            use_cache=False,
        ).last_hidden_state
    if gradients:
        model.zero_grad()
        found.float().square().sum().backward()
        return found, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return found, []


@pytest.mark.slow
def test_one_compiled_program_serves_all_layers_and_shapes(counted):
    model = tiny("qwen3", num_hidden_layers=4).train()
    narrow_residual(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    names, other = list(model.state_dict()), copy.deepcopy(model)
    compile_layers(model)
    assert list(model.state_dict()) == names
    numbers = []
    for told in (
        {},
        {"rows": 3, "length": 24},
        {"rows": 5, "length": 9},
        {"masked": True},
        {"rows": 3, "masked": True},
    ):
        mine, expected = run(model, **told), run(other, **told)
        assert torch.equal(mine[0], expected[0])
        for one, two in zip(mine[1], expected[1], strict=True):
            torch.testing.assert_close(one, two)
        numbers.append(counted.frame_count)
    # One more for masked rows; no layer and no shape has one of its own.
    assert numbers[0] == numbers[2] and numbers[3] == numbers[4] and numbers[4] <= 4
    model.eval()
    run(model, gradients=False)
    at_rest = counted.frame_count
    run(model, rows=4, length=11, gradients=False)
    assert counted.frame_count == at_rest
    before = counted.frame_count
    run(copy.deepcopy(model))
    assert counted.frame_count == before  # a copy is not compiled


def test_compiled_layers_with_adapters_switched_on_and_off(counted):
    from peft import LoraConfig, get_peft_model

    model = tiny("llama").train()
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear"))
    torch.nn.init.normal_(model.model.layers[0].self_attn.q_proj.lora_B["default"].weight, std=0.3)
    narrow_residual(model)
    other = copy.deepcopy(adapted)
    compile_layers(model)
    mine, expected = run(adapted.get_base_model()), run(other.get_base_model())
    assert torch.equal(mine[0], expected[0]) and len(mine[1]) == len(expected[1]) > 0
    with adapted.disable_adapter(), other.disable_adapter():
        off = run(adapted.get_base_model(), gradients=False)[0]
        assert torch.equal(off, run(other.get_base_model(), gradients=False)[0])
    assert not torch.equal(off, mine[0])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shared"), [("qwen3", 2), ("llama", 4)])
def test_one_compiled_program_serves_all_layers_of_a_decoding_step(counted, kind, shared):
    model = tiny(kind, num_hidden_layers=4, num_key_value_heads=shared).eval()
    narrow_residual(model)
    expected = samples_of(Sampler(model, [1, 2], LOW))
    sampler = Sampler(model, [1, 2], LOW)
    compile_decoding(sampler.model)
    assert samples_of(sampler) == expected
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    assert samples_of(sampler, max_tokens=40) == samples_of(Sampler(model, [1, 2], LOW), max_tokens=40) != expected
    assert 1 <= counted.frame_count <= 2  # several rows, and one


@pytest.mark.slow
def test_fused_operations_round_where_they_did_before():
    """With torch's own compiler: decoding is the same to the bit, a training pass to the order of sums."""
    torch._dynamo.reset()
    model = tiny("qwen3", num_hidden_layers=1)
    narrow_residual(model)
    expected = samples_of(Sampler(model, [], LOW))
    sampler = Sampler(model, [], LOW)
    compile_decoding(sampler.model)
    assert samples_of(sampler) == expected
    other = copy.deepcopy(model)
    compile_layers(model)
    mine, theirs = run(model), run(other)
    torch.testing.assert_close(mine[0], theirs[0], atol=0.02, rtol=0.02)
    for one, two in zip(mine[1], theirs[1], strict=True):
        assert (one - two).norm() < 0.01 * two.norm() + 1e-6
    torch._dynamo.reset()
