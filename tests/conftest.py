"""Tests marked `gpu` need a CUDA device; where there is none they are skipped, and the summary says how many.

Those marked `own_process` too run in a process of their own: a fork can use a GPU only if its parent never did.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # So that asking for a GPU does not use it.
import torch

OWN_PROCESS = "DOJO_TEST_IS_IN_ITS_OWN_PROCESS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Have another pytest call a test that needs a process of its own."""
    if not pyfuncitem.get_closest_marker("own_process") or os.environ.get(OWN_PROCESS):
        return None
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env={**os.environ, OWN_PROCESS: "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return True
