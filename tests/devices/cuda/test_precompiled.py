"""Headers are really precompiled, by the compiler that candidates have, and really taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kerneldojo.devices.cuda import precompiled, toolchain
from kerneldojo.devices.cuda.precompiled import PrecompiledHeaders


def test_what_is_precompiled_is_taken_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "LEVELS", ("",))
    tools = toolchain.find((9, 0))
    headers = PrecompiledHeaders(tools, tmp_path)
    headers.wait()
    assert headers.num_ready == 1

    def read(level: str) -> str:
        """What the compiler reads for a usual source, as it says."""
        source = tmp_path / "main.cpp"
        source.write_text('#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.doc() = ""; }\n')
        includes = [f"-I{headers.folder}", f"-I{toolchain.SLIM_HEADERS}", *tools.include_flags()]
        command = tools.cxx_command(
            "any", source, tmp_path / "main.o", [*includes, "-fsyntax-only", "-H", *level.split()]
        )
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert f"! {headers.folder}/torch/extension.h.gch" in read("")
    assert f". {headers.folder}/torch/extension.h\n" in read("-O1")  # As text.
    headers.close()
    assert list(tmp_path.glob("headers-*")) == []


def test_closing_stops_the_compiler_and_leaves_nothing(tmp_path: Path) -> None:
    headers = PrecompiledHeaders(toolchain.find((9, 0)), tmp_path)
    headers.close()
    assert list(tmp_path.iterdir()) == []
