"""Names that a candidate has of the reference's source, as KernelBench lets it."""

from __future__ import annotations

import types

import pytest

from kerneldojo.contestant.borrowing import lend, missing

REFERENCE = """
import math
from os import path as where
batch_size, dim = 16, 4
input = None
class Model:
    hidden = 3
def get_inputs():
    return [batch_size]
"""


def lacks(source: str) -> list[str]:
    return missing(compile(source, "candidate", "exec"), compile(REFERENCE, "reference", "exec"))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class ModelNew(Model): pass", ["Model"]),
        (
            "def forward(x):\n    return [math.pi for _ in range(dim)], lambda: batch_size",
            ["batch_size", "dim", "math"],
        ),
        ("class ModelNew:\n    def forward(self):\n        return where.join", ["where"]),
        ("import math\nprint(math.pi)", []),
        ("dim = 3\ndef f(x):\n    return x.batch_size, dim", []),
        ("def f(batch_size):\n    return batch_size", []),
        ("def f():\n    dim = 3\n    return lambda: dim", []),
        ("def f():\n    global dim\n    dim = 3\ndef g():\n    return dim", ["dim"]),
        ("print(input, hidden, nothing)", []),
    ],
)
def test_what_only_the_reference_defines_is_missing(source: str, names: list[str]) -> None:
    assert lacks(source) == names


def test_it_is_lent_and_nothing_else() -> None:
    module = types.ModuleType("candidate")
    before = set(vars(module))
    lend(["math", "Model"], compile(REFERENCE, "reference", "exec"), module)
    assert vars(module).keys() - before == {"math", "Model"}
    assert module.Model.hidden == 3
