"""The vocabulary of operation graphs: what each operation is called, and how PyTorch writes it in one line.

A template has `{0}`, `{1}`, ... for operands and `{c0}`, `{c1}`, ... for constants. Values are matrices (rows by
columns), rows (one value a column), columns (one value a row) or the operands of a product; `reduction` turns a matrix
into a column, every other operation keeps the kind of its widest operand.

How Triton writes an operation is not said here: that is what a policy has to find out.
"""

from __future__ import annotations

from typing import Literal

from kerneldojo.schema import Frozen

Family = Literal["unary", "scalar", "binary", "reduction", "rowwise", "product"]
Kind = Literal["matrix", "row", "column", "left", "right"]


class Operation(Frozen):
    """One kind of node."""

    name: str
    family: Family
    torch: str
    """One expression with places for operands and constants."""
    commutative: bool = False
    constants: tuple[tuple[float, ...], ...] = ()
    """For each constant, the values that generated graphs use; any number is understood."""
    generated: bool = True
    """Whether generated graphs use it; the others are only understood."""


def _unary(name: str, torch: str, *, generated: bool = True) -> Operation:
    return Operation(name=name, family="unary", torch=torch, generated=generated)


def _binary(name: str, torch: str, *, commutative: bool = True, generated: bool = True) -> Operation:
    return Operation(name=name, family="binary", torch=torch, commutative=commutative, generated=generated)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        _unary("relu", "torch.relu({0})"),
        _unary("sigmoid", "torch.sigmoid({0})"),
        _unary("tanh", "torch.tanh({0})"),
        _unary("silu", "F.silu({0})"),
        _unary("gelu", "F.gelu({0})"),
        _unary("elu", "F.elu({0})"),
        _unary("softplus", "F.softplus({0})"),
        _unary("abs", "torch.abs({0})"),
        _unary("square", "torch.square({0})"),
        _unary("sin", "torch.sin({0})"),
        _unary("cos", "torch.cos({0})"),
        _unary("leaky_relu", "F.leaky_relu({0}, 0.1)"),
        _unary("hardtanh", "F.hardtanh({0})"),
        Operation(name="scale", family="scalar", torch="{0} * {c0}", constants=((0.25, 0.5, 1.5, 2.0, 3.0),)),
        Operation(name="shift", family="scalar", torch="{0} + {c0}", constants=((-1.0, -0.5, 0.5, 1.0),)),
        _binary("add", "{0} + {1}"),
        _binary("subtract", "{0} - {1}", commutative=False),
        _binary("multiply", "{0} * {1}"),
        _binary("maximum", "torch.maximum({0}, {1})"),
        _binary("minimum", "torch.minimum({0}, {1})"),
        Operation(name="sum", family="reduction", torch="torch.sum({0}, dim=-1)"),
        Operation(name="mean", family="reduction", torch="torch.mean({0}, dim=-1)"),
        Operation(name="max", family="reduction", torch="torch.amax({0}, dim=-1)"),
        Operation(name="logsumexp", family="reduction", torch="torch.logsumexp({0}, dim=-1)"),
        Operation(name="softmax", family="rowwise", torch="torch.softmax({0}, dim=-1)"),
        Operation(name="layer_norm", family="rowwise", torch="F.layer_norm({0}, {0}.shape[-1:], eps=1e-5)"),
        Operation(name="rms_norm", family="rowwise", torch="F.rms_norm({0}, {0}.shape[-1:], eps=1e-5)"),
        Operation(name="product", family="product", torch="{0} @ {1}"),
    )
}


def operation(name: str) -> Operation:
    """The operation called `name`.

    Raises:
        KeyError: there is none.
    """
    return OPERATIONS[name]
