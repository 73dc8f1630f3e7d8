"""Runs the tests in `interpreted/`, each file in a process whose environment says TRITON_INTERPRET=1."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "interpreted"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_file(name):
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "KERNELDOJO_TEST_INTERPRETED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(FOLDER / name),
    ]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
