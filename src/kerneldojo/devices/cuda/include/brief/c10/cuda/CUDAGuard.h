// Stands in for c10/cuda/CUDAGuard.h while the CUDA half of a candidate is built: see torch/types.h.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard() = delete;
  explicit CUDAGuard(DeviceIndex device_index);
  explicit CUDAGuard(Device device);
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard();

 private:
  alignas(16) unsigned char torchs_own_[64];  // Whether that is enough is asked where torch's own is known.
};

struct OptionalCUDAGuard {
  explicit OptionalCUDAGuard();
  explicit OptionalCUDAGuard(std::optional<Device> device_opt);
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> device_index_opt);
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard();

 private:
  alignas(16) unsigned char torchs_own_[64];
};

}  // namespace c10::cuda
