"""A problem in as few lines as define it, for small models of one's own.

    init channels=4, filters=8
    self.conv = nn.Conv2d(channels, filters, kernel_size=4, stride=2, padding=1)
    forward x
    return F.gelu(self.conv(x))
    input torch.randn(2, 4, 12, 12)

The lines are printed from the syntax tree, so that layout, comments, annotations and names of constants make no
difference: what defines the problem alone is left. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from kerneldojo.schema.parsing import parse_python

IGNORED = (ast.Import, ast.ImportFrom)


def outline(source: str) -> str:
    """What defines the problem `source`, a line each; the source itself where it does not parse.

    Everything at the top level but imports, constants and docstrings is there: constants are written out where they
    are used in the two functions and in `Model`.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    constants = _constants(tree)
    tree = _Constants(constants).visit(tree)
    lines: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            continue
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            continue
        if not isinstance(node, IGNORED) and not _is_docstring(node) and not _is_constant(node, constants):
            lines.extend(_lines([node]))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    model = next((n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is not None:
        lines.extend(_model(model, functions.get("get_init_inputs")))
    if "get_inputs" in functions:
        lines.extend(_inputs(functions["get_inputs"]))
    return "\n".join(lines)


def _constants(tree: ast.Module) -> dict[str, ast.Constant]:
    """Names at the top level that are assigned one plain value, once."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
    found: dict[str, ast.Constant] = {}
    for name, assigned in values.items():
        if len(assigned) == 1 and isinstance(assigned[0], ast.Constant):
            found[name] = assigned[0]
    # A name that is bound anywhere else, as an argument say, means something else there: it is left alone.
    at_top = {id(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.pop(node.arg, None)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in at_top:
            found.pop(node.id, None)
    return found


class _Constants(ast.NodeTransformer):
    """Writes constants out where they are used, and drops annotations and docstrings."""

    def __init__(self, constants: dict[str, ast.Constant]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.constants.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        node.body = [item for item in node.body if not _is_docstring(item)] or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = [item for item in node.body if not _is_docstring(item)] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


def _model(model: ast.ClassDef, init_inputs: ast.FunctionDef | None) -> Iterator[str]:
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            body = [item for item in node.body if not _is_super_init(item)]
            given = _given(node, init_inputs)
            if body or given:
                yield f"init {given}".rstrip()
            yield from _lines(body)
        elif isinstance(node, ast.FunctionDef) and node.name == "forward":
            yield f"forward {_names(node)}".rstrip()
            yield from _lines(node.body)
        elif not isinstance(node, ast.Pass):
            yield from _lines([node])


def _given(init: ast.FunctionDef, init_inputs: ast.FunctionDef | None) -> str:
    """Arguments of the constructor with the values that `get_init_inputs` gives them."""
    names = [argument.arg for argument in init.args.args[1:]]
    values = _returned(init_inputs)
    if values is None:  # not a plain list: said in its own words
        return f"{_names(init)}\n{_joined(init_inputs)}" if init_inputs is not None else _names(init)
    pairs = [f"{name}={ast.unparse(value)}" for name, value in zip(names, values, strict=False)]
    pairs += [ast.unparse(value) for value in values[len(names) :]]
    defaults = init.args.defaults
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        if names.index(name) >= len(values):
            pairs.append(f"{name}={ast.unparse(default)}")
    return ", ".join(pairs)


def _inputs(function: ast.FunctionDef) -> Iterator[str]:
    values = _returned(function)
    if values is None:
        yield "inputs"
        yield from _lines(function.body)
        return
    for value in values:
        yield f"input {ast.unparse(value)}"


def _returned(function: ast.FunctionDef | None) -> list[ast.expr] | None:
    """The elements of the list or tuple that is all that a function returns; None if it does more than that."""
    if function is None or len(function.body) != 1 or not isinstance(function.body[0], ast.Return):
        return None
    value = function.body[0].value
    if not isinstance(value, ast.List | ast.Tuple) or any(isinstance(item, ast.Starred) for item in value.elts):
        return None
    if any(isinstance(item, ast.List | ast.Dict) for item in value.elts):  # [[], {...}]: by keyword
        return None
    return value.elts


def _names(function: ast.FunctionDef) -> str:
    arguments = ast.unparse(function.args)
    return arguments.removeprefix("self").removeprefix(", ")


def _lines(nodes: Iterable[ast.AST]) -> list[str]:
    return [line for node in nodes for line in ast.unparse(ast.fix_missing_locations(node)).split("\n")]


def _joined(function: ast.FunctionDef) -> str:
    return "\n".join(_lines(function.body))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_constant(node: ast.AST, constants: dict[str, ast.Constant]) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in constants


def _is_super_init(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("super(") and ".__init__(" in ast.unparse(node)
