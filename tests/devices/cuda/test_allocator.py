"""The contestant's allocator, as far as it needs no device."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kerneldojo.contestant.failure import OUT_OF_DEVICE_MEMORY
from kerneldojo.devices.cuda.heap import SOURCE

ASKING = """
#include <sys/types.h>
#include <cstdio>
#include <exception>
extern "C" void* dojo_heap_allocate(ssize_t, int, void*);
int main() {
  try {
    return dojo_heap_allocate(1L << 44, 0, nullptr) == nullptr ? 2 : 1;
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


DRIVER = """
#include <stdint.h>
#include <stddef.h>
int cuMemsetD8Async(uint64_t a, unsigned char v, size_t n, void* s) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int is_capturing = 0, num_invalid = 0;
static int mode = 0; /* As threads begin: global. */
static int refuses(void) { if (is_capturing && mode != 2) { ++num_invalid; return 900; } return 0; }
int cuThreadExchangeStreamCaptureMode(int* m) { int before = mode; mode = *m; *m = before; return 0; }
int cuMemAlloc_v2(uint64_t* a, size_t n) {
  static uint64_t next = 1ull << 40;
  if (refuses()) return 900;
  *a = next; next += n;
  return 0;
}
int cuMemFree_v2(uint64_t a) { return refuses() ? 900 : a < 1ull << 40; }
"""
"""As much of a driver as the allocator needs; memory of its own lies from one TiB on. While a stream is captured it has
and takes back memory only from who says that this is meant, as the real one does."""

MOVING = """
#include <sys/types.h>
#include <cstdint>
#include <cstdio>
extern "C" {
int dojo_heap_open(uint64_t, size_t);
void dojo_heap_move(uint64_t, size_t);
int dojo_heap_leave();
void* dojo_heap_allocate(ssize_t, int, void*);
void dojo_heap_free(void*, ssize_t, int, void*);
void dojo_heap_record_stream(void*, void*);
void dojo_heap_reclaim();
}
constexpr uint64_t FIRST = 1 << 20, SECOND = 1 << 24, SIZE = 1 << 16;
bool in(uint64_t base, void* pointer) {
  uint64_t address = reinterpret_cast<uint64_t>(pointer);
  return base <= address && address < base + SIZE;
}
#define CHECK(what) if (!(what)) { std::printf("line %d\\n", __LINE__); return 1; }
int main() {
  CHECK(dojo_heap_open(FIRST, SIZE) == 0)
  void* kept = dojo_heap_allocate(4096, 0, nullptr);
  void* freed = dojo_heap_allocate(4096, 0, nullptr);
  void* shared = dojo_heap_allocate(4096, 0, nullptr);
  void* quarantined = dojo_heap_allocate(4096, 0, nullptr);
  dojo_heap_record_stream(shared, nullptr);
  dojo_heap_record_stream(quarantined, nullptr);
  dojo_heap_free(freed, 4096, 0, nullptr);
  dojo_heap_free(quarantined, 4096, 0, nullptr);
  CHECK(in(FIRST, kept) && in(FIRST, freed))
  CHECK(dojo_heap_leave() == 1)
  dojo_heap_move(SECOND, SIZE);
  void* after = dojo_heap_allocate(4096, 0, nullptr);
  CHECK(in(SECOND, after))  // Not where the freed one lay.
  dojo_heap_free(kept, 4096, 0, nullptr);
  dojo_heap_free(shared, 4096, 0, nullptr);
  dojo_heap_reclaim();
  void* others[8];
  for (void*& other : others) CHECK(in(SECOND, other = dojo_heap_allocate(4096, 0, nullptr)))
  void* beyond = dojo_heap_allocate(SIZE, 0, nullptr);
  CHECK(!in(FIRST, beyond) && !in(SECOND, beyond))  // The driver's own.
  dojo_heap_free(beyond, SIZE, 0, nullptr);
  CHECK(dojo_heap_leave() == 1)  // Something is alive.
  for (void* other : others) dojo_heap_free(other, 4096, 0, nullptr);
  dojo_heap_free(after, 4096, 0, nullptr);
  CHECK(dojo_heap_leave() == 0)
  CHECK(!in(SECOND, dojo_heap_allocate(4096, 0, nullptr)))  // There is no region.
  CHECK(dojo_heap_open(FIRST, SIZE) == 0)
  CHECK(in(FIRST, dojo_heap_allocate(4096, 0, nullptr)))  // It is a region as any other again.
  return 0;
}
"""


CAPTURING = """
#include <sys/types.h>
#include <cstdint>
#include <cstdio>
struct PoolId { uint64_t first, second; };
extern "C" {
extern int is_capturing, num_invalid;
int dojo_heap_open(uint64_t, size_t);
void* dojo_heap_allocate(ssize_t, int, void*);
void dojo_heap_free(void*, ssize_t, int, void*);
void dojo_heap_begin_pool(int, PoolId, void*);
void dojo_heap_end_pool(int, PoolId);
int cuThreadExchangeStreamCaptureMode(int*);
}
constexpr uint64_t BASE = 1 << 20, SIZE = 1 << 16;
bool in(void* pointer) { return BASE <= (uint64_t)pointer && (uint64_t)pointer < BASE + SIZE; }
#define CHECK(what) if (!(what)) { std::printf("line %d\\n", __LINE__); return 1; }
int main() {
  void* side = (void*)1;
  CHECK(dojo_heap_open(BASE, SIZE) == 0)
  void* blocks[16];
  for (void*& block : blocks) CHECK(in(block = dojo_heap_allocate(4096, 0, side)))
  for (void* block : blocks) dojo_heap_free(block, 4096, 0, side);  // All is free, and none of it the capture's.
  dojo_heap_begin_pool(0, {0, 1}, nullptr);
  is_capturing = 1;
  for (void*& block : blocks) CHECK(in(block = dojo_heap_allocate(4096, 0, nullptr)))
  void* beyond = dojo_heap_allocate(4096, 0, nullptr);
  CHECK(beyond != nullptr && !in(beyond))
  dojo_heap_free(beyond, 4096, 0, nullptr);
  CHECK(num_invalid == 0)
  int mode = 0;
  cuThreadExchangeStreamCaptureMode(&mode);
  CHECK(mode == 0)  // The thread is as careful as before.
  is_capturing = 0;
  dojo_heap_end_pool(0, {0, 1});
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("source", [MOVING, CAPTURING], ids=["moving", "capturing"])
def test_its_region(tmp_path: Path, source: str) -> None:
    """It moves to another one and leaves them all; a capture has what is free, and survives that nothing is."""
    (tmp_path / "driver.c").write_text(DRIVER)
    driver = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "driver.c")]
    subprocess.run(driver, check=True)
    (tmp_path / "moving.cpp").write_text(source)
    program = tmp_path / "moving"
    sources = [str(tmp_path / "moving.cpp"), str(SOURCE), str(tmp_path / "libcuda.so.1")]
    subprocess.run(["g++", "-std=c++20", "-o", str(program), *sources, "-ldl"], check=True)
    surroundings = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, env=surroundings)
    assert (done.returncode, done.stdout) == (0, "")
