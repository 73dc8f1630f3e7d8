"""What a constructor makes of what it is given: layers, parameters, and numbers that it keeps."""

from __future__ import annotations

import ast
import contextlib

from kerneldojo.policies.teacher.expressions import NotUnderstood, Number, dotted, number


def layers_of(constructor: ast.FunctionDef) -> dict[str, ast.Call]:
    """Calls whose result it puts into `self`, by name."""
    layers: dict[str, ast.Call] = {}
    for node in constructor.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            name = dotted(node.targets[0])
            if name.startswith("self."):
                layers[name] = node.value
    return layers


def bound(
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


def kept(model: ast.ClassDef, constructor: ast.FunctionDef, scope: dict[str, Number]) -> dict[str, Number]:
    """Numbers that the constructor assigns to `self`, and nobody changes."""
    attributes = (node for node in ast.walk(model) if isinstance(node, ast.Attribute))
    assigned = [dotted(node) for node in attributes if isinstance(node.ctx, ast.Store)]
    values = {
        name: node.value
        for node in constructor.body
        if isinstance(node, ast.Assign) and assigned.count(name := dotted(node.targets[0])) == 1
    }
    return _numbers({name: value for name, value in values.items() if name.startswith("self.")}, scope)


def parameters_of(layers: dict[str, ast.Call], scope: dict[str, Number]) -> dict[str, tuple[int, ...]]:
    """Shapes of those `nn.Parameter` that are drawn or filled with a shape that is plain to see."""
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


def _numbers(values: dict[str, ast.expr], constants: dict[str, Number]) -> dict[str, Number]:
    """Those of them that are."""
    found: dict[str, Number] = {}
    for name, value in values.items():
        with contextlib.suppress(NotUnderstood):
            found[name] = number(value, constants)
    return found
