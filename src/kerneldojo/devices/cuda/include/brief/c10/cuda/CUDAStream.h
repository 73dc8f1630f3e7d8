// Stands in for c10/cuda/CUDAStream.h while the CUDA half of a candidate is built: see torch/types.h.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

class C10_CUDA_API CUDAStream {
 public:
  explicit CUDAStream(Stream stream) : stream_(stream) {
    TORCH_CHECK(stream_.device_type() == DeviceType::CUDA);
  }

  operator cudaStream_t() const {
    return stream();
  }
  operator Stream() const {
    return stream_;
  }
  cudaStream_t stream() const;
  Stream unwrap() const {
    return stream_;
  }
  Device device() const {
    return Device(DeviceType::CUDA, device_index());
  }
  DeviceIndex device_index() const {
    return stream_.device_index();
  }
  StreamId id() const {
    return stream_.id();
  }
  bool query() const;
  void synchronize() const;

 private:
  Stream stream_;
};

}  // namespace c10::cuda

#include "../../../streams.h"
