"""The oracle's transposed convolutions are made by channels, and are what torch makes of them at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kerneldojo.problems import convolution
from kerneldojo.problems.precision import float64_oracle

CONVOLUTION = torch.ops.aten.convolution.default
KINDS: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@st.composite
def layers(draw: st.DrawFn) -> tuple[torch.Tensor, Any]:
    """An input and a transposed layer for it, in float64."""
    dimensions, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(dimensions)]
    layer = KINDS[dimensions](
        draw(st.integers(1, 4)),
        draw(st.integers(1, 9)),
        kernel,
        stride=stride,
        padding=[draw(st.integers(0, size // 2)) for size in kernel],
        output_padding=draw(st.integers(0, max(stride, dilation) - 1)),
        dilation=dilation,
        bias=draw(st.booleans()),
    ).double()
    spatial = [draw(st.integers(2, 4)) for _ in range(dimensions)]
    return torch.randn(draw(st.integers(1, 3)), layer.in_channels, *spatial, dtype=torch.float64), layer


def arguments(x: torch.Tensor, layer: Any) -> tuple[Any, ...]:
    """Of `aten::convolution`."""
    numbers = (list(layer.stride), list(layer.padding), list(layer.dilation))
    return (x, layer.weight, layer.bias, *numbers, True, list(layer.output_padding), layer.groups)


@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(1, 4))
def test_channels_are_made_apart_and_come_out_the_same(drawn: tuple[torch.Tensor, Any], num_channels: int) -> None:
    x, layer = drawn
    calls: list[int] = []

    def counted(*args: Any) -> torch.Tensor:
        calls.append(args[1].shape[1])
        assert not torch.backends.cudnn.enabled
        return CONVOLUTION(*args)

    column_bytes = layer.weight[0, 0].numel() * x[0, 0].numel() * x.element_size()
    with torch.no_grad():
        found = convolution.by_channels(counted, arguments(x, layer), num_channels * column_bytes)
        expected = layer(x)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    assert torch.backends.cudnn.enabled
    assert sum(calls) == layer.out_channels
    assert max(calls) <= max(num_channels, x.nbytes // 8 // column_bytes)


def test_a_channel_whose_columns_are_too_large_is_made_all_the_same() -> None:
    layer = nn.ConvTranspose2d(1, 3, 5).double()
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(convolution.by_channels(CONVOLUTION, arguments(x, layer), 1), layer(x))


def test_cudnn_is_there_again_after_a_failure() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3).double()
    with pytest.raises(RuntimeError):
        convolution.by_channels(CONVOLUTION, arguments(torch.randn(1, 3, 4, 4).double(), layer))
    assert torch.backends.cudnn.enabled


def test_what_is_no_such_convolution_goes_as_it_is() -> None:
    x, layer = torch.randn(1, 2, 4, 4, dtype=torch.float64), nn.ConvTranspose2d(2, 3, 3).double()
    assert not convolution.is_slow(CONVOLUTION, arguments(x, layer)), "a processor has no cuDNN"
    assert not convolution.is_slow(torch.ops.aten.mm.default, (x[0, 0], x[0, 0]))
    assert not convolution.is_slow(CONVOLUTION, (x, layer.weight))


@pytest.mark.gpu
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_on_a_gpu_the_oracle_takes_them_and_leaves_others_to_cudnn(dimensions: int) -> None:
    layer = KINDS[dimensions](5, 7, 3, stride=2, padding=1, output_padding=1).cuda()
    x = torch.randn(3, 5, *[9] * dimensions, device="cuda")
    exact, wide = layer.double(), x.double()
    with torch.no_grad():
        expected = exact(wide)
    with float64_oracle():
        found = exact(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert convolution.is_slow(CONVOLUTION, arguments(wide, exact))
    direct = arguments(wide, exact)
    refused = {
        "float32": arguments(x, exact),
        "not transposed": (*direct[:6], False, *direct[7:]),
        "in groups": (*direct[:8], 5),
        "in other strides": arguments(wide.transpose(0, -1), exact),
        "empty": arguments(wide[:0], exact),
    }
    assert [name for name, args in refused.items() if convolution.is_slow(CONVOLUTION, args)] == []
