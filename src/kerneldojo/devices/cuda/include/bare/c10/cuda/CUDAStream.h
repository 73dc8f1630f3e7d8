// Stands in for c10/cuda/CUDAStream.h: see c10/core/ScalarType.h. What is in one only torch's own code looks at.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>

namespace c10::cuda {

class C10_CUDA_API CUDAStream {
 public:
  operator cudaStream_t() const {
    return stream();
  }
  cudaStream_t stream() const;
  bool query() const;
  void synchronize() const;

 private:
  uint64_t torchs_own_[2];
};

}  // namespace c10::cuda

#include "../../../streams.h"
