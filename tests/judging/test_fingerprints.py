import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.judging.fingerprints import fingerprint, remember

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]


@given(
    dtype=st.sampled_from(DTYPES),
    size=st.integers(1, 300),
    at=st.integers(0, 299),
    seed=st.integers(0, 1 << 40),
    large_bytes=st.sampled_from([0, 1 << 28]),
)
@settings(max_examples=100, deadline=None)
def test_equal_bits_and_nothing_else_are_remembered(
    dtype: torch.dtype, size: int, at: int, seed: int, large_bytes: int
) -> None:
    one = (torch.rand(size, 3, generator=torch.Generator().manual_seed(seed)) * 100).to(dtype)
    other = one.clone()
    before = remember([one, one[0]], large_bytes)
    assert before.equals([other, other[0]])
    assert before.equals([one.t().contiguous().t(), other[0]]), "strides do not matter"
    assert not before.equals([other])
    words = other.view(torch.uint8)
    words.view(-1)[at % words.numel()] ^= 0x80 if dtype != torch.bool else 1
    assert not before.equals([other, one[0]])


def test_signs_that_change_in_pairs_do_not_cancel() -> None:
    one = torch.rand(1000)
    for seed in range(50):
        other = one.clone()
        other[seed], other[seed + 7] = -other[seed], -other[seed + 7]
        assert fingerprint(one, seed) != fingerprint(other, seed)


def test_what_a_tensor_is_counts_too() -> None:
    zeros, nan = torch.zeros(4, 6), torch.full((3,), float("nan"))
    for large_bytes in (0, 1 << 28):
        assert not remember([zeros], large_bytes).equals([zeros.view(6, 4)])
        assert not remember([zeros], large_bytes).equals([zeros.int()])
        assert remember([nan], large_bytes).equals([nan.clone()])
        assert remember([], large_bytes).equals([])
    assert fingerprint(torch.empty(0), 1).total == 0
