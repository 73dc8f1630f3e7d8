// Stands in for ATen/cuda/CUDAContext.h while the CUDA half of a candidate is built: see torch/types.h.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)

namespace at::cuda {

TORCH_CUDA_CPP_API cudaDeviceProp* getCurrentDeviceProperties();
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
TORCH_CUDA_CPP_API int warp_size();

}  // namespace at::cuda
