"""Weights are never left at their famous initial values, and equal seeds give both sides the same ones."""

from __future__ import annotations

import torch
from torch import nn

from kerneldojo.contestant import weights


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.batch = nn.BatchNorm1d(4)
        nn.init.zeros_(self.linear.bias)
        nn.init.constant_(self.norm.bias, 3.0)


def built(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    with weights.drawn_constants():
        return weights.state(Block())


def test_constants_become_draws() -> None:
    state = built(1)
    for name, tensor in state.items():
        assert len(tensor.unique()) == tensor.numel(), name
    assert 2 < float(state["norm.bias"].mean()) < 4
    assert float(state["batch.running_var"].min()) > 0


def test_equal_seeds_agree_and_others_do_not() -> None:
    first, second, other = built(1), built(1), built(2)
    for name in first:
        assert torch.equal(first[name], second[name])
        assert not torch.equal(first[name], other[name])


def test_weights_of_one_sign_have_the_magnitudes_that_they_would_have() -> None:
    plain = built(1)
    torch.manual_seed(1)
    with weights.drawn_constants(negative=True):
        state = weights.state(Block())
    assert torch.equal(state["linear.weight"], -plain["linear.weight"].abs())
    assert torch.equal(state["norm.weight"], plain["norm.weight"]), "what replaces a constant stays"
    assert bool((nn.Linear(9, 9).weight > 0).any())


def test_the_initialisers_are_as_before_afterwards() -> None:
    with weights.drawn_constants():
        pass
    assert torch.equal(nn.LayerNorm(3).weight.detach(), torch.ones(3))
    assert torch.equal(nn.BatchNorm1d(3).running_var, torch.ones(3))


def test_values_are_loaded_by_name() -> None:
    module, source = Block(), built(5)
    weights.load(module, list(source.values()), list(source))
    assert all(torch.equal(tensor, source[name]) for name, tensor in weights.state(module).items())


def test_constants_set_by_hand_are_drawn_too() -> None:
    module = nn.Module()
    module.gain = nn.Parameter(torch.ones(8))
    module.mixed = nn.Parameter(torch.arange(8.0))
    module.register_buffer("mask", torch.ones(8))
    weights.redraw_constants(module)
    assert len(module.gain.unique()) == 8
    assert torch.equal(module.mixed, torch.arange(8.0))
    assert torch.equal(module.mask, torch.ones(8))


def test_what_a_module_holds_is_found_without_running_any_code_of_it() -> None:
    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            self.block.again = self
            self.register_buffer("mask", torch.ones(3))

        def __getattribute__(self, name: str) -> object:
            if not built:
                return super().__getattribute__(name)
            raise RuntimeError("run")

    built = False
    module = Loud()
    wanted = [*module.parameters(), *module.buffers()]
    built = True
    assert {id(tensor) for tensor in weights.held(module)} == {id(tensor) for tensor in wanted}
    assert any(tensor.shape == (3,) for tensor in weights.held(module, "_buffers"))
    assert not any(isinstance(tensor, nn.Parameter) for tensor in weights.held(module, "_buffers"))
