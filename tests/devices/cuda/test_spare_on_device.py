"""That a process which was killed while its kernel wrote to shared memory does not reach who has that memory next."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kerneldojo.devices.cuda.driver import enter_context
from kerneldojo.devices.cuda.memory import SharedRegion
from kerneldojo.devices.cuda.spare import Spare

NUM_BYTES = 1 << 26
WRITER = """
import sys, torch, triton, triton.language as tl
from kerneldojo.devices.cuda.driver import enter_context
from kerneldojo.devices.cuda.memory import SharedRegion

@triton.jit
def write(pointer, num_rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = 1
    for _ in range(num_rounds):
        for _ in range(1 << 20):
            tl.store(pointer + at, number, cache_modifier=".wt")
            number += 1

enter_context()
region = SharedRegion.open(int(sys.argv[1]), int(sys.argv[2]))
numbers = region.tensor(0, (region.size // 4,), (1,), torch.int32)
write[(numbers.numel() // 1024,)](numbers, 0, BLOCK=1024)
torch.cuda.synchronize()
write[(numbers.numel() // 1024,)](numbers, 1 << 20, BLOCK=1024)
print("writing", flush=True)
torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_a_kernel_ends_with_the_process_that_launched_it(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(WRITER)
    enter_context()
    spare = Spare()
    for _ in range(3):
        region = spare.take(NUM_BYTES)
        command = [sys.executable, str(tmp_path / "writer.py"), str(region.fd), str(region.size)]
        assert region.fd is not None
        with subprocess.Popen(command, pass_fds=[region.fd], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            while not region.bytes().any():
                time.sleep(0.01)
            assert writer.poll() is None
            writer.kill()
            writer.wait()
        spare.give_back(region)
        assert spare.take(NUM_BYTES) is region
        assert isinstance(region, SharedRegion)
        time.sleep(0.3)
        assert not region.bytes().any(), "it still writes"
        spare.give_back(region)
    spare.evict()
    torch.cuda.synchronize()
