"""Runs the tests in `interpreted/` in a process whose environment says TRITON_INTERPRET=1."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parent / "interpreted"
FILES = sorted(path.name for path in FOLDER.glob("test_*.py"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The one run of all files: what it printed, and by file how many tests ran and how many of them did not pass."""
    report = tmp_path_factory.mktemp("interpreted") / "report.xml"
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "KERNELDOJO_TEST_INTERPRETED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    command += [str(FOLDER / name) for name in FILES]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    told = run.stdout[-6000:] + run.stderr[-2000:]
    assert run.returncode in (0, 1), told  # 1: tests failed; the others: there was no proper run
    counts = {name: [0, 0] for name in FILES}
    for case in ElementTree.parse(report).iter("testcase"):
        count = counts[case.get("classname").rsplit(".", 1)[-1] + ".py"]
        count[0] += 1
        count[1] += any(child.tag in ("failure", "error") for child in case)
    assert (run.returncode == 0) == (sum(failed for _, failed in counts.values()) == 0), told
    return told, counts


@pytest.mark.parametrize("name", FILES)
def test_file(name, outcomes):
    told, counts = outcomes
    num_tests, num_failed = counts[name]
    assert num_tests > 0, told
    assert num_failed == 0, told
