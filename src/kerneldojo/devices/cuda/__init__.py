"""A real GPU: memory shared between processes, a clock that the contestant cannot reach, a profile, and silence.

- `memory`, `arena`, `page`: what judge and contestant share, and the contestant's allocator within it.
- `window`, `calls`: the judge's stopwatch and, inside the contestant, the loop that it times; `trials` plays windows of
  secret `lengths`, `fits` turns them into a time per call, and `charges` into what a candidate is charged with.
- `profiler`: device time of each kernel, own ones told by identity; `cubin`, `silence`: kernels that do nothing.
- `toolchain`, `flags`, `headers`, `compiler`, `build`: C++/CUDA extensions; `brief`, `names`, `precompiled`: what of
  torch's headers is prepared for them once. `clock`: the device's state, through NVML.
- `platform`, `warm`: all of it as the contestant and its fork server use it.

Nothing here is imported on a machine without CUDA, except to build an extension.
"""
