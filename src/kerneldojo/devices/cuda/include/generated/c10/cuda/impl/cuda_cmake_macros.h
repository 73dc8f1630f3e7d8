// The one header that torch's build generates for CUDA and that a CPU build of torch lacks: with it, a candidate's
// CUDA sources can be compiled, though not linked, on a machine without a GPU.
#pragma once

#define C10_CUDA_BUILD_SHARED_LIBS
