"""How Triton writes an operation: one line, or a few for what runs along rows.

`{o}` is the name of the result, `{0}` and `{1}` are operands, `{c0}` is a constant. `inside` says which columns exist;
values beyond them are never stored, but must not count in sums and maxima.
"""

from __future__ import annotations

FORMS: dict[str, tuple[str, ...]] = {
    "relu": ("{o} = tl.maximum({0}, 0.0)",),
    "sigmoid": ("{o} = tl.sigmoid({0})",),
    "tanh": ("{o} = 2.0 * tl.sigmoid(2.0 * {0}) - 1.0",),
    "silu": ("{o} = {0} * tl.sigmoid({0})",),
    "gelu": ("{o} = 0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",),
    "elu": ("{o} = tl.where({0} > 0.0, {0}, tl.exp({0}) - 1.0)",),
    "softplus": ("{o} = tl.maximum({0}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({0})))",),
    "abs": ("{o} = tl.abs({0})",),
    "square": ("{o} = {0} * {0}",),
    "sin": ("{o} = tl.sin({0})",),
    "cos": ("{o} = tl.cos({0})",),
    "leaky_relu": ("{o} = tl.where({0} > 0.0, {0}, 0.1 * {0})",),
    "hardtanh": ("{o} = tl.minimum(tl.maximum({0}, -1.0), 1.0)",),
    "scale": ("{o} = {0} * {c0}",),
    "shift": ("{o} = {0} + {c0}",),
    "add": ("{o} = {0} + {1}",),
    "subtract": ("{o} = {0} - {1}",),
    "multiply": ("{o} = {0} * {1}",),
    "maximum": ("{o} = tl.maximum({0}, {1})",),
    "minimum": ("{o} = tl.minimum({0}, {1})",),
    "sum": (
        "{o} = tl.where(inside, {0}, 0.0)",
        "{o} = tl.sum({o}, axis=1, keep_dims=True)",
    ),
    "mean": (
        "{o} = tl.where(inside, {0}, 0.0)",
        "{o} = tl.sum({o}, axis=1, keep_dims=True) / columns",
    ),
    "max": (
        '{o} = tl.where(inside, {0}, -float("inf"))',
        "{o} = tl.max({o}, axis=1, keep_dims=True)",
    ),
    "logsumexp": (
        '{o} = tl.where(inside, {0}, -float("inf"))',
        "top = tl.max({o}, axis=1, keep_dims=True)",
        "{o} = top + tl.log(tl.sum(tl.exp({o} - top), axis=1, keep_dims=True))",
    ),
    "variance": (
        "{o} = tl.where(inside, {0}, 0.0)",
        "{o} = tl.where(inside, {o} - tl.sum({o}, axis=1, keep_dims=True) / columns, 0.0)",
        "{o} = tl.sum({o} * {o}, axis=1, keep_dims=True) / (columns - 1)",
    ),
    "log_softmax": (
        '{o} = tl.where(inside, {0}, -float("inf"))',
        "{o} = {o} - tl.max({o}, axis=1, keep_dims=True)",
        "{o} = {o} - tl.log(tl.sum(tl.exp({o}), axis=1, keep_dims=True))",
    ),
    "softmax": (
        '{o} = tl.where(inside, {0}, -float("inf"))',
        "{o} = tl.exp({o} - tl.max({o}, axis=1, keep_dims=True))",
        "{o} = {o} / tl.sum({o}, axis=1, keep_dims=True)",
    ),
    "layer_norm": (
        "{o} = tl.where(inside, {0}, 0.0)",
        "{o} = tl.where(inside, {o} - tl.sum({o}, axis=1, keep_dims=True) / columns, 0.0)",
        "{o} = {o} / tl.sqrt(tl.sum({o} * {o}, axis=1, keep_dims=True) / columns + 1e-5)",
    ),
    "rms_norm": (
        "{o} = tl.where(inside, {0}, 0.0)",
        "{o} = {o} / tl.sqrt(tl.sum({o} * {o}, axis=1, keep_dims=True) / columns + 1e-5)",
    ),
}
"""Lines of every operation of generated graphs but the product, which is a loop of its own."""


def form(operation: str, result: str, operands: list[str], constants: tuple[float, ...]) -> list[str]:
    """Write one operation.

    Raises:
        KeyError: an operation without a form.
    """
    places = {f"c{number}": repr(value) for number, value in enumerate(constants)}
    return [line.format(*operands, o=result, **places) for line in FORMS[operation]]
