"""Data flows one way: no room imports one to its right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerneldojo
from kerneldojo.schema.parsing import parse_python

ROOMS = (
    *("files", "schema", "problems", "languages", "devices", "contestant", "judging", "pool", "service", "client"),
    *("rewards", "episodes", "policies", "rollout", "evaluate", "search", "report"),
    *("algorithms", "training", "learning", "integrations", "cli"),
)
ROOT = Path(kerneldojo.__file__).parent


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms that a module imports anywhere in it, lazily too; for a type checker's eyes alone does not count."""
    tree = parse_python(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{alias.name}" if node.module == "kerneldojo" else node.module for alias in node.names
            ]
        yield from (name.split(".")[1] for name in names if name.startswith("kerneldojo."))


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_imports_one_to_its_right(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in (ROOT / room).rglob("*.py")
        for other in imported_rooms(path)
        if other in ROOMS and ROOMS.index(other) > ROOMS.index(room)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_its_place() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found == set(ROOMS)
