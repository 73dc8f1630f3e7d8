// Where streams come from, for the brief headers and the bare ones (see c10/cuda/CUDAStream.h there).
#pragma once

namespace c10::cuda {

C10_CUDA_API CUDAStream getStreamFromPool(const bool isHighPriority = false, DeviceIndex device = -1);
C10_CUDA_API CUDAStream getStreamFromPool(const int priority, DeviceIndex device = -1);
C10_CUDA_API CUDAStream getDefaultCUDAStream(DeviceIndex device_index = -1);
C10_CUDA_API CUDAStream getCurrentCUDAStream(DeviceIndex device_index = -1);
C10_CUDA_API void setCurrentCUDAStream(CUDAStream stream);

}  // namespace c10::cuda
