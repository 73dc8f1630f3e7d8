"""A kernel's Python source, rewritten so that executing it means what compiling it would.

Triton's compiler gives Python's statements other meanings than Python does; four of them matter here:

- `x = 1.0` makes a tensor of one element;
- `for k in range(0, K, B)` takes tensors as bounds, and `k` is a tensor;
- `a and b`, `not a` combine tensors elementwise instead of asking for their truth;
- annotations and defaults are not evaluated again.

Only the function's code is replaced; it keeps its globals and its closure, and nothing but the four names of
`SUPPORT` is added to the globals, so that a name that the candidate forgot to import stays missing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl

PREFIX = "_kerneldojo_"


class _Meaning(ast.NodeTransformer):
    """Replaces what Python and Triton read differently by calls to `SUPPORT`."""

    def _call(self, name: str, *arguments: ast.expr) -> ast.expr:
        return ast.Call(ast.Name(PREFIX + name, ast.Load()), list(arguments), [])

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A number becomes a tensor."""
        self.generic_visit(node)
        node.value = self._call("to_tensor", node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """Bounds and index of a range are tensors."""
        self.generic_visit(node)
        loop = node.iter
        if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name) and loop.func.id == "range":
            loop.func = ast.Name(PREFIX + "range", ast.Load())
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Combine tensors; short-circuit where the left side is plain."""
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        result = node.values[0]
        for value in node.values[1:]:
            thunk = ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)
            result = self._call(name, result, thunk)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Negate tensors elementwise."""
        self.generic_visit(node)
        return self._call("negation", node.operand) if isinstance(node.op, ast.Not) else node


def rewrite(function: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    """A function like `function` with Triton's meanings.

    Args:
        function: the plain Python function below `@triton.jit`; its source must be available, as for compiling.
        semantic: Triton's `TritonSemantic` over the interpreter's builder.

    Raises:
        OSError: the source is not available.
    """
    lines, first = inspect.getsourcelines(function)
    module = ast.parse("\n" * (first - 1) + textwrap.dedent("".join(lines)))  # So that lines have their numbers.
    definition = next(node for node in module.body if isinstance(node, ast.FunctionDef))
    definition.decorator_list, definition.returns = [], None
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    called = _called_names(definition)
    transformed = _Meaning().visit(module)
    free = function.__code__.co_freevars
    if free:  # Compile inside a function that owns the captured names, so that they become cells again.
        owner = ast.parse("def owner():\n" + "".join(f"    {name} = None\n" for name in free)).body[0]
        assert isinstance(owner, ast.FunctionDef)
        owner.body.append(definition)
        transformed = ast.Module([owner], [])
    ast.fix_missing_locations(transformed)
    code = _find_code(compile(transformed, function.__code__.co_filename, "exec"), definition.name)
    for name, value in support(semantic).items():
        function.__globals__.setdefault(PREFIX + name, value)
    cells = dict(zip(free, function.__closure__ or (), strict=True))
    made = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, tuple(cells[n] for n in code.co_freevars)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__["called_names"] = called
    return made


def _called_names(definition: ast.FunctionDef) -> tuple[str, ...]:
    """Names that a kernel calls and does not define itself."""
    nodes = list(ast.walk(definition))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    return tuple(sorted({func.id for func in calls if isinstance(func, ast.Name)} - own))


def check_called(kernel: Callable[..., Any], rewritten: Callable[..., Any]) -> None:
    """Refuse a kernel that calls a plain Python function, as Triton's compiler does.

    Looked up at every launch, for a global can be exchanged between launches: under an interpreter such a helper
    could do anything, on a GPU it could not even be compiled.

    Raises:
        NameError: with what Triton says of it.
    """
    names: tuple[str, ...] = rewritten.__dict__.get("called_names", ())
    cells = dict(zip(kernel.__code__.co_freevars, kernel.__closure__ or (), strict=True))
    for name in names:
        cell = cells.get(name)
        value = cell.cell_contents if cell is not None else kernel.__globals__.get(name)
        if isinstance(value, types.FunctionType | types.LambdaType) and not _is_tritons(value):
            raise NameError(f"Cannot access global variable {name} from within @jit'ed function")


def _is_tritons(function: Any) -> bool:
    home = str(getattr(function, "__module__", ""))
    return bool(getattr(function, tl.core.TRITON_BUILTIN, False)) or home.startswith(("triton.", "kerneldojo.devices."))


def support(semantic: Any) -> dict[str, Callable[..., Any]]:
    """What rewritten code calls, by name without `PREFIX`."""

    def to_tensor(value: Any) -> Any:
        return value if isinstance(value, tl.tensor) else semantic.to_tensor(value, False)

    def both(left: Any, right: Callable[[], Any]) -> Any:
        if isinstance(left, tl.tensor):
            return semantic.logical_and(left, semantic.to_tensor(right()))
        return left and right()

    def either(left: Any, right: Callable[[], Any]) -> Any:
        if isinstance(left, tl.tensor):
            return semantic.logical_or(left, semantic.to_tensor(right()))
        return left or right()

    def negation(value: Any) -> Any:
        return semantic.not_(value) if isinstance(value, tl.tensor) else not value

    def counted(*bounds: Any, **options: Any) -> Iterator[Any]:
        for index in range(*(integer(bound) for bound in bounds)):
            yield semantic.to_tensor(index)

    return {"to_tensor": to_tensor, "both": both, "either": either, "negation": negation, "range": counted}


def integer(value: Any) -> int:
    """A loop bound as a Python integer, from a tensor of one element, a constexpr or a number."""
    if isinstance(value, tl.tensor):
        return int(value.handle.data.reshape(-1)[0])
    return int(value.value if isinstance(value, tl.constexpr) else value)


def _find_code(code: types.CodeType, name: str) -> types.CodeType:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            if constant.co_name == "owner":
                return _find_code(constant, name)
    raise ValueError(f"no function {name} in its own source")
