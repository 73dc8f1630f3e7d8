"""From the lines of a `forward` to the lines of one kernel, by walking through the expression with symbols.

A kernel works on a tile of whole rows, or on a tile of a product. Every value is a matrix (as wide as the tile), a row,
a column or a number; half precision is computed in float32. What does not fit raises `NotUnderstood`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kerneldojo.policies.teacher.expressions import NotUnderstood, dotted, number
from kerneldojo.policies.teacher.forms import FORMS
from kerneldojo.policies.teacher.reading import Given, Reading

ValueKind = Literal["matrix", "row", "column", "number", "tensor"]
_WIDTH: dict[ValueKind, int] = {"number": 0, "column": 1, "row": 1, "matrix": 2}


@dataclass(frozen=True)
class Value:
    """Something that the kernel knows: the name of a variable or a literal."""

    kind: ValueKind
    text: str
    """For a `tensor`, which is not loaded yet, what the host calls it."""
    given: Given | None = None
    is_transposed: bool = False
    keeps_dim: bool = False
    """Whether a column still has its last dimension."""


@dataclass
class Product:
    """The operands of the kernel's one product, as the host calls them."""

    left: Value
    right: Value


@dataclass
class Kernel:
    """What the walk found out."""

    lines: list[str] = field(default_factory=list[str])
    pointers: dict[str, str] = field(default_factory=dict[str, str])
    """Host's name of every tensor that is read: the kernel's name of its pointer."""
    numbers: list[str] = field(default_factory=list[str])
    """Arguments of `forward` that are numbers."""
    outputs: list[Value] = field(default_factory=list[Value])
    product: Product | None = None
    main: str = ""
    """The argument that has the shape of the tile; empty where the product decides."""
    runs_along_rows: bool = False


class Compiler:
    """Walks through one `forward`."""

    def __init__(self, reading: Reading, call: Callable[[Compiler, ast.Call], Value]) -> None:
        """Prepare to walk; `call` knows what can be called (`calls.call`)."""
        self.reading, self.call = reading, call
        self.kernel = Kernel()
        self.names: dict[str, Value] = {}
        self.count = 0
        self.loaded: dict[str, Value] = {}
        shapes = {name: given.shape for name, given in reading.given.items() if given.shape and len(given.shape) >= 2}
        self.shape: tuple[int, ...] | None = max(shapes.values(), key=len, default=None)
        if self.shape is not None:
            whole = [name for name, shape in shapes.items() if shape == self.shape]
            self.kernel.main = next((name for name in whole if reading.given[name].dtype != "bool"), whole[0])
        for name, given in reading.given.items():
            if given.shape is None:
                self.kernel.numbers.append(name)
                self.names[name] = Value("number", name)
            else:
                self.names[name] = Value("tensor", name, given)

    def compile(self) -> Kernel:
        """Walk through all lines.

        Raises:
            NotUnderstood: a line asks for more than one kernel of the known kinds can do.
        """
        for node in self.reading.body:
            match node:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.names[name] = self.value(node.value)
                case ast.Return(value=ast.Tuple(elts=items)):
                    self.kernel.outputs = [self.output(item) for item in items]
                case ast.Return(value=ast.expr() as item):
                    self.kernel.outputs = [self.output(item)]
                case _:
                    raise NotUnderstood(f"not a plain line: {ast.unparse(node)[:60]}")
        if not self.kernel.outputs:
            raise NotUnderstood("nothing is returned")
        return self.kernel

    def output(self, node: ast.expr) -> Value:
        """A value that is returned."""
        value = self.load(self.value(node))
        if value.kind not in ("matrix", "column"):
            raise NotUnderstood("an output that is neither a matrix nor a column")
        return value

    def value(self, node: ast.expr) -> Value:
        """Walk through one expression."""
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        try:
            return Value("number", repr(number(node, self.reading.known)))
        except NotUnderstood:
            pass
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.emit("-{0}", self.value(operand))
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return self.multiplied(self.value(left), self.value(right))
            case ast.BinOp(left=left, op=op, right=right):
                return self.operated(op, left, right)
            case ast.Attribute():
                return self.parameter(dotted(node))
            case ast.Call():
                return self.call(self, node)
            case _:
                raise NotUnderstood(f"not an operation: {ast.unparse(node)[:60]}")

    def operated(self, op: ast.operator, left: ast.expr, right: ast.expr) -> Value:
        """An operator between two values."""
        for kind, sign in (
            (ast.Add, "+"),
            (ast.Sub, "-"),
            (ast.Mult, "*"),
            (ast.Div, "/"),
            (ast.BitXor, "^"),
            (ast.LShift, "<<"),
            (ast.RShift, ">>"),
        ):
            if isinstance(op, kind):
                return self.emit(f"{{0}} {sign} {{1}}", self.value(left), self.value(right))
        if isinstance(op, ast.Pow) and number(right, self.reading.known) == 2:
            return self.emit("{0} * {0}", self.value(left))
        raise NotUnderstood(f"operator {type(op).__name__}")

    def parameter(self, name: str) -> Value:
        """A parameter of the module: one value a column."""
        made = self.reading.layers.get(name)
        if made is None or dotted(made.func) != "nn.Parameter":
            raise NotUnderstood(f"attribute {name}")
        columns = self.shape[-1:] if self.shape is not None and self.kernel.product is None else None
        shape = self.reading.parameters.get(name)
        if shape is not None and (len(shape) != 1 or (columns is not None and shape != columns)):
            raise NotUnderstood(f"a parameter of shape {shape}")
        return self.row(name)

    def row(self, host: str) -> Value:
        """Load one value a column."""
        return self.read(host, "col", "inside", "row")

    def load(self, value: Value) -> Value:
        """The value of a tensor's elements in the tile."""
        if value.kind != "tensor":
            return value
        assert value.given is not None and value.given.shape is not None
        shape = value.given.shape
        if value.is_transposed:
            raise NotUnderstood("a transposed operand outside a product")
        if len(shape) == 1:
            return self.row(value.text)
        whole = self.shape if self.kernel.product is None else None
        if len(shape) == 2 and shape[-1] == 1:
            return self.read(value.text, "row", "row < rows", "column")
        if whole is not None and shape != whole:
            raise NotUnderstood(f"an operand of shape {shape} beside one of {whole}")
        return self.read(value.text, "row * columns + col", "mask", "matrix", value.given.dtype)

    def read(self, host: str, place: str, mask: str, kind: ValueKind, dtype: str = "") -> Value:
        """Load each tensor once."""
        if host not in self.loaded:
            pointer = self.pointer(host)
            text = f"tl.load({pointer} + {place}, mask={mask}, other=0)"
            given = self.reading.given.get(host)
            integer = given is not None and given.dtype.startswith("int")
            if dtype == "bool":
                text += " != 0"
            elif not integer:
                text += ".to(tl.float32)"
            self.loaded[host] = Value(kind, self.line(text))
        return self.loaded[host]

    def pointer(self, host: str) -> str:
        """The kernel's name of a tensor."""
        return self.kernel.pointers.setdefault(host, host.removeprefix("self.").replace(".", "_") + "_ptr")

    def line(self, text: str) -> str:
        """Write a line that makes a new value; return its name."""
        self.count += 1
        self.kernel.lines.append(f"t{self.count} = {text}")
        return f"t{self.count}"

    def emit(self, template: str, *values: Value) -> Value:
        """An operation element by element."""
        operands = [self.load(value) for value in values]
        kinds: set[ValueKind] = {operand.kind for operand in operands}
        kind: ValueKind = "number"
        for one in kinds:
            kind = one if _WIDTH[one] > _WIDTH[kind] else kind
        if {"row", "column"} <= kinds:
            kind = "matrix"
        keeps = any(operand.keeps_dim for operand in operands)
        text = template.format(*(f"({o.text})" if o.text.startswith("-") else o.text for o in operands))
        return Value(kind, self.line(text), keeps_dim=keeps)

    def multiplied(self, left: Value, right: Value) -> Value:
        """A product; with a vector it is a sum along rows."""
        if right.kind == "tensor" and right.given is not None and right.given.shape and len(right.given.shape) == 1:
            return self.along("sum", self.emit("{0} * {1}", left, right))
        if self.kernel.product is not None or self.kernel.lines or "tensor" not in (left.kind, right.kind):
            raise NotUnderstood("a product of what is not given")
        for side in (left, right):
            if side.kind != "tensor" or (side.given is not None and len(side.given.shape or ()) != 2):
                raise NotUnderstood("a product of anything but two matrices")
        self.kernel.product = Product(left, right)
        for side in (left, right):
            self.pointer(side.text)
        return Value("matrix", "x")

    def along(self, operation: str, value: Value, *, keeps_dim: bool = False) -> Value:
        """A reduction, or what changes whole rows."""
        value = self.load(value)
        if value.kind != "matrix":
            raise NotUnderstood(f"{operation} of a {value.kind}")
        self.kernel.runs_along_rows = True
        self.count += 1
        result = f"t{self.count}"
        self.kernel.lines += [line.format(value.text, o=result) for line in FORMS[operation]]
        kind: ValueKind = "matrix" if operation in ("softmax", "log_softmax") else "column"
        return Value(kind, result, keeps_dim=keeps_dim)
