"""Chunked log-probabilities equal the obvious ones, gradients included, in chunks of any size."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from kerneldojo.algorithms import log_probs_from_hidden, log_probs_from_logits


def inputs(dtype: torch.dtype = torch.float64, rows: int = 11, words: int = 17, width: int = 5):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(words, width, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(words, (rows,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


@pytest.mark.parametrize("chunk_size", [1, 4, 11, 1024])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_entropy_and_gradients_are_those_of_log_softmax(chunk_size: int, temperature: float):
    hidden, weight, targets = inputs()
    upstream = torch.linspace(-1, 1, len(targets), dtype=torch.float64)
    table = (hidden @ weight.T / temperature).log_softmax(1)
    expected = table.gather(1, targets[:, None])[:, 0]
    gradients = torch.autograd.grad((expected * upstream).sum(), (hidden, weight))
    entropy = -(table.exp() * table).sum(1)

    fused = log_probs_from_hidden(hidden, weight, targets, temperature, chunk_size)
    torch.testing.assert_close(fused.log_probs, expected)
    torch.testing.assert_close(fused.entropy, entropy)
    ours = torch.autograd.grad((fused.log_probs * upstream).sum(), (hidden, weight))
    torch.testing.assert_close(ours, gradients)

    plain = log_probs_from_logits(hidden @ weight.T, targets, temperature, chunk_size)
    torch.testing.assert_close(plain.log_probs, expected)
    torch.testing.assert_close(plain.entropy, entropy)
    ours = torch.autograd.grad((plain.log_probs * upstream).sum(), (hidden, weight))
    torch.testing.assert_close(ours, gradients)


def test_gradients_by_finite_differences():
    hidden, weight, targets = inputs(rows=4, words=6, width=3)
    assert torch.autograd.gradcheck(
        lambda h, w: log_probs_from_hidden(h, w, targets, 0.7, 3).log_probs, (hidden, weight)
    )
    logits = (hidden @ weight.T).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: log_probs_from_logits(z, targets, 0.7, 3).log_probs, logits)


def test_half_precision_logits_give_float32_results_and_half_gradients():
    hidden, weight, targets = inputs(torch.bfloat16, rows=9, words=300)
    result = log_probs_from_hidden(hidden, weight, targets, chunk_size=4)
    assert result.log_probs.dtype == torch.float32
    reference = (hidden @ weight.T).float().log_softmax(1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(result.log_probs, reference)
    gradients = torch.autograd.grad(result.log_probs.sum(), (hidden, weight))
    expected = torch.autograd.grad(reference.sum(), (hidden, weight))
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.05)


def test_frozen_weights_get_no_gradient_and_masked_words_do_no_harm():
    hidden, weight, targets = inputs()
    log_probs_from_hidden(hidden, weight.detach(), targets).log_probs.sum().backward()
    assert hidden.grad is not None
    logits = torch.tensor([[0.0, 1.0, -float("inf")]], requires_grad=True)
    result = log_probs_from_logits(logits, torch.tensor([1]))
    result.log_probs.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    p = torch.tensor([0.0, 1.0]).softmax(0)
    torch.testing.assert_close(result.entropy, -(p * p.log()).sum()[None])


def test_the_logits_are_never_there_as_a_whole():
    """Every tensor that is made on the way, forward and backward, is smaller than all logits together."""
    rows, words, chunk = 64, 1000, 8
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 4, generator=generator, requires_grad=True)
    weight = torch.randn(words, 4, generator=generator, requires_grad=True)
    targets = torch.randint(words, (rows,), generator=generator)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return result

    with Watch():
        log_probs_from_hidden(hidden, weight, targets, chunk_size=chunk).log_probs.sum().backward()
    assert chunk * words <= largest < 2 * chunk * words


def test_no_tokens():
    hidden, weight, _ = inputs()
    assert log_probs_from_hidden(hidden[:0], weight, torch.zeros(0, dtype=torch.int64)).log_probs.shape == (0,)


INTERPRETED = """
import torch
from kerneldojo.algorithms import log_probs
from kerneldojo.algorithms.fused import fused_backward, fused_forward

generator = torch.Generator().manual_seed(0)
for dtype in (torch.float32, torch.bfloat16):
    for temperature in (1.0, 0.6):
        logits = (torch.randn(4, 9000, generator=generator) * 3).to(dtype)
        logits[1, 5:77] = logits[0, :4096] = -float("inf")
        targets, upstream = torch.tensor([8999, 1, 100, 4096]), torch.tensor([1.0, -0.5, 2.0, 0.0])
        expected = log_probs._forward(logits, targets, temperature)
        for ours, theirs in zip(fused_forward(logits, targets, temperature), expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=0)
        slope = log_probs._backward(logits, targets, expected[2], upstream, temperature)
        ours = fused_backward(logits, targets, expected[2], upstream, temperature)
        assert ours is logits
        torch.testing.assert_close(ours, slope.to(dtype), atol=1e-6, rtol=0.01)
"""


def test_kernels_are_the_operations_in_one_pass():
    """On Triton's interpreter, which has to be asked for before Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", INTERPRETED], env=environment, check=True, timeout=200)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_kernels_on_a_gpu(dtype: torch.dtype, temperature: float):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(70, 64, generator=generator).to("cuda", dtype).requires_grad_()
    weight = torch.randn(20_001, 64, generator=generator).to("cuda", dtype).requires_grad_()
    targets = torch.randint(20_001, (70,), generator=generator).cuda()
    upstream = torch.linspace(-1, 1, 70, device="cuda")
    found = []
    for is_fused in (False, True):
        result = log_probs_from_hidden(hidden, weight, targets, temperature, 32, is_fused=is_fused)
        gradients = torch.autograd.grad((result.log_probs * upstream).sum(), (hidden, weight))
        found.append((result, gradients))
    (plain, plain_gradients), (fused, fused_gradients) = found
    torch.testing.assert_close(fused.log_probs, plain.log_probs, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(fused.entropy, plain.entropy, atol=1e-4, rtol=1e-5)
    for ours, theirs in zip(fused_gradients, plain_gradients, strict=True):
        assert (ours - theirs).float().norm() < (1e-5 if dtype == torch.float32 else 0.01) * theirs.float().norm()
