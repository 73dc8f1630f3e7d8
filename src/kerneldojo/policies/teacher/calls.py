"""Calls that the compiler knows: PyTorch's functions and methods, and two kinds of layers."""

from __future__ import annotations

import ast

from kerneldojo.policies.teacher.compiling import Compiler, Value
from kerneldojo.policies.teacher.expressions import NotUnderstood, dotted, number
from kerneldojo.policies.teacher.reading import Given

_UNARY = {
    "relu": "tl.maximum({0}, 0.0)",
    "sigmoid": "tl.sigmoid({0})",
    "tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
    "silu": "{0} * tl.sigmoid({0})",
    "softplus": "tl.maximum({0}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({0})))",
    "elu": "tl.where({0} > 0.0, {0}, tl.exp({0}) - 1.0)",
    "abs": "tl.abs({0})",
    "square": "{0} * {0}",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1.0 / tl.sqrt({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
}
_BINARY = {"maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})"}
_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "logsumexp": "logsumexp", "var": "variance"}
_KEPT = ("contiguous", "float", "to")
"""What the kernel need not do, since it computes in float32 and writes what it is given to write to."""


def call(compiler: Compiler, node: ast.Call) -> Value:
    """Walk through a function of torch or of a functional module, a method of a value, or a layer of the module.

    Raises:
        NotUnderstood: it is not known, or not with these arguments.
    """
    name = dotted(node.func)
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if name in compiler.reading.layers:
        return call_layer(compiler, name, node)
    root, _, last = name.rpartition(".")
    if root in ("torch", "F"):
        return call_operation(compiler, last, node.args, keywords)
    if isinstance(node.func, ast.Attribute):
        return call_operation(compiler, node.func.attr, [node.func.value, *node.args], keywords)
    raise NotUnderstood(f"call of {name}")


def call_operation(compiler: Compiler, name: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Value:
    """Walk through a function or a method of a value.

    Raises:
        NotUnderstood: it is not known, or not with these arguments.
    """
    constants = compiler.reading.known
    if name in _KEPT and args:
        return compiler.value(args[0])
    if name == "t" and len(args) == 1:
        value = compiler.value(args[0])
        if value.kind != "tensor":
            raise NotUnderstood("the transpose of what is computed")
        return Value("tensor", value.text, value.given, is_transposed=not value.is_transposed)
    if name in _UNARY and len(args) == 1 and not keywords:
        return compiler.emit(_UNARY[name], compiler.value(args[0]))
    if name in _BINARY and len(args) == 2:
        return compiler.emit(_BINARY[name], compiler.value(args[0]), compiler.value(args[1]))
    if name == "pow" and number(args[1], constants) == 2:
        return compiler.emit("{0} * {0}", compiler.value(args[0]))
    if name in _REDUCTIONS or name in ("softmax", "log_softmax"):
        value = compiler.load(compiler.value(args[0]))
        _check_dim(compiler, args, keywords)
        keeps = "keepdim" in keywords and ast.unparse(keywords["keepdim"]) == "True"
        return compiler.along(_REDUCTIONS.get(name, name), value, keeps_dim=keeps)
    return _special(compiler, name, args, keywords)


def _check_dim(compiler: Compiler, args: list[ast.expr], keywords: dict[str, ast.expr]) -> None:
    """Only the last dimension runs along rows."""
    given = args[1] if len(args) > 1 else keywords.get("dim")
    if given is None or set(keywords) - {"dim", "keepdim"}:
        raise NotUnderstood("a reduction of everything, or with further arguments")
    dim = number(given, compiler.reading.known)
    dims = 2 if compiler.kernel.product else len(compiler.shape or ())
    if dim not in (-1, dims - 1):
        raise NotUnderstood(f"a reduction of dimension {dim}")


def _special(compiler: Compiler, name: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Value:
    constants = compiler.reading.known

    def option(key: str, place: int, default: float) -> float:
        node = keywords.get(key, args[place] if len(args) > place else None)
        return default if node is None else float(number(node, constants))

    first = compiler.load(compiler.value(args[0])) if args else None
    if first is None:
        raise NotUnderstood(f"call of {name}")
    if name == "gelu":
        if "approximate" in keywords and ast.unparse(keywords["approximate"]) == "'tanh'":
            return compiler.emit("{0} * tl.sigmoid(1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0}))", first)
        return compiler.emit("0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))", first)
    if name == "leaky_relu":
        return compiler.emit(f"tl.where({{0}} > 0.0, {{0}}, {option('negative_slope', 1, 0.01)} * {{0}})", first)
    if name == "clamp":
        low, high = option("min", 1, float("-inf")), option("max", 2, float("inf"))
        text = "{0}" if low == float("-inf") else f"tl.maximum({{0}}, {low})"
        return compiler.emit(text if high == float("inf") else f"tl.minimum({text}, {high})", first)
    if name == "where" and len(args) == 3:
        return compiler.emit("tl.where({0}, {1}, {2})", first, compiler.value(args[1]), compiler.value(args[2]))
    if name == "masked_fill" and len(args) == 3:
        filling = number(args[2], constants)
        text = '-float("inf")' if filling == float("-inf") else repr(filling)
        return compiler.emit(f"tl.where({{1}}, {text}, {{0}})", first, compiler.value(args[1]))
    if name == "huber_loss" and ast.unparse(keywords.get("reduction", args[0])) == "'none'":
        delta = option("delta", 3, 1.0)
        difference = compiler.emit("tl.abs({0} - {1})", first, compiler.value(args[1]))
        return compiler.emit(
            f"tl.where({{0}} < {delta}, 0.5 * {{0}} * {{0}}, {delta} * ({{0}} - {0.5 * delta}))", difference
        )
    if name == "cosine_similarity":
        other = compiler.load(compiler.value(args[1]))
        dot, left, right = (
            compiler.along("sum", compiler.emit("{0} * {1}", *pair))
            for pair in ((first, other), (first, first), (other, other))
        )
        return compiler.emit(
            "{0} / (tl.maximum(tl.sqrt({1}), 1e-8) * tl.maximum(tl.sqrt({2}), 1e-8))", dot, left, right
        )
    raise NotUnderstood(f"call of {name}")


def call_layer(compiler: Compiler, name: str, node: ast.Call) -> Value:
    """Walk through `self.linear(x)` or `self.norm(x)`."""
    made = compiler.reading.layers[name]
    layer, options = dotted(made.func), {keyword.arg: keyword.value for keyword in made.keywords}
    value = compiler.value(node.args[0])
    if layer == "nn.Linear" and value.kind == "tensor":
        weight = Value("tensor", f"{name}.weight", Given(shape=(0, 0)), is_transposed=True)
        result = compiler.multiplied(value, weight)
        if "bias" in options and ast.unparse(options["bias"]) == "False":
            return result
        return compiler.emit("{0} + {1}", result, compiler.row(f"{name}.bias"))
    if layer == "nn.LayerNorm" and not options:
        mean = compiler.along("mean", value)
        centred = compiler.emit("tl.where(inside, {0} - {1}, 0.0)", value, mean)
        variance = compiler.along("mean", compiler.emit("{0} * {0}", centred))
        normed = compiler.emit("{0} / tl.sqrt({1} + 1e-5)", centred, variance)
        scaled = compiler.emit("{0} * {1}", normed, compiler.row(f"{name}.weight"))
        return compiler.emit("{0} + {1}", scaled, compiler.row(f"{name}.bias"))
    raise NotUnderstood(f"layer {layer}")
