"""Copies of a module in other precisions: what they share, and what they do not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kerneldojo.contestant import variants
from kerneldojo.contestant.variants import SharedParameters, instance_in


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(variants, "MOST_COPIED_BYTES", 0)
    return request.param


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 4))


def _addresses(module: nn.Module) -> set[int]:
    return {parameter.data_ptr() for parameter in module.parameters()}


def test_copies_of_a_large_module_share_its_parameters_and_no_buffers(size) -> None:
    module = _network()
    native, tf32 = instance_in("native", module), instance_in("tf32", module)
    assert (_addresses(native) == _addresses(module)) is (size == "large")
    assert (_addresses(native) == _addresses(tf32)) is (size == "large")
    native(torch.randn(2, 3, 8, 8))
    assert not torch.equal(native[1].running_mean, module[1].running_mean)
    assert torch.equal(tf32[1].running_mean, module[1].running_mean)


def test_a_copy_in_double_precision_is_exact_and_its_own(size) -> None:
    module = _network()
    exact = instance_in("float64", module)
    assert all(tensor.dtype == torch.float64 for tensor in (*exact.parameters(), exact[1].running_mean))
    assert not _addresses(exact) & _addresses(module)
    torch.testing.assert_close(exact.eval()(x := torch.randn(2, 3, 8, 8).double()), module.eval().double()(x))


def test_weights_that_are_tied_stay_so_and_those_of_recurrent_networks_are_used(size) -> None:
    tied = nn.ModuleDict({"into": nn.Embedding(7, 5), "out": nn.Linear(5, 7, bias=False)})
    tied["out"].weight = tied["into"].weight
    for variant in ("native", "float64", "nudged"):
        copied = instance_in(variant, tied)
        assert copied["out"].weight is copied["into"].weight
    recurrent, x = nn.LSTM(4, 6, batch_first=True), torch.randn(2, 3, 4)
    exact = instance_in("float64", recurrent)
    torch.testing.assert_close(exact(x.double())[0].float(), recurrent(x)[0])
    with torch.no_grad():
        exact.weight_ih_l0.zero_()
    assert not torch.allclose(exact(x.double())[0].float(), recurrent(x)[0])


class _Changes(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.weight, self.how = nn.Parameter(torch.randn(9)), how

    def forward(self, x):
        if self.how == "in place":
            self.weight.add_(1)
        elif self.how == "behind torch":
            self.weight.data.mul_(2)
        return x * self.weight


@pytest.mark.parametrize("how", ["not", "in place", "behind torch"])
def test_a_call_that_changes_what_is_shared_is_a_failure(size, how) -> None:
    module = _Changes(how)
    shared, copied = SharedParameters(module), instance_in("native", module)
    with torch.no_grad():
        copied(torch.randn(9))
    if size == "large" and how != "not":
        with pytest.raises(RuntimeError, match="forward changes its parameters, which take more than"):
            shared.check()
    else:
        shared.check()


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32, torch.float64, torch.complex64])
def test_every_kind_of_parameter_can_be_summed(size, dtype) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(3, 5).to(dtype).t(), requires_grad=False)
    SharedParameters(module).check()
