"""What is made of drawn sets is new, and has the structure that they had."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kerneldojo.devices.cuda.content import may_shuffle, ways_of, write
from kerneldojo.devices.cuda.recipes import Kind, Way, draw_recipes, rotation, segments
from kerneldojo.devices.cuda.rotation import flat, num_words, rows
from kerneldojo.problems.distributions import is_probability
from kerneldojo.problems.pieces import PIECE, slabs

Draw = Callable[[], torch.Tensor]
LENGTHS = itertools.cycle((630, 630, 631))


def symmetric() -> torch.Tensor:
    half = torch.randn(2, 24, 24)
    return half + half.mT


def distributions() -> torch.Tensor:
    return torch.rand(40, 12).softmax(-1)


def lower() -> torch.Tensor:
    return torch.tril(torch.rand(32, 32))


def lower_with_chance_zeros() -> torch.Tensor:
    return torch.tril(torch.rand(96, 96).bfloat16())


def padded() -> torch.Tensor:
    return torch.where(torch.arange(640) < next(LENGTHS), torch.randn(16, 640), 0.0)


def banded() -> torch.Tensor:
    return torch.triu(torch.tril(torch.randn(64, 64), 1), -1)


def sparse() -> torch.Tensor:
    return torch.relu(torch.randn(50, 20))


def symmetric_band() -> torch.Tensor:
    half = banded()
    return half + half.mT


def nearly_symmetric() -> torch.Tensor:
    half = torch.randn(24, 40)
    product = half @ half.mT
    return product + 1e-6 * torch.randn_like(product)


def causal_distributions() -> torch.Tensor:
    weights = torch.tril(torch.rand(32, 32) + 0.1)
    return weights / weights.sum(-1, keepdim=True)


def causal() -> torch.Tensor:
    return torch.ones(16, 16).tril() * 2 - 1


WAYS: list[tuple[str, Draw, bool, Way]] = [
    ("plain", lambda: torch.randn(30, 20), False, "rotate"),
    ("triangle", lower, False, "mix"),
    ("triangle of a column-major matrix", lambda: lower().t(), False, "mix"),
    ("band", banded, False, "mix"),
    ("half precision with holes", lambda: lower().half(), False, "mix"),
    ("triangle with zeros by chance", lower_with_chance_zeros, False, "mix"),
    ("zeros up to a length that others may tell of", padded, False, "choose"),
    ("zeros of its own, alone", sparse, True, "mix"),
    ("zeros that a mask may tell of", sparse, False, "choose"),
    ("symmetric", symmetric, False, "reorder"),
    ("symmetric but for rounding", nearly_symmetric, False, "reorder"),
    ("symmetric and banded", symmetric_band, False, "choose"),
    ("distributions", distributions, False, "permute"),
    ("distributions with holes", causal_distributions, False, "choose"),
    ("numbers, alone", lambda: torch.randint(0, 1000, (64, 8)), True, "rotate"),
    ("numbers beside others", lambda: torch.randint(0, 1000, (64, 8)), False, "choose"),
    ("numbers that torch cannot compare", lambda: torch.randint(0, 1000, (64, 8)).to(torch.uint32), True, "choose"),
    ("offsets", lambda: torch.randint(1, 9, (64,)).cumsum(0), True, "choose"),
    ("sorted", lambda: torch.randn(500).sort().values, True, "choose"),
    ("flags", lambda: torch.rand(64, 8) > 0.5, True, "choose"),
    ("a mask of two values", causal, True, "choose"),
    ("labels as numbers", lambda: torch.randint(0, 2, (64,)) * 2.0 - 1, True, "choose"),
    ("one number", lambda: torch.rand(()), True, "choose"),
    ("expanded", lambda: lower()[:1].expand(32, 32), True, "choose"),
    ("an infinite mask", lambda: torch.zeros(8, 8).masked_fill(torch.rand(8, 8) > 0.5, float("-inf")), True, "choose"),
    ("complex", lambda: torch.randn(8, 8, dtype=torch.complex64), True, "choose"),
]


@pytest.mark.parametrize("slab", [PIECE, 700])
@pytest.mark.parametrize(("draw", "is_only", "way"), [case[1:] for case in WAYS], ids=[case[0] for case in WAYS])
def test_each_kind_is_changed_as_it_may_be(
    draw: Draw, is_only: bool, way: Way, slab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are so large that they are looked at part by part."""
    monkeypatch.setattr(slabs, "__defaults__", (slab,))
    torch.manual_seed(0)
    drawn = [draw() for _ in range(3)]
    beside = [] if is_only else [torch.randn(3)]
    assert ways_of([[one, *beside] for one in drawn])[0] == way
    assert may_shuffle(drawn[0]) == (way == "rotate" and drawn[0].is_floating_point())


def made(drawn: list[torch.Tensor], way: Way) -> tuple[torch.Tensor, Any]:
    kind = Kind.of(way, drawn[0])
    (recipe,) = draw_recipes(1, len(drawn), [kind])
    target = torch.full_like(drawn[0], 7)
    write(target, kind, drawn, recipe, 0)
    again = torch.full_like(drawn[0], 8)
    write(again, kind, drawn, recipe, 0)
    assert torch.equal(target, again), "the judge can say again what it wrote"
    return target, recipe


@pytest.mark.parametrize(
    ("draw", "way"),
    [
        (lambda: torch.randn(30, 20), "rotate"),
        (lower, "mix"),
        (lambda: lower().t(), "mix"),
        (sparse, "mix"),
        (symmetric, "reorder"),
        (distributions, "permute"),
    ],
    ids=["plain", "triangle", "column-major", "zeros of its own", "symmetric", "distributions"],
)
def test_content_is_new_each_time(draw: Draw, way: Way) -> None:
    """Else an answer that was kept could be given again."""
    drawn = [draw() for _ in range(4)]
    seen = [made(drawn, way)[0] for _ in range(30)]
    several = [one for number, one in enumerate(seen) if not any(torch.equal(one, other) for other in seen[:number])]
    assert len(several) == 30
    assert sum(any(torch.equal(one, other) for other in drawn) for one in several) <= 1
    assert ways_of([[one] for one in several[:4]]) == [way], "and is of the same kind"


def test_what_is_mixed_has_each_element_from_one_of_two_sets_and_its_zeros_where_they_were() -> None:
    drawn = [lower() for _ in range(4)]
    target, recipe = made(drawn, "mix")
    one, other = drawn[recipe.base], drawn[recipe.other]
    assert recipe.base != recipe.other
    assert bool(((target == one) | (target == other)).all())
    share = float((target == one)[one != 0].float().mean())
    assert 0.3 < share < 0.7
    assert torch.equal(target == 0, one == 0)


def test_a_distribution_still_sums_to_one_and_meets_others_elements() -> None:
    drawn = [distributions() for _ in range(2)]
    target, recipe = made(drawn, "permute")
    assert is_probability(target)
    assert torch.equal(target.sort(-1).values.sort(0).values, drawn[recipe.base].sort(-1).values.sort(0).values)


def test_a_symmetric_matrix_keeps_its_eigenvalues() -> None:
    """What is positive definite stays so, and can still be factored."""
    half = torch.randn(12, 12, dtype=torch.float64)
    drawn = [half @ half.mT + torch.eye(12)]
    assert ways_of([[one] for one in drawn]) == ["reorder"]
    target, _ = made(drawn, "reorder")
    assert torch.allclose(torch.linalg.eigvalsh(target), torch.linalg.eigvalsh(drawn[0]))


def test_one_drawn_set_alone_is_not_mixed_with_itself() -> None:
    assert ways_of([[lower()]]) == ["choose"]
    (recipe,) = draw_recipes(1, 1, [Kind.of("choose", lower())])
    assert recipe.base == recipe.other == 0


def test_memory_with_gaps_is_read_as_it_lies() -> None:
    tensor = torch.arange(24.0).reshape(4, 6)[:, :3]
    assert flat(tensor).tolist() == torch.arange(21.0).tolist()
    assert len(flat(torch.empty(0, 3))) == 0 and len(flat(torch.tensor(1.0))) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_is_rotated_has_another_norm_each_time(dtype: torch.dtype) -> None:
    """Moving elements about leaves a norm of all of them what it was: it could be kept."""
    drawn = [torch.randn(4000, dtype=torch.float64).to(dtype) for _ in range(4)]
    norms = {float(made(drawn, "rotate")[0].double().norm()) for _ in range(20)}
    assert len(norms) > 15


def test_whole_numbers_alone_move_on_together() -> None:
    """A start and a length at one place stay at one."""
    starts = [torch.randint(0, 1000, (50,)) for _ in range(3)]
    drawn = [[one, 2 * one, torch.arange(7)] for one in starts]
    ways = ways_of(drawn)
    assert ways == ["shift", "shift", "choose"]
    kinds = [Kind.of(way, tensor) for way, tensor in zip(ways, drawn[0], strict=True)]
    recipes = draw_recipes(30, 3, kinds)
    for recipe in recipes:
        found = [torch.zeros_like(one) for one in drawn[0]]
        for number, target in enumerate(found):
            write(target, kinds[number], [one[number] for one in drawn], recipe, number)
        assert torch.equal(found[1], 2 * found[0]) and torch.equal(found[2], torch.arange(7))
        assert torch.equal(found[0].sort().values, starts[recipe.base].sort().values)
    assert len({recipe.distances[0] for recipe in recipes}) > 10


def test_whole_numbers_are_one_of_each_as_before() -> None:
    drawn = [torch.randperm(100) for _ in range(3)]
    assert ways_of([[one] for one in drawn]) == ["rotate"]
    for _ in range(10):
        target, _ = made(drawn, "rotate")
        assert target.sort().values.tolist() == list(range(100))


def test_a_launch_is_told_what_single_rotations_are() -> None:
    """As rows made at once, without a rotation for each."""
    for dtype, way in ((torch.float32, "rotate"), (torch.int64, "shift"), (torch.complex128, "choose")):
        drawn = [[torch.zeros(50 + number, dtype=dtype) for number in range(2)] for _ in range(3)]
        kinds = [Kind.of(way, tensor) for tensor in drawn[0]]  # type: ignore[arg-type]
        recipes = draw_recipes(20, 3, kinds)
        for number, kind in enumerate(kinds):
            targets = [torch.zeros_like(drawn[0][number]) for _ in range(25)]
            sources = [one[number] for one in drawn]
            addresses = [np.array([one.data_ptr() for one in some]) for some in (targets, sources)]
            found = recipes.rows(number, kind, *addresses, num_words(dtype.itemsize))
            each = [rotation(*of, number) for of in zip(targets, [kind] * 20, [sources] * 20, recipes, strict=False)]
            wanted = rows(each)
            if not kind.part:  # Where a part of nothing lies does not matter.
                assert (found[:, 4] == found[:, 5]).all() and (wanted[:, 4] == wanted[:, 5]).all()
            assert found.dtype == wanted.dtype and found.shape == (20, 7)
            assert (found == wanted).all()
        fewer = draw_recipes(5, 3, kinds)
        recipes.put(fewer)
        assert list(recipes)[:5] == list(fewer) and len(recipes) == 20


def test_segments_fill_the_input_from_rotated_elements_and_another_sets_part() -> None:
    drawn = [100.0 * base + torch.arange(37.0) for base in range(3)]
    kind = Kind.of("rotate", drawn[0])
    assert kind.part == 4
    for recipe in draw_recipes(50, 3, [kind]):
        (distance,), ((begin, source),) = recipe.distances, recipe.parts
        wanted = drawn[recipe.base].roll(distance)
        wanted[begin : begin + 4] = drawn[recipe.other][source : source + 4]
        places = [place for place, _, _ in segments(recipe, 0, kind)]
        assert [place.start for place in places] == [0, *(place.stop for place in places[:-1])]
        target = torch.zeros(37)
        write(target, kind, drawn, recipe, 0)
        assert torch.equal(target, wanted)
        assert torch.equal(torch.cat([drawn[base][origin] for _, base, origin in segments(recipe, 0, kind)]), wanted)
