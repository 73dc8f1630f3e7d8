"""Other inputs for the same problem, made from its own ones.

KernelBench draws nearly everything from [0, 1), where ReLU is the identity and means are known beforehand. A kernel
must also be right for inputs that its author did not expect, but only for such as the problem means: integers stay
integers, zeros stay zero, probabilities still sum to one, a symmetric matrix stays symmetric.

`transform` is a pure function of the values, the distribution's name and a seed; the reference runner applies it in
its own process to what `get_inputs` returned. Shapes, dtypes and strides are kept.

* `signed`: tensors without negative values are centred on zero and doubled in width; decides like the problem's own.
* `negative`: every element is negative and some way from zero, and so are the weights: a maximum that begins at zero
  instead of minus infinity is wrong, and all products are positive. Decides.
* `opposed`: the first tensor is all positive, the second all negative and so on by turns, and weights are negative:
  products of two inputs, or of one and the weights, are negative. Decides.
* `scalars`: numbers that are inputs themselves (a slope, a scale) come a little nearer to zero. Decides.
* `holed`: tensors that hold one value alone (a mask of ones, a state of zeros, equal lengths) hold others near it, and
  zeros here and there: who takes them for given is wrong. Decides.
* `filled`: the same without the zeros, where the problem does not bear them. Decides.
* `offset`: everything is shifted far from zero, where differences of large numbers lose digits.
* `heavy`: every element is scaled by its own log-normal factor, so that a few dominate; those at the end of each
  dimension by a larger one. A mask that ends one too early is grossly wrong there; elsewhere one of 65,536 positive
  numbers may count no more than a rounding.
* `scaled`: float32 tensors are multiplied by a power of two beyond the range of float16, which has TF32's precision
  and would otherwise pass for it. Only for problems whose outputs scale along, and as exactly as before (`audit` finds
  out which do): where bounds do not, next to nothing of a product is left in sight, and that to rounding.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import torch

from kerneldojo.problems.pieces import PIECE, memory_order, pieces, slabs

TELLING = ("own", "signed")
"""Deciding distributions in which answers that need no work must be wrong."""
SIDED = ("negative", "opposed")
"""Deciding distributions in which tensors have elements of one sign. Much may be zero or constant there."""
FILLING = ("holed", "filled")
"""Deciding distributions for inputs that hold one value alone; of the two a problem has one at most."""
DECIDING = (*TELLING, *SIDED, "scalars", *FILLING)
"""Distributions in which every answer must be right; in those with sides, but for isolated elements."""
PROBING = ("offset", "heavy", "scaled")
"""Distributions that refuse only non-finite or grossly wrong answers."""
NAMES = DECIDING + PROBING

MARGIN = 1.0
"""How far from zero `negative` and `opposed` keep everything, in standard deviations."""
OFFSET = 64.0
"""Shift of `offset`, in standard deviations."""
SCALE_BITS = 18
"""`scaled` multiplies by two to this power: float16 ends at 2^16."""
HOLES = 0.25
"""Share of elements that `holed` makes zero."""
HEAVY_SPREAD = 1.5
"""Standard deviation of the logarithm of the factors of `heavy`."""
HEAVY_LIMIT = 50.0
"""Largest factor of `heavy` but at ends; the smallest is its inverse."""
END_FACTOR = 2.0 * HEAVY_LIMIT
"""That of elements at the end of a dimension."""
NEARER = (0.8, 0.95)
"""`scalars` multiplies by a number between these."""
FEW_VALUES = 8
"""A tensor with at most so many distinct values is taken for labels or flags."""


def transform(values: Any, name: str, seed: int) -> Any:
    """Return `values` with every tensor in it redrawn in the distribution `name`; what cannot change is kept.

    Args:
        values: what `get_inputs` returned: tensors and scalars in nested lists, tuples and dictionaries.
        name: one of `NAMES`.
        seed: seed of whatever is drawn.

    Raises:
        ValueError: an unknown name.
    """
    if name not in NAMES:
        raise ValueError(f"unknown distribution {name!r}: use one of {', '.join(NAMES)}")
    generators: dict[torch.device, torch.Generator] = {}
    signs = _signs(name)
    factor = random.Random(seed).uniform(*NEARER) if name == "scalars" else 1.0

    def walk(value: Any) -> Any:
        if isinstance(value, float):
            return value * factor
        if name == "scalars" and isinstance(value, torch.Tensor):
            return value
        if isinstance(value, torch.Tensor):
            if value.device not in generators:
                generators[value.device] = torch.Generator(value.device).manual_seed(seed)
            sign = next(signs) if name in SIDED and has_sides(value) else 0.0
            return transform_tensor(value, name, generators[value.device], sign)
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(walk(item) for item in value)
        return value

    return values if name == "own" else walk(values)


def transform_tensor(own: torch.Tensor, name: str, generator: torch.Generator, sign: float = 0.0) -> torch.Tensor:
    """Redraw one tensor; the very same object where its structure (or the distribution) asks for no change.

    Args:
        own: the tensor; left as it is.
        name: the distribution.
        generator: of the tensor's device: what millions of factors are drawn by decides how long it takes.
        sign: that of all elements in a distribution with sides; 0 for a tensor that keeps its own.
    """
    base = _without_expansion(own)
    if base is not own:
        return transform_tensor(base, name, generator, sign).expand(own.shape)
    if name in FILLING:
        return _filled(own, generator, HOLES if name == "holed" else 0.0) if holds_one_value(own) else own
    if name in SIDED and not sign:
        return own
    if name == "own" or is_structural(own) or (name == "signed" and _has_negative(own)):
        return own
    if name == "heavy" and _is_sorted(own):
        return own
    if name == "scaled":
        if own.dtype != torch.float32:
            return own
        result = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device)
        return torch.mul(own, 2.0**SCALE_BITS, out=result)
    mean, deviation = _moments(own)
    factors = _factors(own, generator) if name == "heavy" and _is_symmetric(own) else None
    result = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device)
    in_memory = memory_order(own)
    ordered = result.permute(in_memory)
    ends = _ends(own, result) if name == "heavy" else []
    pairs = [own.permute(in_memory), ordered, *([factors.permute(in_memory)] if factors is not None else [])]
    if not ordered.is_contiguous():  # There are holes between its elements.
        result.copy_(_changed(own, name, mean, deviation, factors, generator, sign))
    else:
        for source, target, *drawn in pieces(*pairs):
            target.copy_(_changed(source, name, mean, deviation, drawn[0] if drawn else None, generator, sign))
    for source, target in ends:
        target.copy_(source).mul_(END_FACTOR)
    return result


def _ends(*tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """The last slices of each, in every dimension that has more than one."""
    longer = [(dim, size) for dim, size in enumerate(tensors[0].shape) if size > 1]
    return [tuple(tensor.narrow(dim, size - 1, 1) for tensor in tensors) for dim, size in longer]


def _changed(
    own: torch.Tensor,
    name: str,
    mean: float,
    deviation: float,
    factors: torch.Tensor | None,
    generator: torch.Generator,
    sign: float,
) -> torch.Tensor:
    """Some elements of a tensor with this mean and deviation, redrawn; zeros stay."""
    wide = own.to(torch.float64 if own.dtype == torch.float64 else torch.float32)
    if name == "signed":
        changed = (wide - mean).mul_(2.0)
    elif name in SIDED:
        changed = wide.abs().add_(MARGIN * deviation).mul_(sign)
    elif name == "offset":
        changed = wide + OFFSET * deviation
    else:
        changed = wide * (factors if factors is not None else _draw(own.shape, own.device, generator)).to(wide)
    return changed.masked_fill_(own == 0, 0.0)


def has_negative_weights(name: str) -> bool:
    """Whether the weights that a constructor draws at random are negative where inputs have this distribution."""
    return name in SIDED


def _signs(name: str) -> Iterator[float]:
    """One for each tensor that has sides, in the order of inputs."""
    return itertools.cycle((1.0, -1.0) if name == "opposed" else (-1.0,))


def has_sides(x: torch.Tensor) -> bool:
    """Whether its signs may be changed. What is sorted stays so: its order may be what it is for."""
    base = _without_expansion(x)
    return not is_structural(base) and not _is_sorted(base)


def _filled(own: torch.Tensor, generator: torch.Generator, holes: float) -> torch.Tensor:
    """Other values than the one that `own` holds: no integer is larger, for it may be an index or a length."""
    value = own.flatten()[0].item()
    drawn = torch.rand(own.shape, generator=generator, device=own.device)
    if not own.is_floating_point():
        changed = (1 + drawn * value).floor().clamp(max=max(value, 1)) if value > 0 else torch.full_like(drawn, value)
    else:
        changed = value * (0.5 + drawn) if value else 2.0 * drawn - 1.0
    if holes:
        is_hole = torch.rand(own.shape, generator=generator, device=own.device) < holes
        changed = torch.where(is_hole, 0.0 if value else 1.0, changed) if own.dtype != torch.bool else is_hole ^ own
    result = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device)
    return result.copy_(changed)


def _moments(x: torch.Tensor) -> tuple[float, float]:
    """Mean and standard deviation, of those of parts, which are put together in float64."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    parts = list(pieces(x))
    found = [torch.stack(torch.var_mean(part.to(wide), correction=0)) for (part,) in parts]
    variances, means = torch.stack(found, dim=1).double().cpu()
    counts = torch.tensor([part.numel() for (part,) in parts], dtype=torch.float64)
    mean = float((counts * means).sum()) / x.numel()
    squares = float((counts * (variances + (means - mean).square())).sum())
    return mean, math.sqrt(squares / (x.numel() - 1))


def changes(values: Any, name: str) -> bool:
    """Whether `transform` would change anything in `values`."""
    if isinstance(values, float):
        return name == "scalars" and math.isfinite(values) and values != 0.0
    if isinstance(values, torch.Tensor) and name == "scalars":
        return False
    if isinstance(values, torch.Tensor) and name in SIDED:
        return has_sides(values)
    if isinstance(values, torch.Tensor) and name in FILLING:
        return holds_one_value(_without_expansion(values))
    if isinstance(values, torch.Tensor):
        values = _without_expansion(values)
        if name == "own" or is_structural(values):
            return False
        if name == "signed":
            return not _has_negative(values)
        if name == "scaled":
            return values.dtype == torch.float32
        return name != "heavy" or not _is_sorted(values)
    if isinstance(values, dict):
        return any(changes(item, name) for item in values.values())
    if isinstance(values, list | tuple):
        return any(changes(item, name) for item in values)
    return False


def holds_one_value(x: torch.Tensor) -> bool:
    """Whether all elements are equal, and finite."""
    if not x.numel() or x.is_complex():
        return False
    first = x.flatten()[0]
    return bool(torch.isfinite(first)) and all(bool((piece == first).all()) for (piece,) in pieces(x))


def is_structural(x: torch.Tensor) -> bool:
    """Whether the values of `x` mean something beyond their size: integers, flags, labels, probabilities, constants."""
    if not x.is_floating_point() or x.numel() < 2:
        return True
    return not bool(torch.isfinite(_sample(x)).all()) or has_few_values(x) or is_probability(x)


def has_few_values(x: torch.Tensor) -> bool:
    """Whether a tensor of two elements at least has no more distinct values than labels or flags have, by a sample."""
    return len(torch.unique(_sample(x))) <= min(FEW_VALUES, x.numel() - 1)


def _sample(x: torch.Tensor) -> torch.Tensor:
    """Some 4,096 values, on the host: to find equal ones a GPU would have to load kernels that sort. A constant column
    tells more than a sample from one corner would; this one reaches everywhere."""
    return x.flatten()[:: max(1, x.numel() // 4096)].float().cpu()


def _without_expansion(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor that was expanded to `x`, with length 1 where the stride is 0; `x` itself if there is none."""
    for dim in range(x.dim()):
        if x.stride(dim) == 0 and x.shape[dim] > 1:
            x = x.narrow(dim, 0, 1)
    return x


def is_probability(x: torch.Tensor) -> bool:
    """Whether the last dimension of `x` holds distributions: nothing is negative, and sums are 1."""
    if x.dim() == 0 or x.shape[-1] < 2 or _has_negative(x):
        return False
    return all(bool(((some.float().sum(dim=-1) - 1.0).abs() < 1e-2).all()) for some in _rows(x))


def _has_negative(x: torch.Tensor) -> bool:
    return any(bool((slab < 0).any()) for slab in slabs(x))


def _rows(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Some whole rows at a time: nearly always the first ones tell."""
    return slabs(x, max(PIECE, x.shape[-1]))


def _is_sorted(x: torch.Tensor) -> bool:
    if x.dim() == 0 or x.shape[-1] < 3:
        return False
    rising = all(bool((some[..., 1:] >= some[..., :-1]).all()) for some in _rows(x))
    return rising or all(bool((some[..., 1:] <= some[..., :-1]).all()) for some in _rows(x))


def _is_symmetric(x: torch.Tensor) -> bool:
    return x.dim() >= 2 and x.shape[-1] == x.shape[-2] and torch.equal(x, x.transpose(-1, -2))


def _factors(own: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw positive factors of the shape of `own`, symmetric as it is, laid out like it."""
    drawn = torch.randn(own.shape, generator=generator, device=own.device).mul_(HEAVY_SPREAD)
    drawn = _limited((drawn + drawn.transpose(-1, -2)) / math.sqrt(2.0))
    return torch.empty_strided(own.shape, own.stride(), dtype=drawn.dtype, device=own.device).copy_(drawn)


def _draw(shape: torch.Size, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Draw positive factors."""
    return _limited(torch.randn(shape, generator=generator, device=device).mul_(HEAVY_SPREAD))


def _limited(logarithms: torch.Tensor) -> torch.Tensor:
    return logarithms.exp_().clamp_(1.0 / HEAVY_LIMIT, HEAVY_LIMIT)
