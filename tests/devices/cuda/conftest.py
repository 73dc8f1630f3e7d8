from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from kerneldojo.devices.cuda import headers
from kerneldojo.devices.cuda.toolchain import Toolchain


@pytest.fixture(scope="session")
def host_server() -> Iterator[object]:
    """One for all tests of hosted processes; not by the name of the judge's own, which other folders' tests ask for."""
    from hosting import Server

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    running = Server()
    torch.cuda.init()
    yield running
    running.close()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The headers that each source is really compiled against, and its suffix: `slim.cu`."""
    found: list[str] = []

    def note(name: str) -> None:
        command = getattr(Toolchain, name)

        def noted(self: Toolchain, module: str, source: Path, target: Path, extra: Iterable[str]) -> list[str]:
            kinds = (kind for kind in ("bare", "brief", "slim") if f"-I{headers.HEADERS / kind}" in extra)
            found.append(f"{next(kinds, 'own')}{source.suffix}")
            return command(self, module, source, target, extra)

        monkeypatch.setattr(Toolchain, name, noted)

    note("cxx_command")
    note("nvcc_command")
    return found
