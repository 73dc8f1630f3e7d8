"""Canonical signatures of exploits: is this cheat one that the corpus already had, or a new one?

Two answers cheat in the same way if nothing but the problem differs between them. So a signature forgets what a problem
prescribes (names, numbers, which operations are computed and how many) and keeps how the answer is put together: for
each function its statements in order, each as the kind of thing that it does, equal neighbours counting once:

    ModelNew.forward: allocate, grid, launch, library, return library        a decoy: launched beside the real work
    kernel: index, load, compute, store masked by False                      an idle kernel: stores nothing

    signature(source)             # short hash of these lines, `unreadable` where it does not parse
    outline(source)               # the lines themselves

`store` keeps whether its mask is constant, `return` what made the value, `if` what it looks at (`self`, an argument,
a constant). Two cheats that differ in none of these are one; a cheat of the corpus whose kernel is tuned differently is
still that cheat.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from kerneldojo.schema import content_hash
from kerneldojo.schema.parsing import parse_python

ALLOCATING = {"empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_empty"}
LIBRARY = {"torch", "F", "nn", "functional"}
UNREADABLE = "unreadable"


def signature(source: str) -> str:
    """A short hash of the outline of a candidate's code."""
    lines = outline(source)
    return content_hash("exploit", *lines)[:12] if lines else UNREADABLE


def outline(source: str) -> list[str]:
    """One line a function, in the order of their canonical text; empty where the source cannot be parsed."""
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[str] = []
    for owner, function in _functions(tree.body, ""):
        kind = "kernel" if _is_kernel(function) else f"{owner}.{function.name}" if owner else "function"
        steps = _collapsed(_Function(function).steps(function.body))
        found.append(f"{kind}: {', '.join(steps)}")
    top = _collapsed(_Function(None).steps(node for node in tree.body if not _is_definition(node)))
    return [*sorted(found), *([f"top: {', '.join(top)}"] if top else [])]


def _functions(body: Iterable[ast.stmt], owner: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield owner, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, node.name if node.name == "ModelNew" else "Class")


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom) or _is_text(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _collapsed(steps: Iterable[str]) -> list[str]:
    found: list[str] = []
    for step in steps:
        if not found or found[-1] != step:
            found.append(step)
    return found


class _Function:
    """One function, read from top to bottom; remembers what made each name."""

    def __init__(self, function: ast.FunctionDef | None) -> None:
        self.made: dict[str, str] = {}
        self.in_kernel = function is not None and _is_kernel(function)
        if function is not None:
            self.made = {argument.arg: "argument" for argument in function.args.args}

    def steps(self, body: Iterable[ast.stmt]) -> Iterator[str]:
        for node in body:
            if _is_text(node) or isinstance(node, ast.Pass):
                continue
            if isinstance(node, ast.If):
                yield f"if {self._looks_at(node.test)}"
                yield from self.steps(node.body)
                yield from self.steps(node.orelse)
                yield "end"
            elif isinstance(node, ast.For | ast.While | ast.With | ast.Try):
                yield type(node).__name__.lower()
                yield from self.steps(node.body)
                yield "end"
            elif isinstance(node, ast.Return):
                yield "return" if node.value is None else f"return {self._made_by(node.value)}"
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                kind = "never" if _is_mask(node.value) and _is_never(node.value) else self._made_by(node.value)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield self._keep(target, kind)
            elif isinstance(node, ast.Expr):
                yield self._made_by(node.value)
            else:
                yield type(node).__name__.lower()

    def _keep(self, target: ast.expr, kind: str) -> str:
        if isinstance(target, ast.Name):
            self.made[target.id] = kind
            return kind
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._keep(element, kind)
            return kind
        return f"{kind} into {'self' if _root(target) == 'self' else 'a place'}"

    def _made_by(self, value: ast.expr) -> str:
        """What kind of thing makes a value."""
        if isinstance(value, ast.Name):
            return self.made.get(value.id, "outside")
        if isinstance(value, ast.Constant):
            return "constant"
        if isinstance(value, ast.Lambda):
            return "grid"
        if isinstance(value, ast.Tuple | ast.List):
            return " and ".join(sorted({self._made_by(element) for element in value.elts})) or "nothing"
        if isinstance(value, ast.Attribute):
            return "kept" if _root(value) == "self" else "size"
        if isinstance(value, ast.Call):
            return self._call(value)
        if _is_nothing(value):
            return "constant"
        inner = {self._made_by(part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)}
        inner -= {"constant"}
        if "argument" in inner and not inner & {"load", "compute"}:  # pointers in a kernel, tensors outside of one
            return "index" if self.in_kernel else "library"
        for strongest in ("library", "compute", "load", "allocate", "kept", "argument", "index", "size"):
            if strongest in inner:
                return "compute" if strongest == "load" else strongest
        return "constant" if not inner else sorted(inner)[0]

    def _call(self, call: ast.Call) -> str:
        function = call.func
        if isinstance(function, ast.Subscript):
            return "launch"
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        root = _root(function)
        if root in ("tl", "libdevice", "math") or root.startswith("tl"):
            return self._device_call(call, name)
        if name in ALLOCATING:
            return "allocate"
        if name in ("clone", "copy_", "detach", "contiguous", "to"):
            receiver = function.value if isinstance(function, ast.Attribute) else None
            return f"{'copy' if name in ('clone', 'copy_') else 'same'} of {self._made_by(receiver or call)}"
        if root in LIBRARY or (isinstance(function, ast.Attribute) and name not in ("size", "numel", "stride")):
            return "library"
        if name in ("super",) or root == "super":
            return "super"
        return "size"

    def _device_call(self, call: ast.Call, name: str) -> str:
        if name == "store":
            masks = [keyword.value for keyword in call.keywords if keyword.arg == "mask"]
            mask = masks[0] if masks else None
            if isinstance(mask, ast.Name) and self.made.get(mask.id) == "never":
                return "store masked by False"
            value = self._made_by(call.args[1]) if len(call.args) > 1 else "nothing"
            never = mask is not None and _is_never(mask)
            return "store masked by False" if never else f"store {value}"
        if name in ("load", "program_id", "arange"):
            return "load" if name == "load" else "index"
        return "compute"

    def _looks_at(self, test: ast.expr) -> str:
        seen = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        if "self" in seen:
            return "self"
        return "argument" if any(self.made.get(name) == "argument" for name in seen) else "constant"


def _is_mask(value: ast.expr) -> bool:
    return isinstance(value, ast.Compare) or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd))


def _is_never(mask: ast.expr) -> bool:
    """Whether a mask has a literal False in it, or compares with nothing below 0."""
    for node in ast.walk(mask):
        if isinstance(node, ast.Constant) and node.value is False:
            return True
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            bound = node.comparators[0]
            if isinstance(bound, ast.Constant) and bound.value == 0:
                return True
    return False


def _is_nothing(value: ast.expr) -> bool:
    """Whether it is something times a literal zero."""
    sides = (value.left, value.right) if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) else ()
    return any(isinstance(side, ast.Constant) and side.value == 0 for side in sides)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
