"""Expressions whose value is plain to see: numbers, names of numbers, and arithmetic on them."""

from __future__ import annotations

import ast

Number = int | float


class NotUnderstood(Exception):
    """The text asks for more than the teacher knows; the message says what."""


def number(node: ast.expr, constants: dict[str, Number]) -> Number:
    """The value of a constant expression.

    Raises:
        NotUnderstood: it is none.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if (name := dotted(node)) in constants:
        return constants[name]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -number(node.operand, constants)
    if isinstance(node, ast.Call) and dotted(node.func) == "float" and len(node.args) == 1:
        argument = node.args[0]
        if isinstance(argument, ast.Constant) and argument.value in ("inf", "-inf"):
            return float(argument.value)
    if isinstance(node, ast.BinOp):
        left, right = number(node.left, constants), number(node.right, constants)
        try:
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div():
                    return left / right
                case ast.FloorDiv():
                    return left // right
                case ast.Pow() if abs(right) <= 64 and left > 0:
                    return float(left) ** right
                case _:
                    pass
        except (ArithmeticError, ValueError):
            raise NotUnderstood("arithmetic on constants fails") from None
    raise NotUnderstood(f"not a constant: {ast.unparse(node)[:60]}")


def dotted(node: ast.expr) -> str:
    """`torch.nn.functional` as text; empty for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
