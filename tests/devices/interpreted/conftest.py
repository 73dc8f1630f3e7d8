"""These tests run in a process of their own, started by `../test_interpreted.py`: it must interpret from the start."""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("KERNELDOJO_TEST_INTERPRETED") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def prepared():
    import torch

    from kerneldojo.devices import interpreter

    torch.set_num_threads(1)
    interpreter.prepare()
    interpreter.warm_up()
