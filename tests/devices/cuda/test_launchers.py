"""Launchers are made for real, by gcc; no device is touched. What is loaded is loaded in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.devices.cuda.launchers import MOST_PARAMETERS, Launchers, canonical, checked
from kerneldojo.devices.cuda.substitutes import BEFORE_LAUNCH, LAUNCH, METHODS, with_substitutes

SCRIPT = Path(__file__).with_name("launching.py")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("case", ["shared", "once", "few", "failing", "substituted", "plain"])
def test_what_one_process_lacked_the_next_one_has(case: str, tmp_path: Path) -> None:
    """Once made it serves all signatures alike; one is tried once; one that cannot be made changes nothing. It launches
    what stands for a function once that is told, wherever it was made."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), case, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_driver_that_makes_them_otherwise_is_left_alone() -> None:
    other = SimpleNamespace()
    server = Launchers(other)
    server.install()
    assert not vars(other)
    assert server.begin(["*fp32"]) is None


def test_a_text_of_another_version_is_left_as_it_is() -> None:
    for text in ("", "static void _launch(", LAUNCH + BEFORE_LAUNCH, 2 * (LAUNCH + BEFORE_LAUNCH + METHODS)):
        assert with_substitutes(text) == text
    changed = with_substitutes(BEFORE_LAUNCH + LAUNCH + METHODS)
    assert "launched(function), params" in changed
    assert changed.index("launched(CUfunction") < changed.index(BEFORE_LAUNCH)


def test_a_driver_that_takes_other_arguments_is_given_nothing_to_compile() -> None:
    def make_launcher(of_another_version: Any) -> str:
        raise AssertionError(of_another_version)

    server = Launchers(SimpleNamespace(make_launcher=make_launcher, compile_module_from_src=None))
    server._compile = lambda *_, **__: pytest.fail("what is loaded then is no module, and the fork server ends")
    assert server.begin(["*fp32"]) is None


@pytest.mark.parametrize(
    "claim",
    [
        None,
        "i32",
        [],
        ["i32"] * (MOST_PARAMETERS + 1),
        [1],
        ["*fp32; system(0)"],
        ["i32\n"],
        ["tensordesc<fp32[64]>"],
        [["i32"]],
        {"i32": 1},
    ],
)
def test_a_claim_that_is_no_signature_is_dropped(claim: Any) -> None:
    assert checked(claim) is None


@given(st.lists(st.text(alphabet="*fpiub0123456789constexpr \n", max_size=10), min_size=1, max_size=4))
def test_whatever_passes_is_of_the_vocabulary(claim: list[str]) -> None:
    types = checked(claim)
    if types is not None:
        assert all(name.isalnum() or (name[0] == "*" and name[1:].isalnum()) for name in types)
        assert checked(canonical(types)) == canonical(types)
