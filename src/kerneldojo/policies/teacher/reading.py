"""Reading a problem that somebody else wrote: sizes, inputs, layers and the lines of `forward`, without running it.

Only what can be told from the text is understood; everything else raises `NotUnderstood`, and the teacher then leaves
the whole problem to the library.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kerneldojo.policies.teacher.constructors import bound, kept, layers_of, parameters_of
from kerneldojo.policies.teacher.expressions import NotUnderstood, Number, dotted, number
from kerneldojo.problems.source import parse


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
    scope = constants | (bound(constructor, functions.get("get_init_inputs"), constants) if constructor else {})
    layers = layers_of(constructor) if constructor else {}
    return Reading(
        arguments=arguments,
        given=dict(zip(arguments, given, strict=True)),
        layers=layers,
        constants=constants,
        known=constants | (kept(classes["Model"], constructor, scope) if constructor else {}),
        parameters=parameters_of(layers, scope),
        constructor=ast.unparse(constructor) if constructor else "",
        body=methods["forward"].body,
    )


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
