"""Many threads parse at once and all get their trees."""

from __future__ import annotations

import ast
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
