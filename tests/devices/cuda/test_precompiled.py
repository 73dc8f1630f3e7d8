"""Headers are really precompiled, by the compiler that candidates have, and really taken."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kerneldojo.devices.cuda import headers, precompiled, toolchain
from kerneldojo.devices.cuda.precompiled import Precompiler


def test_what_is_precompiled_is_taken_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "LEVELS", ("",))
    tools = replace(toolchain.find((9, 0)), nvcc=None)  # What is made for nvcc has tests of its own.
    compiler = Precompiler(tools, tmp_path)
    compiler.wait()
    assert compiler.num_ready == 1

    def read(level: str) -> str:
        """What the compiler reads for a usual source, as it says."""
        source = tmp_path / "main.cpp"
        source.write_text('#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.doc() = ""; }\n')
        includes = [f"-I{compiler.made.folder}", f"-I{headers.SLIM}", *tools.include_flags()]
        # As text it takes half a minute to parse, and which of the two it reads is settled before.
        look = ["-E", "-fpch-preprocess"] if level else ["-fsyntax-only"]
        command = tools.cxx_command("any", source, tmp_path / "main.o", [*includes, *look, "-H", *level.split()])
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert f"! {compiler.made.folder}/torch/extension.h.gch" in read("")
    assert f". {compiler.made.folder}/torch/extension.h\n" in read("-O1")  # As text.
    compiler.close()
    assert list(tmp_path.glob("headers-*")) == []


def test_closing_stops_the_compiler_and_leaves_nothing(tmp_path: Path) -> None:
    compiler = Precompiler(toolchain.find((9, 0)), tmp_path)
    compiler.close()
    assert list(tmp_path.iterdir()) == []
