"""Reading a problem that somebody else wrote: sizes, inputs, layers and the lines of `forward`, without running it.

Only what can be told from the text is understood; everything else raises `NotUnderstood`, and the teacher then leaves
the whole problem to the library.
"""

from __future__ import annotations

import ast
import contextlib
from dataclasses import dataclass, field

from kerneldojo.problems.source import parse

Number = int | float


class NotUnderstood(Exception):
    """The text asks for more than the teacher knows; the message says what."""


@dataclass(frozen=True)
class Given:
    """An argument of `forward`: a tensor, or a number."""

    shape: tuple[int, ...] | None
    """None for a number."""
    dtype: str = "float32"
    strided: bool = False
    """Whether it may be anything but contiguous."""


@dataclass
class Reading:
    """What was read of a problem."""

    arguments: list[str]
    given: dict[str, Given]
    layers: dict[str, ast.Call]
    """What the constructor puts into `self`, by name: the call that makes it."""
    constants: dict[str, Number]
    """Names of the module."""
    known: dict[str, Number]
    """These, and numbers that the constructor keeps: `self.scale`."""
    parameters: dict[str, tuple[int, ...]]
    """Shapes of those `nn.Parameter` whose shape is plain to see, by name."""
    constructor: str
    """Source of `__init__`; empty where there is none."""
    body: list[ast.stmt] = field(default_factory=list[ast.stmt])


def read(source: str) -> Reading:
    """Read a problem's source.

    Raises:
        NotUnderstood: it is written in a way that the teacher does not know.
    """
    tree = parse(source)
    constants: dict[str, Number] = {}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                constants[name] = number(node.value, constants)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                constants |= {dotted(name): number(value, constants) for name, value in zip(names, values, strict=True)}
            case _:
                pass
    methods = {node.name: node for node in classes["Model"].body if isinstance(node, ast.FunctionDef)}
    if "forward" not in methods or "get_inputs" not in functions:
        raise NotUnderstood("no forward or no get_inputs")
    arguments = [argument.arg for argument in methods["forward"].args.args[1:]]
    given = _inputs(functions["get_inputs"], constants)
    if len(given) != len(arguments):
        raise NotUnderstood("forward does not take what get_inputs gives")
    constructor = methods.get("__init__")
    scope = constants | (_bound(constructor, functions.get("get_init_inputs"), constants) if constructor else {})
    layers = _layers(constructor) if constructor else {}
    return Reading(
        arguments=arguments,
        given=dict(zip(arguments, given, strict=True)),
        layers=layers,
        constants=constants,
        known=constants | (_kept(classes["Model"], constructor, scope) if constructor else {}),
        parameters=_parameters(layers, scope),
        constructor=ast.unparse(constructor) if constructor else "",
        body=methods["forward"].body,
    )


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


def _layers(constructor: ast.FunctionDef) -> dict[str, ast.Call]:
    layers: dict[str, ast.Call] = {}
    for node in constructor.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            name = dotted(node.targets[0])
            if name.startswith("self."):
                layers[name] = node.value
    return layers


def _bound(
    constructor: ast.FunctionDef, drawn: ast.FunctionDef | None, constants: dict[str, Number]
) -> dict[str, Number]:
    """What the constructor's arguments are, where they are numbers: as `get_init_inputs` has them, or by default."""
    names = [argument.arg for argument in constructor.args.args[1:]]
    defaults = constructor.args.defaults
    values: dict[str, ast.expr] = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    match drawn.body[-1] if drawn else None:
        case ast.Return(value=ast.List(elts=items)):
            values |= dict(zip(names, items, strict=False))
        case _:
            pass
    return _numbers(values, constants)


def _kept(model: ast.ClassDef, constructor: ast.FunctionDef, scope: dict[str, Number]) -> dict[str, Number]:
    """Numbers that the constructor assigns to `self`, and nobody changes."""
    attributes = (node for node in ast.walk(model) if isinstance(node, ast.Attribute))
    assigned = [dotted(node) for node in attributes if isinstance(node.ctx, ast.Store)]
    values = {
        name: node.value
        for node in constructor.body
        if isinstance(node, ast.Assign) and assigned.count(name := dotted(node.targets[0])) == 1
    }
    return _numbers({name: value for name, value in values.items() if name.startswith("self.")}, scope)


def _numbers(values: dict[str, ast.expr], constants: dict[str, Number]) -> dict[str, Number]:
    """Those of them that are."""
    found: dict[str, Number] = {}
    for name, value in values.items():
        with contextlib.suppress(NotUnderstood):
            found[name] = number(value, constants)
    return found


def _parameters(layers: dict[str, ast.Call], scope: dict[str, Number]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, made in layers.items():
        match made:
            case ast.Call(args=[ast.Call(func=func, args=[_, *_] as places)]) if dotted(made.func) == "nn.Parameter":
                places = places[0].elts if isinstance(places[0], ast.Tuple) else places
                if dotted(func) in ("torch.randn", "torch.rand", "torch.ones", "torch.zeros", "torch.empty"):
                    with contextlib.suppress(NotUnderstood):
                        found[name] = tuple(int(number(place, scope)) for place in places)
            case _:
                pass
    return found


def _inputs(function: ast.FunctionDef, constants: dict[str, Number]) -> list[Given]:
    known: dict[str, Given] = {}
    for node in function.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = _drawn(node.value, known, constants)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.List):
            return [_drawn(item, known, constants) for item in node.value.elts]
        elif not isinstance(node, ast.Assign | ast.Expr):
            break
    raise NotUnderstood("get_inputs is not a plain list")


def _drawn(node: ast.expr, known: dict[str, Given], constants: dict[str, Number]) -> Given:
    """What an expression of `get_inputs` gives."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name in ("torch.randn", "torch.rand", "torch.randint"):
            return _tensor(name, node, constants)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "t" and not node.args:
            inner = _drawn(node.func.value, known, constants)
            if inner.shape is not None:
                return Given(shape=inner.shape[::-1], dtype=inner.dtype, strided=True)
    if isinstance(node, ast.Compare):
        return Given(shape=_drawn(node.left, known, constants).shape, dtype="bool")
    if isinstance(node, ast.BinOp):
        sides = (_drawn(node.left, known, constants), _drawn(node.right, known, constants))
        tensors = [side for side in sides if side.shape is not None]
        if tensors:
            widest = max(tensors, key=lambda side: (len(side.shape or ()), side.shape or ()))
            strided = any(side.strided for side in tensors)
            return Given(shape=widest.shape, dtype=widest.dtype, strided=strided)
    number(node, constants)
    return Given(shape=None)


def _tensor(name: str, node: ast.Call, constants: dict[str, Number]) -> Given:
    places = list(node.args)
    if name == "torch.randint":
        places = places[2:]
    if len(places) == 1 and isinstance(places[0], ast.Tuple):
        places = places[0].elts
    named = {keyword.arg: dotted(keyword.value) for keyword in node.keywords}
    default = "int64" if name == "torch.randint" else "float32"
    dtype = named.get("dtype", default).removeprefix("torch.")
    return Given(shape=tuple(int(number(place, constants)) for place in places), dtype=dtype)
