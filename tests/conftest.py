"""Tests marked `gpu` need a CUDA device; where there is none they are skipped, and the summary says how many.

Those marked `own_process` too run in a process of their own: a fork can use a GPU only if its parent never did.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reports import pytest_report_to_serializable as pytest_report_to_serializable
from scopes import shared

if TYPE_CHECKING:
    from kerneldojo.judging.servers import ForkServer

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # So that asking for a GPU does not use it.
gc.disable()  # Until all tests are collected, see below: imports make little garbage and many objects.
import torch  # noqa: E402

OWN_PROCESS = "DOJO_TEST_IS_IN_ITS_OWN_PROCESS"
LONG = (
    "exploits/test_suite.py",
    "pool/test_pool_faults.py",
    "exploits/test_suite_is_sound.py",
    "devices/cuda/test_precompiled.py",
    "report/test_bench_command.py",
    "cli/test_samples.py",
    "contestant/test_sandbox_endings.py",
    "evaluate/test_evaluate_command.py",
    "devices/cuda/test_build.py",
    "policies/test_layers.py",
    "cli/test_command_line.py",
    "cli/test_optimize_command.py",
    "service/test_service_durability.py",
    "pool/test_ray_pool.py",
    "training/test_training_learn.py",
    "training/test_training_loop.py",
    "training/test_training_parallel.py",
    "judging/test_gpu_steps.py",
    "pool/test_soak.py",
    "runs/test_runs_experiments.py",
    "search/test_search.py",
    "pool/test_local_pool.py",
    "contestant/test_sandbox_attacks.py",
    "training/test_training_ahead.py",
    "service/test_dashboard.py",
    "judging/test_measure_alone.py",
    "problems/test_graphs.py",
)
"""Files of more than half a minute, the longest first: begun last, they would leave the other cores without work.
Whatever is missing here costs time alone."""


def _place(item: pytest.Item) -> int:
    """Where the item's file comes among `LONG`; all others after them, as they were."""
    name = item.path.relative_to(Path(__file__).parent).as_posix()
    return LONG.index(name) if name in LONG else len(LONG)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests stays: to search it for garbage takes seconds."""
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def dojo_here(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The whole command as its process runs it, but in this one: for the many ways to be refused."""
    from kerneldojo.cli import app

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["dojo", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            app()
        assert isinstance(end.value.code, int)
        return subprocess.CompletedProcess(command, end.value.code, *capfd.readouterr())

    monkeypatch.setenv("COLUMNS", "100")
    before = gc.get_threshold()
    yield run
    gc.set_threshold(*before)


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


@pytest.fixture(scope=shared)
def server() -> Generator[ForkServer]:
    """A fork server whose contestants compile and run nothing; a folder or a module may overwrite this."""
    from kerneldojo.judging.servers import ForkServer

    server = ForkServer("compile")
    yield server
    server.close()
