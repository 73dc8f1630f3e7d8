"""Packing: what stands side by side in a row does not see one another, and nothing is lost or counted twice."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
import torch
import toy_world
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MptConfig,
    OPTConfig,
    Qwen3Config,
)

from kerneldojo.policies.sampler import SamplerConfig
from kerneldojo.training.learner import open_learner
from kerneldojo.training.model_config import ModelConfig, NewModelConfig
from kerneldojo.training.models import new_model
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import (
    WIDTH_MULTIPLE,
    Sample,
    fill_rows,
    make_batches,
    num_cells,
    rows_alone,
    sample_of_token,
    token_offsets,
)
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.scoring import Scorer, has_plain_output, score_all

CPU = torch.device("cpu")
TOKENIZER = toy_world.tokenizer()


def random_samples(count: int, seed: int = 0) -> list[Sample]:
    generator = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(7, 250, (length,), generator=generator).tolist())

    return [Sample(ids(1, 20), ids(1, 12)) for _ in range(count)]


@given(st.lists(st.integers(1, 90), max_size=60), st.integers(10, 100))
def test_rows_hold_every_sample_once_and_are_not_overfull(lengths: list[int], row_tokens: int) -> None:
    rows = fill_rows(lengths, row_tokens)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(len(row) == 1 or sum(lengths[index] for index in row) <= row_tokens for row in rows)


@given(st.lists(st.integers(1, 90), max_size=60), st.integers(10, 300))
def test_rows_of_one_sample_each_are_padded_as_little_as_may_be(lengths: list[int], batch_tokens: int) -> None:
    batches = rows_alone(lengths, batch_tokens)
    flat = [index for batch in batches for row in batch for index in row]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[index] for index in flat] == sorted(lengths, reverse=True)
    assert all(len(batch) == 1 or num_cells([batch], lengths) <= batch_tokens for batch in batches)
    assert num_cells(batches, lengths) >= sum(lengths)


@given(
    st.lists(st.integers(2, 900), min_size=1, max_size=40),
    st.integers(10, 300),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([1, 8, 64]),
)
@settings(deadline=None, max_examples=100)
def test_no_batch_holds_more_tokens_than_it_may_but_for_one_long_sample(
    lengths: list[int], row_tokens: int, num_rows: int, any_order: bool, width_multiple: int
) -> None:
    """A sample longer than a row makes all rows of its batch as wide: it may not have as many beside it."""
    samples = [Sample((5,) * (length - 1), (6,)) for length in lengths]
    batch_tokens = row_tokens * num_rows
    batches = make_batches(
        samples, row_tokens=row_tokens, batch_tokens=batch_tokens, any_order=any_order, width_multiple=width_multiple
    )
    for batch in batches:
        assert batch.input_ids.shape[1] % width_multiple == 0
        assert batch.input_ids.numel() <= batch_tokens or batch.input_ids.shape[0] == 1
    assert sorted(token for batch in batches for token in batch.tokens.tolist()) == list(range(len(samples)))
    if max(lengths) <= row_tokens and not any_order and width_multiple == 1:
        assert len(batches) == -(-len(fill_rows(lengths, row_tokens)) // num_rows), "as full as it may be"


def test_short_samples_of_very_different_lengths_are_packed_all_the_same() -> None:
    samples = [Sample((1,) * length, (2,)) for length in (7, 7, 7, 60, 7, 7)]
    (packed,) = make_batches(samples, row_tokens=61, batch_tokens=400, any_order=True)
    assert packed.input_ids.shape == (2, 61)
    similar = [Sample((1,) * length, (2,)) for length in (60, 59, 61, 60)]
    alone = make_batches(similar, row_tokens=62, batch_tokens=124, any_order=True)
    assert [tuple(batch.input_ids.shape) for batch in alone] == [(2, 62), (2, 61)]


@given(st.integers(1, 30), st.integers(0, 5), st.booleans(), st.booleans(), st.data())
@settings(max_examples=50)
def test_batches_hold_the_tokens_of_the_chosen(
    count: int, seed: int, any_order: bool, alone: bool, data: st.DataObject
) -> None:
    samples = random_samples(count, seed)
    chosen = data.draw(st.lists(st.sampled_from(range(count)), unique=True))
    batches = make_batches(samples, chosen=chosen, row_tokens=40, batch_tokens=100, any_order=any_order, alone=alone)
    offsets = token_offsets(samples)
    expected = sorted(token for index in chosen for token in range(offsets[index], offsets[index + 1]))
    assert sorted(token for batch in batches for token in batch.tokens.tolist()) == expected
    assert sum(batch.num_tokens for batch in batches) == sum(len(samples[index]) for index in chosen)
    answers = [token for sample in samples for token in sample.answer]
    for batch in batches:
        assert batch.targets.tolist() == [answers[token] for token in batch.tokens.tolist()]
        following = batch.input_ids.flatten()[batch.predictors + 1]
        assert torch.equal(following, batch.targets)
    assert len(sample_of_token(samples)) == offsets[-1]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_packed_is_equal_to_one_by_one(family: str) -> None:
    shape = NewModelConfig(vocabulary=512, hidden=32, intermediate=48, layers=2, heads=2, context=256, family=family)
    scorer = Scorer(new_model(shape, TOKENIZER, seed=1))
    samples = random_samples(14)
    num_tokens = token_offsets(samples)[-1]
    results = []
    for packing in (
        {"row_tokens": 1, "batch_tokens": 1},
        {"row_tokens": 64, "batch_tokens": 200},
        {"row_tokens": 33, "batch_tokens": 60, "any_order": True},
        {"row_tokens": 64, "batch_tokens": 200, "width_multiple": 64},
        {"row_tokens": 33, "batch_tokens": 60, "alone": True, "width_multiple": 16},
    ):
        scorer.zero_grad()
        batches = make_batches(samples, **packing)
        assert (len(batches) == len(samples)) == (packing["row_tokens"] == 1)
        is_alone = [bool((batch.position_ids.diff() == 1).all()) for batch in batches]
        assert all(is_alone) == (packing["row_tokens"] != 64), "only rows of several samples need a mask"
        scores = score_all(scorer, batches, num_tokens, 0.7, CPU)
        for batch in batches:
            (scorer(batch, 0.7).log_probs * torch.sin(batch.tokens)).sum().backward()
        results.append((scores, [p.grad.clone() for p in scorer.parameters()]))
    alone, alone_grads = results[0]
    for packed, packed_grads in results[1:]:
        assert torch.allclose(alone.log_probs, packed.log_probs, atol=1e-5)
        assert torch.allclose(alone.entropy, packed.entropy, atol=1e-5)
        for first, second in zip(alone_grads, packed_grads, strict=True):
            assert torch.allclose(first, second, atol=1e-5)


@pytest.mark.parametrize(
    ("device", "positions", "multiple"), [("cpu", 256, 1), ("cuda", 256, WIDTH_MULTIPLE), ("cuda", 250, 1)]
)
def test_widths_are_rounded_on_gpus_and_never_past_the_last_position(
    device: str, positions: int, multiple: int
) -> None:
    shape = NewModelConfig(vocabulary=512, hidden=32, intermediate=48, layers=1, heads=2, context=positions)
    ranks = Ranks(0, 1, CPU)
    learner = open_learner(ModelConfig(new=shape), OptimizerConfig(), ranks, tokenizer=TOKENIZER)
    learner.ranks = Ranks(0, 1, torch.device(device))
    assert learner.width_multiple == multiple
    batches = learner.pack(random_samples(9), 200, 400)
    assert all(batch.input_ids.shape[1] % multiple == 0 for batch in batches)
    assert all(batch.position_ids.max() < positions for batch in batches)


def is_since(package: str, first: str) -> bool:
    return Version(version(package)) >= Version(first)


SMALL: dict[str, Any] = {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {"num_attention_heads": 4}


@pytest.mark.parametrize(
    ("config", "can_pack"),
    [
        (Qwen3Config(**SMALL, **HEADS, num_key_value_heads=2, intermediate_size=48, head_dim=8), True),
        (GPT2Config(vocab_size=256, n_embd=32, n_layer=2, n_head=4), True),
        (OPTConfig(**SMALL, **HEADS, ffn_dim=48, word_embed_proj_dim=32), False),
        (BloomConfig(vocab_size=256, hidden_size=32, n_layer=2, n_head=4), False),
        (MptConfig(vocab_size=256, d_model=32, n_layers=2, n_heads=4), False),
        (FalconConfig(**SMALL, **HEADS), is_since("transformers", "5.24")),
        (MambaConfig(**SMALL), False),
    ],
    ids=lambda told: getattr(told, "model_type", None),
)
def test_models_that_cannot_tell_samples_apart_get_each_alone(config: Any, can_pack: bool) -> None:
    torch.manual_seed(0)
    scorer = Scorer(AutoModelForCausalLM.from_config(config)).eval()
    assert scorer.traits.can_pack is can_pack
    samples = random_samples(8)
    results = []
    for packing in ({"row_tokens": 1, "batch_tokens": 1}, {"row_tokens": 64, "batch_tokens": 128}):
        batches = make_batches(samples, **packing, alone=not scorer.traits.can_pack)
        results.append(score_all(scorer, batches, token_offsets(samples)[-1], 1.0, CPU).log_probs)
    assert torch.allclose(*results, atol=1e-4)


def test_scores_are_those_of_the_model_itself() -> None:
    """Against plain transformers: softmax over the logits of one sample at a time, at a temperature."""
    config = Qwen3Config(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    samples = random_samples(5, seed=3)
    scores = score_all(
        Scorer(model, chunk_size=7),
        make_batches(samples, row_tokens=50, batch_tokens=100),
        token_offsets(samples)[-1],
        0.5,
        CPU,
    )
    expected = []
    for sample in samples:
        ids = torch.tensor([sample.prompt + sample.answer])
        with torch.no_grad():
            table = (model(ids).logits[0] / 0.5).log_softmax(-1)
        start = len(sample.prompt) - 1
        expected += [table[start + place, token].item() for place, token in enumerate(sample.answer)]
    assert torch.allclose(scores.log_probs, torch.tensor(expected), atol=1e-5)


@pytest.mark.parametrize("residual", ["same", "float32"])
def test_a_learner_in_bfloat16_scores_what_its_sampler_samples(residual: str) -> None:
    """Sampler and trainer agree as far as bfloat16 goes under either residual stream, and before and after a step."""
    shape = NewModelConfig(vocabulary=512, hidden=32, intermediate=48, layers=2, heads=2, context=256, family="qwen3")
    config = ModelConfig(new=shape, precision="bfloat16", residual=residual)
    ranks = Ranks(0, 1, CPU)
    learner = open_learner(
        config, OptimizerConfig(learning_rate=0.01), ranks, tokenizer=TOKENIZER, sampler=SamplerConfig(max_rows=3)
    )
    assert learner.sampler is not None
    for step in range(2):
        learner.refresh_sampler()
        prompts = [sample.prompt for sample in random_samples(5)]
        answers = learner.sampler.generate(prompts, max_tokens=12, seeds=range(5), temperature=0.8)
        samples = [Sample(prompt, one.ids) for prompt, one in zip(prompts, answers, strict=True)]
        batches = make_batches(samples, row_tokens=64, batch_tokens=128)
        scores = learner.score(batches, token_offsets(samples)[-1], 0.8)
        theirs = torch.tensor([value for one in answers for value in one.log_probs])
        assert (scores.log_probs - theirs).abs().mean() < 5e-3
        loss = learner.add_gradients(batches, lambda _, log_probs: -log_probs.mean())
        assert {parameter.grad.dtype for parameter in learner.model.parameters()} == {torch.float32}
        assert learner.step(step, 0.0, loss) is not None


def test_models_that_do_more_to_their_logits_are_recognised() -> None:
    small = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    assert has_plain_output(AutoModelForCausalLM.from_config(LlamaConfig(**small, **heads)))
    assert has_plain_output(AutoModelForCausalLM.from_config(GemmaConfig(**small, **heads)))
    from transformers import GraniteConfig

    scaled = AutoModelForCausalLM.from_config(GraniteConfig(**small, **heads, logits_scaling=8.0))
    assert not has_plain_output(scaled)
    samples = random_samples(3)
    scores = score_all(
        Scorer(scaled), make_batches(samples, row_tokens=64, batch_tokens=64), token_offsets(samples)[-1], 1.0, CPU
    )
    ids = torch.tensor([samples[0].prompt + samples[0].answer])
    with torch.no_grad():
        table = scaled(ids).logits[0].log_softmax(-1)
    assert torch.allclose(scores.log_probs[0], table[len(samples[0].prompt) - 1, samples[0].answer[0]], atol=1e-5)


def test_a_sample_without_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt"):
        make_batches([Sample((), (1,))], row_tokens=8, batch_tokens=8)
