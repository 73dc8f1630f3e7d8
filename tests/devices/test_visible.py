"""Counting GPUs needs neither PyTorch nor CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerneldojo
from kerneldojo.devices import visible
from kerneldojo.pool.placement import describe

SAY = (
    "import sys; from kerneldojo import devices; print(devices.num_cuda_devices(), 'torch' in sys.modules);"
    "import os; print(*sorted(os.listdir('/proc/self/fd')))"
)
NVML = """
class NVMLError(Exception): pass
def nvmlInit():
    if {fails}: raise NVMLError
    import os
    os.pipe()  # As NVML does, which never closes them.
def nvmlDeviceGetCount(): return 4
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}"
def nvmlDeviceGetName(handle): return "NVIDIA H%d00" % (1 + handle // 2)
"""
TORCH = "class version: cuda = '13.0'\nclass cuda: device_count = staticmethod(lambda: 7)\n"


NO_MORE = ["0", "1", "2", "3"]
"""Descriptors of a process that has opened none; the last is that of the listing."""


def told(visible_devices: str | None, *folders: Path) -> list[str]:
    """What a fresh process says: its count, whether it has imported torch, and the descriptors it has."""
    environment = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible_devices
    path = [*map(str, folders), str(Path(kerneldojo.__file__).parents[1])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    run = subprocess.run(
        [sys.executable, "-c", SAY], capture_output=True, text=True, timeout=60, env=environment, check=True
    )
    return run.stdout.split()


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A machine of four GPUs, as far as NVML and a PyTorch for CUDA go."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "version.py").write_text("cuda = '13.0'\n")
    (tmp_path / "pynvml.py").write_text(NVML.format(fails=False))
    return tmp_path


@pytest.mark.parametrize(
    ("chosen", "count"),
    [(None, 4), ("", 0), ("0", 1), ("3, 1", 2), ("0,1,9,2", 2), ("-1", 7), ("1,1", 0), ("GPU-5a", 7), ("MIG-5a", 7)],
)
def test_gpus_are_counted_by_nvml_and_else_by_torch(driver: Path, chosen: str | None, count: int) -> None:
    is_torch = count == 7
    assert told(chosen, driver) == [str(count), str(is_torch), *NO_MORE]


def test_without_nvml_torch_is_asked(driver: Path) -> None:
    (driver / "pynvml.py").write_text(NVML.format(fails=True))
    assert told(None, driver) == ["7", "True", *NO_MORE]
    (driver / "pynvml.py").write_text("raise ImportError")
    assert told(None, driver) == ["7", "True", *NO_MORE]


@pytest.mark.parametrize(("chosen", "count"), [([], 0), ([2, 0], 2), ([0, 4, 1], 1), ([4], 0), ([1, 1], 0)])
def test_a_list_ends_where_it_names_no_gpu(chosen: list[int], count: int) -> None:
    assert visible.num_chosen(chosen, there=4) == count


@pytest.mark.parametrize(
    ("chosen", "index", "uuid"),
    [
        (None, 3, "GPU-3"),
        (None, 4, None),
        ("3, 1", 0, "GPU-3"),
        ("3,1", 2, None),
        ("", 0, None),
        ("GPU-5a", 0, None),
        ("0,9,1", 1, None),
    ],
)
def test_a_gpu_is_named_as_far_as_numbers_tell(
    driver: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, index: int, uuid: str | None
) -> None:
    visible._gpus.cache_clear()
    monkeypatch.syspath_prepend(driver)
    if chosen is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible.uuid(index) == uuid
    name = visible.name(index)
    assert (name is None) == (uuid is None)
    assert name in (None, "NVIDIA H200")  # All that are asked for here are the latter two.
    assert describe(f"cuda:{index}") == (name or "")
    visible._gpus.cache_clear()


def test_only_an_answer_is_remembered(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visible._gpus.cache_clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.syspath_prepend(driver)
    (driver / "pynvml.py").write_text(NVML.format(fails=True))
    assert visible.count() is None
    (driver / "pynvml.py").write_text("import time; time.sleep(600)")
    with monkeypatch.context() as hurried:
        hurried.setattr(visible, "ANSWER_SECONDS", 0.5)
        assert visible.count() is None
    (driver / "pynvml.py").write_text(NVML.format(fails=False))
    assert visible.count() == 4
    (driver / "pynvml.py").write_text(NVML.format(fails=True))
    assert visible.count() == 4
    visible._gpus.cache_clear()


@pytest.mark.gpu
def test_a_gpus_name_is_torchs() -> None:
    import torch

    assert visible.name(0) == torch.cuda.get_device_name(0)
    assert visible.uuid(0) == f"GPU-{torch.cuda.get_device_properties(0).uuid}"


@pytest.mark.gpu
def test_the_count_is_torchs_and_leaves_nothing_open() -> None:
    import torch

    assert told(os.environ.get("CUDA_VISIBLE_DEVICES")) == [str(torch.cuda.device_count()), "False", *NO_MORE]
