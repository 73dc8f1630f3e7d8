"""What an exception may tell: enough for an honest author, nothing that a policy could smuggle out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerneldojo.contestant.failure import MAX_TEXT, OUT_OF_DEVICE_MEMORY, describe
from kerneldojo.contestant.kinds import Failure


def failure_of(source: str, folder: Path, **names: object) -> Failure:
    file = folder / "candidate.py"
    file.write_text(source)
    try:
        exec(compile(source, str(file), "exec"), {"__name__": "candidate", **names})
    except BaseException as error:
        return describe(error, str(file), "runtime_error")
    raise AssertionError("nothing was raised")


def library(folder: Path, source: str) -> dict[str, Any]:
    """What a module of torch's own would define."""
    file = folder / "torch" / "module.py"
    file.parent.mkdir()
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    return names


SMUGGLERS = [
    "raise RuntimeError(secret)",
    "raise RuntimeError('a' if not secret else secret)",
    "assert False, secret",
    "exec('raise ValueError(secret)', globals())",
    "class Mine(Exception): pass\nraise Mine(secret)",
    "class Mine(Exception):\n    def __str__(self): return secret\nraise Mine()",
    "raise type(secret, (Exception,), {})()",
    "def f():\n    raise RuntimeError(secret)\nf()",
    "raise type(secret, (Exception,), {'__module__': 'torch'})()",
    "raise KeyError(secret)",
    "raise ImportError(secret)",
    "exec('raise AttributeError(secret)', globals())",
    "import sys\nsys.exit(secret)",
]


@pytest.mark.parametrize("source", SMUGGLERS)
def test_what_a_candidate_puts_into_an_exception_is_not_repeated(source: str, tmp_path: Path) -> None:
    assert "hunter2" not in failure_of(source, tmp_path, secret="hunter2")["text"]


def test_errors_of_libraries_are_told_with_the_line(tmp_path: Path) -> None:
    failure = failure_of("import torch\nx = torch.zeros(3)\ny = x @ torch.zeros(4)\n", tmp_path)
    assert failure["text"].startswith("RuntimeError: ")
    assert "inconsistent tensor size" in failure["text"]
    assert failure["line"] == 3


def test_a_missing_name_and_a_syntax_error_are_told(tmp_path: Path) -> None:
    assert failure_of("print(nosuch)", tmp_path)["text"] == "NameError: name 'nosuch' is not defined"
    missing = failure_of("import nosuch", tmp_path)["text"]
    assert missing == "ModuleNotFoundError: No module named 'nosuch'"
    assert "has no attribute 'nosuch'" in failure_of("import torch\ntorch.nosuch", tmp_path)["text"]
    failure = failure_of("x = 1\ndef f(:\n", tmp_path)
    assert failure["text"].startswith("SyntaxError")
    assert failure["line"] == 2


def test_memory_errors_have_a_kind_of_their_own(tmp_path: Path) -> None:
    assert failure_of("raise MemoryError", tmp_path)["kind"] == "out_of_memory"
    assert failure_of("import torch\nraise torch.OutOfMemoryError", tmp_path)["kind"] == "out_of_device_memory"
    assert failure_of("x = 1 / 0", tmp_path)["kind"] == "runtime_error"


@pytest.mark.parametrize("words", OUT_OF_DEVICE_MEMORY)
def test_only_a_library_says_that_device_memory_ran_out(words: str, tmp_path: Path) -> None:
    names = library(tmp_path, "def refuse(text): raise RuntimeError(text)\n")
    told = failure_of(f"refuse({words!r} + ': 7 bytes')", tmp_path, refuse=names["refuse"])
    assert told["kind"] == "out_of_device_memory"
    assert failure_of(f"raise RuntimeError({words!r})", tmp_path)["kind"] == "runtime_error"


def test_what_an_extension_was_called_with_is_not_told(tmp_path: Path) -> None:
    words = "f(): incompatible function arguments:\\n    1. (arg0: int)\\n\\nInvoked with: tensor([0.4286,\\n 0.3])"
    names = library(tmp_path, f"def f(x): raise TypeError('{words}')\n")
    told = failure_of("f(1)", tmp_path, f=names["f"])["text"]
    assert told == "TypeError: f(): incompatible function arguments:\n    1. (arg0: int)"


def test_folders_of_a_verdict_are_not_told(tmp_path: Path) -> None:
    words = "/tmp/dojo-judge-fg/dojo-mu_/extensions/ops-7f/ops.so: undefined symbol: _Z3fwd; see /usr/lib/x.so"
    names = library(tmp_path, f"def f(x): raise ImportError('{words}')\n")
    told = failure_of("f(1)", tmp_path, f=names["f"])["text"]
    assert told == "ImportError: ops.so: undefined symbol: _Z3fwd; see /usr/lib/x.so"


def test_a_giant_message_is_cut_and_control_characters_go(tmp_path: Path) -> None:
    told = failure_of("int('\\x1b[31m' + 'x' * 10**6)", tmp_path)["text"]
    assert len(told) <= MAX_TEXT
    assert "\x1b" not in told
