from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[object]:
    import torch
    from hosting import Server

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    running = Server()
    torch.cuda.init()
    yield running
    running.close()
