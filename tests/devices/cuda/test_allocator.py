"""The contestant's allocator, as far as it needs no device."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kerneldojo.contestant.failure import OUT_OF_DEVICE_MEMORY
from kerneldojo.devices.cuda.arena import SOURCE

ASKING = """
#include <sys/types.h>
#include <cstdio>
#include <exception>
extern "C" void* dojo_arena_allocate(ssize_t, int, void*);
int main() {
  try {
    return dojo_arena_allocate(1L << 44, 0, nullptr) == nullptr ? 2 : 1;
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 0;
  }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_it_says_so_when_there_is_no_memory(tmp_path: Path) -> None:
    """As an exception: torch takes a null pointer for memory."""
    (tmp_path / "asking.cpp").write_text(ASKING)
    program = tmp_path / "asking"
    sources = [str(tmp_path / "asking.cpp"), str(SOURCE)]
    subprocess.run(["g++", "-std=c++20", "-o", str(program), *sources, "-ldl"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(OUT_OF_DEVICE_MEMORY)
    assert str(1 << 44) in done.stdout
