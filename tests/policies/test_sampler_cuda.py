"""The sampler on a GPU: recorded steps give what unrecorded ones and the model's own forward give."""

from __future__ import annotations

import pytest
import torch
from test_sampler import PROMPTS, SEEDS, full_log_probs
from tiny_models import tiny

from kerneldojo.policies.layers import compile_layers, narrow_residual
from kerneldojo.policies.sampler import Sampler, SamplerConfig

pytestmark = pytest.mark.gpu


def log_probs_on_gpu(model, prompt, ids):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]], device="cuda")).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.float(), -1).cpu()[torch.arange(len(ids)), torch.tensor(ids)]


@pytest.mark.parametrize("graphs", [True, False])
def test_log_probs_are_those_of_a_full_forward(graphs):
    model = tiny("qwen3").cuda().eval()
    sampler = Sampler(model, [1, 2], SamplerConfig(max_rows=4, cuda_graphs=graphs))
    for _ in range(2):
        for prompt, sample in zip(PROMPTS, sampler.generate(PROMPTS, max_tokens=40, seeds=SEEDS), strict=True):
            expected = log_probs_on_gpu(model, prompt, sample.ids)
            torch.testing.assert_close(torch.tensor(sample.log_probs), expected, atol=1e-3, rtol=0)
    assert (sampler._graphs is not None and len(sampler._graphs.graphs) > 0) == graphs


def test_graphs_see_new_weights_and_forget_moved_ones():
    model = tiny("llama").cuda().eval()
    sampler = Sampler(model, [])
    sampler.generate(PROMPTS, max_tokens=20, seeds=SEEDS)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    in_place = sampler.generate(PROMPTS, max_tokens=20, temperature=0, seeds=SEEDS)
    assert in_place == Sampler(model, []).generate(PROMPTS, max_tokens=20, temperature=0, seeds=SEEDS)
    model.lm_head.weight = torch.nn.Parameter(-model.lm_head.weight.detach())
    moved = sampler.generate(PROMPTS, max_tokens=20, temperature=0, seeds=SEEDS)
    assert moved == Sampler(model, []).generate(PROMPTS, max_tokens=20, temperature=0, seeds=SEEDS) != in_place


def test_a_low_precision_copy():
    model = tiny("qwen3").cuda().eval()
    samples = Sampler(model, [], SamplerConfig(dtype="bfloat16")).generate(PROMPTS, max_tokens=20, seeds=SEEDS)
    for prompt, sample in zip(PROMPTS, samples, strict=True):
        with torch.autocast("cuda", torch.bfloat16):
            expected = log_probs_on_gpu(model, prompt, sample.ids)
        assert (torch.tensor(sample.log_probs) - expected).abs().mean() < 0.02


def test_top_p_and_greedy_rows_in_one_batch():
    model = tiny("llama").cuda().eval()
    temperatures = [0.0, 1.0] * 4
    samples = Sampler(model, []).generate(
        PROMPTS, max_tokens=9, temperature=temperatures, top_p=[1.0, 0.8] * 4, seeds=SEEDS
    )
    for prompt, heat, sample in zip(PROMPTS, temperatures, samples, strict=True):
        assert len(sample.ids) == 9
        if heat == 0:
            assert set(sample.log_probs) == {0.0}
        else:
            # Truncation renormalises: never less likely than without it.
            untruncated = full_log_probs(model.cpu(), prompt, sample.ids, 1.0)
            model.cuda()
            assert (torch.tensor(sample.log_probs) >= untruncated - 1e-3).all()


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True])
def test_compiled_decoding_gives_what_it_gives_uncompiled(narrow):
    model = tiny("qwen3", num_hidden_layers=3).cuda().eval()
    if narrow:
        narrow_residual(model)
    settings = {"dtype": "bfloat16", "max_rows": 4}
    plain = Sampler(model, [1, 2], SamplerConfig(**settings))
    compiled = Sampler(model, [1, 2], SamplerConfig(**settings, compile=True))
    for graphs in (False, True):  # the second time from recorded steps
        expected = plain.generate(PROMPTS, max_tokens=40, seeds=SEEDS)
        found = compiled.generate(PROMPTS, max_tokens=40, seeds=SEEDS)
        assert graphs is False or compiled._graphs.graphs
        for prompt, sample, other in zip(PROMPTS, found, expected, strict=True):
            with torch.autocast("cuda", torch.bfloat16):
                own = log_probs_on_gpu(model, prompt, sample.ids)
            assert (torch.tensor(sample.log_probs) - own).abs().mean() < 0.02
            same = next((i for i, (a, b) in enumerate(zip(sample.ids, other.ids, strict=False)) if a != b), 99)
            near = torch.tensor(sample.log_probs[:same]) - torch.tensor(other.log_probs[:same])
            assert same > 0 and near.abs().mean() < 0.02


@pytest.mark.slow
def test_compiled_layers_learn_what_they_learn_uncompiled():
    def gradients(model):
        ids = torch.arange(64, device="cuda").view(2, 32)
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        hidden.float().square().sum().backward()
        return torch.cat([one.grad.flatten() for one in model.model.parameters()])

    model = tiny("qwen3", initializer_range=0.1).cuda()
    narrow_residual(model)
    plain = gradients(model)
    model.zero_grad()
    compile_layers(model)
    assert (gradients(model) - plain).norm() < 0.02 * plain.norm()
