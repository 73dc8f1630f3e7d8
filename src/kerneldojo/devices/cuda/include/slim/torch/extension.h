// Stands in for torch/extension.h while a candidate is built: see types.h beside this. Sources for nvcc that bind
// nothing to Python (DOJO_BINDS is not defined) do without pybind11, which is a third of what is left of their time.
#pragma once

#include <torch/types.h>

#if defined(DOJO_BINDS) || !defined(__CUDACC__)
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
