"""A real GPU: memory shared between processes, a clock that the contestant cannot reach, a profile, and silence.

- `memory`, `arena`, `page`: what judge and contestant share, and the contestant's allocator within it.
- `window`, `calls`: the judge's stopwatch and, inside the contestant, the loop that it times; `statistics` turns
  windows into a time per call.
- `profiler`: device time of each kernel, own ones told by identity; `cubin`, `silence`: kernels that do nothing.
- `toolchain`, `flags`, `compiler`, `build`: C++/CUDA extensions. `clock`: the device's state, through NVML.
- `platform`, `warm`: all of it as the contestant and its fork server use it.

Nothing here is imported on a machine without CUDA, except to build an extension.
"""
