from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy_world

from kerneldojo.rollout import Manifest, RunFolder
from kerneldojo.training.parallel import Ranks, start_ranks
from kerneldojo.training.sft import train_sft


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks() -> Ranks:
    return start_ranks("cpu")


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collected")
    with RunFolder(folder).open(Manifest(settings={})) as run:
        for episode in toy_world.played():
            run.add_episode(episode)
    return folder


@pytest.fixture(scope="session")
def imitator(tmp_path_factory: pytest.TempPathFactory, collected: Path, ranks: Ranks) -> Path:
    """A model of 30,000 parameters that learned to answer in the right form, and any of the four ways."""
    output = tmp_path_factory.mktemp("sft") / "run"
    outcome = train_sft(toy_world.sft_config(output, collected), ranks, show=False)
    assert outcome.reason == "finished"
    return output / "model"
