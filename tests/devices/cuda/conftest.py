import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from kerneldojo.devices.cuda import headers, precompiled, toolchain
from kerneldojo.devices.cuda.precompiled import Precompiled, Precompiler
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


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Precompiled]:
    """What the judge makes, for g++ at one level."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precompiled, "LEVELS", ("",))
        patch.setattr(precompiled, "NICENESS", 0)  # A test waits for it: beside busy cores it would be minutes.
        capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
        compiler = Precompiler(toolchain.find(capability), tmp_path_factory.mktemp("made"))
        compiler.wait()
    assert compiler.num_ready == 1
    assert compiler.made.has_brief == (shutil.which("nvcc") is not None)
    yield compiler.made
    compiler.close()
    assert not compiler.made.folder.exists()


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
