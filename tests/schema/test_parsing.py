"""Many threads parse at once and all get their trees."""

from __future__ import annotations

import ast
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from kerneldojo.schema.parsing import parse_python

SOURCE = "\n".join(f"def f{i}(x):\n    return [(x + {i}) * (x - {i}) for x in range({i}) if x % 2]" for i in range(60))


def test_threads_do_not_disturb_each_other() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            trees = list(threads.map(parse_python, [SOURCE] * 60))
    finally:
        sys.setswitchinterval(before)
    expected = ast.dump(trees[0])
    assert all(ast.dump(tree) == expected for tree in trees)


def test_what_is_not_python_is_refused_as_ever() -> None:
    with pytest.raises(SyntaxError):
        parse_python("def f(:")


@pytest.mark.parametrize("moment", [1, 2, 3, 10, 40])
def test_a_finaliser_that_parses_in_the_middle_is_no_fault_of_the_source(moment: int) -> None:
    """Python 3.11 then says `AST constructor recursion depth mismatch`, at some of these moments."""
    source = "\n".join(f"x{i} = [{i}, ({i}, {{{i}: f({i})}})]" for i in range(200))
    num_collections = 0

    def intrude(phase: str, _: dict[str, int]) -> None:
        nonlocal num_collections
        num_collections += phase == "start"
        if phase == "start" and num_collections == moment:
            ast.parse("y = 1")

    threshold = gc.get_threshold()
    gc.callbacks.append(intrude)
    gc.set_threshold(50)
    try:
        tree = parse_python(source)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(intrude)
    assert num_collections >= moment
    assert len(tree.body) == 200
