"""A test that fails over half a character fails by its name, in a worker of pytest-xdist too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAILING = r"""
def test_texts():
    assert "before\ud800" == "after\ud800"

def test_reason():
    raise ValueError("half: \ud800")

def test_fine():
    print("\N{SNOWMAN}")
"""


def test_half_a_character_in_a_failure_does_not_end_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from reports import pytest_report_to_serializable\n")
    (tmp_path / "test_failing.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "2 failed, 1 passed" in done.stdout, ascii(done.stdout[-2000:])
    assert r"- after\ud800" in done.stdout and r"ValueError: half: \ud800" in done.stdout
