"""Problem sources, read without ever being run.

A problem may come from a stranger, so the judge's process only parses it: `check_source` looks at the syntax tree for
the three names that KernelBench's format requires. Whether they do what they should is found out by the audit, in the
reference runner's own process.

Katas carry two sizes in one file: module-level constants hold the full size and a mapping `SMALL` the small one.
`at_size` writes one of them out as a source that stands alone, so that its content hash does too.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from kerneldojo.schema import MAX_SOURCE_BYTES
from kerneldojo.schema.parsing import parse_python

Size = Literal["small", "full"]

REQUIRED_FUNCTIONS = ("get_inputs", "get_init_inputs")
MAPPING = "SMALL"
FLAG = "IRREDUCIBLE"


class ProblemError(ValueError):
    """A problem, or a reference to problems, cannot be used; the message is one line."""


def parse(source: str, where: str = "problem") -> ast.Module:
    """Parse Python text that may be hostile.

    Raises:
        ProblemError: not text of a sensible size, or not Python.
    """
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ProblemError(f"{where}: longer than {MAX_SOURCE_BYTES} bytes")
    try:
        return parse_python(source)
    except SyntaxError as error:
        line = "" if error.lineno is None else f" (line {error.lineno})"
        raise ProblemError(f"{where}: not Python: {error.msg}{line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{where}: not Python: {type(error).__name__}") from None


def check_source(source: str, where: str = "problem") -> None:
    """Check that `source` has the shape of KernelBench's format, without running it.

    Raises:
        ProblemError: it does not parse, or lacks `Model`, `get_inputs` or `get_init_inputs` at the top level.
    """
    tree = parse(source, where)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if "Model" not in classes:
        hint = " (but ModelNew: are reference and candidate swapped?)" if "ModelNew" in classes else ""
        raise ProblemError(f"{where}: defines no class Model{hint}")
    if not classes["Model"].bases:
        raise ProblemError(f"{where}: class Model is not derived from torch.nn.Module")
    defined = _defined_names(tree)
    for name in REQUIRED_FUNCTIONS:
        if name not in defined:
            raise ProblemError(f"{where}: defines no function {name}")


def _defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


@dataclass(frozen=True)
class Kata:
    """What a kata's file says beside its code."""

    source: str
    """Source at one size; neither `SMALL` nor `IRREDUCIBLE` is left in it."""
    summary: str
    """First line of the file's docstring."""
    irreducible: bool
    """Whether the file says that the FLOPs cannot be avoided."""


def at_size(text: str, size: Size, where: str = "kata") -> Kata:
    """Write the kata `text` out at one size.

    Args:
        text: the file's content, with constants at full size and the mapping `SMALL`.
        size: which size to write.
        where: what to call the file in messages.

    Raises:
        ProblemError: no `SMALL`, or it names a constant that the file does not assign a plain number.
    """
    tree = parse(text, where)
    assigned = {
        node.targets[0].id: node
        for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    if MAPPING not in assigned:
        raise ProblemError(f"{where}: has no mapping {MAPPING}")
    lines = text.splitlines(keepends=True)
    for name, value in _small_values(assigned[MAPPING], where).items():
        node = assigned.get(name)
        if node is None or not isinstance(node.value, ast.Constant):
            raise ProblemError(f"{where}: {MAPPING} names {name}, which is not assigned a number")
        if size == "small":
            lines[node.lineno - 1] = f"{name} = {value}\n"
    irreducible = False
    for name in (MAPPING, FLAG):
        if name in assigned:
            node = assigned[name]
            irreducible = irreducible or name == FLAG
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return Kata("".join(lines), (ast.get_docstring(tree) or "").partition("\n")[0], irreducible)


def _small_values(node: ast.Assign, where: str) -> dict[str, int | float]:
    try:
        values = ast.literal_eval(node.value)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, int | float) for value in values.values()):
        raise ProblemError(f"{where}: {MAPPING} is not a mapping of names to numbers")
    return {str(name): value for name, value in values.items()}
