"""A kernel that nobody needs, compiled by the fork server so that the compiler is warm when it forks."""
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
# Triton reads annotations as types of its own, so the parameters have none.

import triton
import triton.language as tl


@triton.jit
def rehearse(source, target, count, BLOCK: tl.constexpr):
    """Add its exponential to each value, one block a program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    values = tl.load(source + offsets, mask=mask)
    tl.store(target + offsets, tl.exp(values) + values, mask=mask)
