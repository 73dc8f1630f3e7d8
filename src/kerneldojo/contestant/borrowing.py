"""Names that a source uses and does not define, but the reference's source does.

KernelBench runs an answer in the namespace in which it has run the reference, so answers that pass there may use its
imports, its constants and the classes that it is made of. Whoever judges such answers gets the same here: what is
missing is taken from the reference's source, which is run for that beside the candidate's, and only then.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator


def missing(code: types.CodeType, reference: types.CodeType) -> list[str]:
    """Names that `code` reads and nobody but the reference's source has defined, sorted.

    Args:
        code: a module's.
        reference: that of the reference's source.
    """
    offered = _stored(reference) - _stored(code) - vars(builtins).keys()
    if not any(offered.intersection(part.co_names) for part in _parts(code)):  # Most often; attributes are among them.
        return []
    return sorted(offered & set[str]().union(*map(_loaded, _parts(code))))


def lend(names: list[str], reference: types.CodeType, to: types.ModuleType) -> None:
    """Run the reference's source as a module of its own, and give some of its names to another one."""
    lender = types.ModuleType("reference")
    exec(reference, vars(lender))
    vars(to).update({name: vars(lender)[name] for name in names if name in vars(lender)})


def _parts(code: types.CodeType) -> Iterator[types.CodeType]:
    """A module, and all functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant)


def _stored(code: types.CodeType) -> set[str]:
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("STORE_NAME", "STORE_GLOBAL")}


def _loaded(code: types.CodeType) -> set[str]:
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
